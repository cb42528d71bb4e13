"""`limner search` and `limner explain`: query a store from the command line."""

import operator
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field
from pydantic_core import PydanticCustomError

from limner.cli.conflicts import Conflict
from limner.cli.console import err, out, save_sheet
from limner.cli.contract import command, group
from limner.cli.options import Cpu, Method, MovedRun, StoreFolder, device, first
from limner.cli.search_queries import QueryAnswer, answer_queries
from limner.cli.setting_options import given, with_options
from limner.counted import counted, some
from limner.documented import Result
from limner.errors import DataError, SettingsError
from limner.names import Spelling
from limner.query_text import QueryTerm
from limner.requests import SearchRequest
from limner.wire import Answer, Explanation, Hit, Item, SentencesAnswer, no_picture_has

if TYPE_CHECKING:
    from limner.search.engine import Engine
    from limner.search.store import Store
    from limner.store.files import StoreFiles

app = group("Search.")

_CONDITIONS = "--offset --where --after --before"
_BAR = 24
"""Characters of the longest bar."""


class Listed(Result):
    """Pictures that meet conditions, which no ranking orders."""

    hits: tuple[Item, ...]
    """These pictures, the newest first."""

    total: int
    """Pictures of the store."""

    matching: int
    """Pictures that meet the conditions."""

    absent: dict[str, str | None] = Field(default={}, exclude_if=operator.not_)
    """Names in conditions that no picture has, each with the nearest that one has, or null."""


class SearchSettings(SearchRequest):
    """The options of `limner search`: those of a request, and what is done with the answer."""

    image: Path | None = None
    """Search by this picture; beside a text, by both together."""

    like: str | None = None
    """Search by a picture of the store: its path, or its key."""

    sentences: bool = False
    """Find sentences of the store in place of pictures."""

    sheet: Path | None = None
    """Draw the ranked pictures into this file."""

    truth: str | None = None
    """The identity that is right: frames its pictures green, others red."""

    queries: str | None = None
    """Answer each line of a file, or of stdin (-): a text, or NAME, a tab and a text."""

    vectors: Path | None = None
    """Search by the embeddings of another program, in an .npz file: an array sentences, a row a query; as --queries."""

    format: Literal["jsonl", "csv", "trec"] = "jsonl"
    """Form of the answers to --queries: one answer a line, one hit a line, or a TREC run."""

    names: Literal["path", "id"] = "path"
    """With --format trec: pictures by their path, which is usual, or by their key."""

    def _check_subject(self) -> None:
        if self.queries is not None or self.vectors is not None or self.is_list:
            return
        if self.text is None and self.image is None and self.like is None:
            raise PydanticCustomError(
                "subject", "give a TEXT, --image, --like or --queries, or --where alone"
            )
        super()._check_subject()

    @property
    def is_list(self) -> bool:
        """True if pictures are asked for by filters alone, which no ranking orders."""
        asked = (self.text, self.image, self.like, self.queries, self.vectors, self.marks, self.group)
        return all(one is None for one in asked) and bool(self.where or self.after or self.before)

    @property
    def request(self) -> dict[str, Any]:
        """The options that are the request's."""
        return {name: getattr(self, name) for name in SearchRequest.model_fields}


@command(
    app,
    "search",
    Conflict(
        "--explain", needs="--json --queries", why="comes with --json; `limner explain` says what a word adds"
    ),
    Conflict("--truth", needs="--sheet", why="frames the pictures of a sheet"),
    Conflict("--sentences", only="TEXT --image --like --text-weight -k --run --cpu"),
    Conflict("--queries", without="TEXT --sheet", why="the texts are in the file"),
    Conflict("--vectors", only=f"-k {_CONDITIONS} --group --right --wrong --format --names --run --cpu"),
    Conflict("--format", needs="--queries --vectors", why="is of many answers"),
    Conflict("--format=csv", without="--json", why="CSV is no JSON"),
    Conflict("--format=trec", without="--json", why="a TREC run is no JSON"),
    Conflict("--names", needs="--format=trec", why="is of a TREC run; others have path and id"),
    schema=Answer | Listed | SentencesAnswer | QueryAnswer,
)
@with_options(SearchSettings, "text", "marks", bare=True)
def search_command(
    context: Any,
    store: StoreFolder,
    text: Annotated[str | None, typer.Argument(help="What to look for.")] = None,
    right: Annotated[
        list[str] | None,
        "A picture of the store that is right: its path, or its key; may be repeated. It moves the search "
        "and is left out.",
    ] = None,
    wrong: Annotated[list[str] | None, "A picture of the store that is wrong, in the same way."] = None,
    run: MovedRun = None,
    cpu: Cpu = False,
    **options: Any,
) -> Answer | Listed | SentencesAnswer | None:
    """Find the pictures of a store by a description, by a picture, or by both.

    With conditions alone the pictures that meet them are listed, the newest first. With --queries, many descriptions
    are answered by one process. `--format trec` names pictures by their path, with blanks and percent signs as in URLs,
    or with `--names id` by their key, as the qrels of the search page do.
    """
    # before the imports below: torch takes seconds to load
    asked = SearchSettings.parse(
        {
            **given(context, options),
            "text": text if options["queries"] is None else "",
            "rerank": first(options["rerank"]),
        }
    )
    from limner.search.store import open_store

    if asked.is_list:
        return _list(asked, open_store(store, run=run, device=device(cpu)))
    named = None
    if asked.vectors is None:
        query = SearchRequest.parse(asked.request)
    else:
        from limner.search.foreign_vectors import read_query_vectors
        from limner.search.query_vectors import PreparedRequest

        named = read_query_vectors(asked.vectors)
        query = PreparedRequest.parse({**asked.request, "vector": named[0][1]})

    opened = open_store(store, run=run, device=device(cpu))
    engine = opened.engine
    # now, since a path means nothing without the store
    if asked.like is not None:
        query = query.replace(like=_key(engine, asked.like))
    if right or wrong:
        keys, others = ({_key(engine, name) for name in names or ()} for names in (right, wrong))
        if both := keys & others:
            raise SettingsError(f"marks: {min(both)!r} is marked both right and wrong")
        query = query.replace(marks={**dict.fromkeys(keys, "right"), **dict.fromkeys(others, "wrong")})
    many = named if asked.queries is None else asked.queries
    if many is not None:
        answer_queries(engine, query, many, asked.format, by_key=asked.names == "id")
        return None
    if asked.sentences:
        return _sentences(engine, query, store)
    found = engine.answer(query)
    _print(found, store, quoted=bool(query.quoted))
    # on stderr, like every remark: hits may be piped into another program
    _say_not_understood(found, engine)
    if found.reference:
        err.print(f"left out as the query's own picture: {', '.join(_named(engine, found.reference))}")
    if found.unread:
        err.print(f"longer than the model reads, and left out: {some(found.unread)}")
    # a misspelt field is no error, it only meets no picture: so name the fields that exist
    if found.absent or (not found.matching and found.total):
        err.print(_known_fields(engine.files, found.absent))
    if asked.sheet is not None:
        _draw(found, opened, query, asked.truth, asked.sheet)
    return found


@command(app, "explain")
def explain_command(
    store: StoreFolder,
    text: Annotated[str, "The description."],
    picture: Annotated[str, "A picture of the store: its path, or its key."],
    method: Method = "masked-regression",
    run: MovedRun = None,
    cpu: Cpu = False,
) -> Explanation:
    """Show what the score of a picture for a description does without each of its phrases.

    With --json, each word stands by itself, and a reranker's attention beside it.
    """
    from limner.inference.word_effects import within_noise
    from limner.search.store import open_store

    engine = open_store(store, run=run, device=device(cpu)).engine
    found = engine.explain(text, _key(engine, picture), method)
    sure = "" if found.confidence is None else f", the reranker is sure by {found.confidence:.1%}"
    out.print(f"cosine {found.score:+.3f}{sure}")
    # a text of one word has no phrases, and so no lines
    hidden = [one for one in found.phrases if within_noise(one)]
    told = [phrase for phrase in found.phrases if phrase not in hidden]
    # or 1: all weights may be 0, and bars are shares of the largest
    most = max((abs(phrase.weight) for phrase in told), default=0) or 1
    longest = max((len(phrase.text) for phrase in told), default=0)
    for phrase in told:
        does, mark = ("falls by", "+") if phrase.weight >= 0 else ("rises by", "-")
        bar = mark * round(_BAR * abs(phrase.weight) / most)
        out.print(f"  without {phrase.text:<{longest}}  {does} {abs(phrase.weight):.3f}  {bar}")
    if hidden:
        out.print(f"  within noise: {', '.join(dict.fromkeys(phrase.text for phrase in hidden))}")
    _say_unknown(found.unknown)
    if found.attention is not None:
        err.print(
            "with --json: where the reranker looked; `limner figure attention RUN PICTURE TEXT` draws it"
        )
    return found


def _key(engine: "Engine", name: str) -> str:
    """The key of a picture that is named by its path or its key."""
    try:
        # a key first: 32 hex digits are hardly a file's name
        if engine.files.entry(name) is not None:
            return name
        snapshot = engine.files.snapshot()
        known = chain(snapshot.columns.paths, *snapshot.columns.others)
        path = Spelling(known).of(os.path.abspath(name))  # noqa: PTH100 - resolve() would follow links
        if (key := snapshot.key_at(path)) is not None:
            return key
    except UnicodeEncodeError:  # bytes that are no text, which no picture of a store is named by
        name = ascii(name)
    raise DataError(f"{name}: the store holds no picture of this path or key; see `limner store list`")


def _print(answer: Answer, store: object, *, quoted: bool) -> None:
    for hit in answer.hits:
        out.print(_line(hit))
    if not answer.total:
        err.print(f"{store}: the store is empty")
    elif not answer.matching:
        err.print(f"{store}: no picture meets the conditions{', or has what is in quotes' if quoted else ''}")
    # None where the store's model has no calibration: nothing is claimed then
    elif answer.good is False and not answer.turned:
        err.print(f"no good match: none has a probability of {answer.threshold:.0%} or more")


def _say_not_understood(answer: Answer, engine: "Engine") -> None:
    if answer.terms:
        err.print(f"read apart: {', '.join(map(_term, answer.terms))}; --literal reads one sentence")
    _say_unknown(answer.unknown)
    if answer.turned:
        err.print(
            f"without {', '.join(map(repr, answer.turned))} it says the opposite, so no match is called good"
        )
    if answer.language is not None:
        err.print(f"the text is {answer.language}, and the model reads {', '.join(engine.languages)}")


def _term(term: QueryTerm) -> str:
    return f"without {term.text!r}" if term.weight < 0 else f"{term.text!r} counts {1 + term.weight:g} times"


def _say_unknown(words: Sequence[str]) -> None:
    if words:
        err.print(f"the model does not know, and left out: {some(words)}")


def _named(engine: "Engine", keys: Sequence[str]) -> list[str]:
    """The paths of pictures; a key where it was deleted meanwhile."""
    return [str(entry.path) if (entry := engine.files.entry(key)) is not None else key for key in keys]


def _known_fields(files: "StoreFiles", absent: Mapping[str, str | None]) -> str:
    """A hint: the fields that conditions can use, beside the ones that no picture has."""
    from limner.store.metadata_index import OWN

    known = [field.name for field in files.snapshot().metadata.fields()]
    missing = f"{no_picture_has(absent)}; " if absent else ""
    return f"{missing}conditions can ask for {', '.join((*OWN, *known))}"


def _list(asked: SearchSettings, store: "Store") -> Listed:
    limits = [f"taken>={asked.after}"] if asked.after else []
    limits += [f"taken<{asked.before}"] if asked.before else []
    found = store.items(offset=asked.offset or 0, limit=asked.k, where=[*asked.where, *limits], newest=True)
    for item in found:
        taken = "" if item.taken is None else f"  {item.taken.isoformat(' ', 'seconds')}"
        identity = "" if item.identity is None else f"  [{item.identity}]"
        out.print(f"{item.path}{taken}{identity}")
    err.print(f"{counted(len(found), 'pictures', of=found.total)} that meet the conditions, the newest first")
    if found.absent or not found.total:
        err.print(_known_fields(store.files, found.absent))
    return Listed(hits=found.items, total=len(store), matching=found.total, absent=found.absent)


def _sentences(engine: "Engine", query: SearchRequest, store: object) -> SentencesAnswer:
    found = engine.sentences(query)
    for hit in found:
        of = "" if hit.path is None else f"  [{hit.path}]"
        out.print(f"{hit.rank:>3}  {hit.score:+.3f}  {hit.text}{of}")
    if not found:
        err.print(f"{store}: the store holds no sentences; add some with `limner index-sentences`")
    return SentencesAnswer(sentences=tuple(found), total=engine.sentence_count)


def _line(hit: Hit) -> str:
    parts = [f"{hit.rank:>3}", f"{hit.score:+.3f}"]
    if hit.confidence is not None:
        # six characters, as wide as 100.0%, so that paths stand below each other
        parts.append(f"{hit.confidence:6.1%}")
    if hit.probability is not None:
        parts.append(f"p={hit.probability:.2f}")
    parts.append(str(hit.path))
    if hit.identity is not None:
        parts.append(f"[{hit.identity}]")
    if hit.words_in:
        parts.append(f"(words in: {', '.join(hit.words_in)})")
    if hit.group is not None and hit.group > 1:
        parts.append(f"and {hit.group - 1} more")
    return "  ".join(parts)


def _draw(answer: Answer, store: "Store", query: SearchRequest, truth: str | None, sheet: Path) -> None:
    from limner.search.contact_sheet import contact_sheet

    # a sheet's heading is the text where a text and a picture were searched by together
    heading = query.text or query.image or f"like {query.like}"
    assert isinstance(heading, str | Path)
    drawn = contact_sheet(answer.hits, thumbnail=store.thumbnail, query=heading, truth=truth, names=True)
    save_sheet(drawn, sheet)
