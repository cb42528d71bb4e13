"""`limner search` and `limner explain`: query a store from the command line."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from limner.cli.console import err, out
from limner.cli.contract import as_json, command, group
from limner.cli.options import Cpu, MovedRun, Rerank, StoreFolder, device, first
from limner.cli.search_queries import QueryAnswer, answer_queries, answer_vectors
from limner.errors import DataError, SettingsError
from limner.wire import Answer, Explanation, Hit, SentencesAnswer, WordMethodName

if TYPE_CHECKING:
    import numpy as np

    from limner.requests import SearchRequest
    from limner.search.engine import Engine

app = group("Search.")

_BAR = 24
"""Characters of the longest bar."""


@command(app, "search", schema=Answer | SentencesAnswer | QueryAnswer)
def search_command(
    store: StoreFolder,
    text: Annotated[str | None, typer.Argument(help="What to look for.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many pictures or groups, at least 1.")] = 10,
    image: Annotated[
        Path | None, typer.Option(help="Search by this picture; beside a text, by both together.")
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="Search by a picture of the store: its path, or its key.")
    ] = None,
    text_weight: Annotated[
        float | None,
        typer.Option(
            help="Weight of the text beside a picture, in [0, 1]; the picture has the rest. Without it, a run "
            "that `limner compose` has taught reads both as one sentence, others take 0.5."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only pictures that meet this, e.g. camera=3; may be repeated (docs/concepts.md)."),
    ] = None,
    after: Annotated[str | None, typer.Option(help="Only pictures taken at this ISO time or later.")] = None,
    before: Annotated[str | None, typer.Option(help="Only pictures taken before this ISO time.")] = None,
    right: Annotated[
        list[str] | None,
        typer.Option(
            help="A picture of the store that is right: its path, or its key; may be repeated. It moves the search "
            "and is left out."
        ),
    ] = None,
    wrong: Annotated[
        list[str] | None, typer.Option(help="A picture of the store that is wrong, in the same way.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Only the best of each 'identity', or of pictures that are 'near' equal."),
    ] = None,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Find sentences of the store in place of pictures.")
    ] = False,
    sheet: Annotated[Path | None, typer.Option(help="Draw the ranked pictures into this file.")] = None,
    truth: Annotated[
        str | None, typer.Option(help="The identity that is right: frames its pictures green, others red.")
    ] = None,
    rerank: Rerank = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --json: where the reranker looked, word by word.")
    ] = False,
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries",
            metavar="FILE",
            help="Answer each line of a file, or of stdin (-): a text, or NAME, a tab and a text.",
        ),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="Search by the embeddings of another program: an array sentences, a row a query; as --queries.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="What --queries prints: jsonl (one answer a line), csv (one hit a line) or trec (a TREC run).",
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(help="With --format trec: pictures by their 'path', which is usual, or by their 'id'."),
    ] = None,
    run: MovedRun = None,
    cpu: Cpu = False,
) -> Answer | SentencesAnswer | None:
    """Find the pictures of a store by a description, by a picture, or by both.

    With --queries, many descriptions are answered by one process. `--format trec` names pictures by their path, with
    blanks and percent signs as in URLs, or with `--names id` by their key, as the qrels of the search page do.
    """
    # before the imports below: torch and LanceDB take seconds to load
    _check(
        text,
        sentences=sentences,
        sheet=sheet,
        truth=truth,
        explain=explain,
        queries=queries,
        vectors=vectors,
        form=form,
        names=names,
    )
    if vectors is not None:
        _check_vectors(text, image, like, sheet, queries, sentences=sentences, explain=explain)
    from limner.requests import SearchRequest
    from limner.search.store import open_store

    named = None if vectors is None else _named_vectors(vectors)
    options = {
        "text": text if queries is None else "",
        "image": image,
        "like": like,
        "text_weight": text_weight,
        "k": k,
        "where": where or [],
        "after": after,
        "before": before,
        "group": group,
        "rerank": first(rerank),
        "explain": explain,
    }
    if named is None:
        query = SearchRequest.parse(options)
    else:
        from limner.search.query_vectors import PreparedRequest

        query = PreparedRequest.parse({**options, "vector": named[0][1]})
    # sentences have no metadata to meet conditions, and no regions to re-rank by
    if sentences and (where or after or before or group or rerank or right or wrong):
        raise SettingsError("--sentences: goes with a text, --image, --like, -k and --json only")

    engine = open_store(store, run=run, device=device(cpu)).engine
    # now, since a path means nothing without the store
    if like is not None:
        query = query.replace(like=_key(engine, like))
    if right or wrong:
        keys, others = ({_key(engine, name) for name in names or []} for names in (right, wrong))
        if both := keys & others:
            raise SettingsError(f"marks: {min(both)!r} is marked both right and wrong")
        query = query.replace(marks={**dict.fromkeys(keys, "right"), **dict.fromkeys(others, "wrong")})
    if queries is not None:
        answer_queries(engine, query, queries, form or "jsonl", by_key=names == "id")
        return None
    if named is not None:
        answer_vectors(engine, query, named, form or "jsonl", by_key=names == "id")
        return None
    if sentences:
        return _sentences(engine, query, store)
    found = engine.answer(query)
    _print(found, store)
    # on stderr, like every remark: hits may be piped into another program
    _say_unknown(found.unknown)
    if found.reference:
        err.print(f"left out as the query's own picture: {', '.join(_named(engine, found.reference))}")
    if found.unread:
        err.print(f"longer than the model reads, and left out: {', '.join(found.unread)}")
    # a misspelt field is no error, it only meets no picture: so name the fields that exist
    if not found.matching and found.total:
        err.print(_known_fields(engine, query))
    if sheet is not None:
        _draw(found, query, truth, sheet)
    return found


def _check(
    text: str | None,
    *,
    sentences: bool,
    sheet: Path | None,
    truth: str | None,
    explain: bool,
    queries: str | None,
    vectors: Path | None,
    form: str | None,
    names: str | None,
) -> None:
    """Refuse options that have no meaning together, before the model is loaded, which takes seconds."""
    if explain and not (as_json() or queries):
        raise SettingsError(
            # attention is a grid of numbers for each word, of no use as text
            "--explain: attention comes with --json; `limner explain` says what each word adds"
        )
    if truth is not None and sheet is None:
        raise SettingsError("--truth: frames the pictures of a sheet; name one with --sheet")
    if sentences and (explain or sheet or truth or queries):
        raise SettingsError("--sentences: goes with a text, --image, --like, -k and --json only")
    if queries is not None and (text is not None or sheet is not None):
        raise SettingsError("--queries: the texts are in the file; leave out the text and --sheet")
    if form is not None and queries is None and vectors is None:
        raise SettingsError("--format: is of the answers to --queries FILE and --vectors FILE")
    if form not in (None, "jsonl", "csv", "trec"):
        raise SettingsError(f"--format: expected 'jsonl', 'csv' or 'trec', got {form[:40]!r}")
    # --json promises that stdout is JSON
    if form in ("csv", "trec") and as_json():
        what = "a TREC run" if form == "trec" else "CSV"
        raise SettingsError(f"--format {form}: {what} is no JSON; leave out --json, or take --format jsonl")
    if names not in (None, "path", "id"):
        raise SettingsError(f"--names: expected 'path' or 'id', got {names[:40]!r}")
    if names is not None and form != "trec":
        raise SettingsError("--names: is of --format trec; the others have path and id")


def _check_vectors(text: str | None, *others: object, sentences: bool, explain: bool) -> None:
    if text is not None or any(other is not None for other in others) or sentences or explain:
        raise SettingsError("--vectors: goes with -k, conditions, --group, --format and --run only")


def _named_vectors(file: Path) -> "list[tuple[str, np.ndarray]]":
    from limner.search.foreign_vectors import read_query_vectors

    return read_query_vectors(file)


@command(app, "explain")
def explain_command(
    store: StoreFolder,
    text: Annotated[str, typer.Argument(help="The description.")],
    picture: Annotated[str, typer.Argument(help="A picture of the store: its path, or its key.")],
    method: Annotated[
        str, typer.Option(help="The method that gives words their weights (docs/searching.md).")
    ] = "masked-regression",
    run: MovedRun = None,
    cpu: Cpu = False,
) -> Explanation:
    """Show what the score of a picture for a description does without each of its phrases.

    With --json, each word stands by itself, and a reranker's attention beside it.
    """
    from limner.inference.word_effects import METHODS, within_noise
    from limner.search.store import open_store

    if method not in METHODS:
        raise SettingsError(f"--method: expected {', '.join(METHODS)}, got {method[:40]!r}")

    engine = open_store(store, run=run, device=device(cpu)).engine
    found = engine.explain(text, _key(engine, picture), cast(WordMethodName, method))
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
    from limner.store.entry import key_of

    try:
        # a key first: 32 hex digits are hardly a file's name
        for key in (name, key_of(os.path.abspath(name))):  # noqa: PTH100 - resolve() would follow links
            if engine.files.entry(key) is not None:
                return key
    except UnicodeEncodeError:  # bytes that are no text, which no picture of a store is named by
        name = ascii(name)
    raise DataError(f"{name}: the store holds no picture of this path or key; see `limner store list`")


def _print(answer: Answer, store: object) -> None:
    for hit in answer.hits:
        out.print(_line(hit))
    if not answer.total:
        err.print(f"{store}: the store is empty")
    elif not answer.matching:
        err.print(f"{store}: no picture meets the conditions")
    # None where the store's model has no calibration: nothing is claimed then
    elif answer.good is False:
        err.print(f"no good match: none has a probability of {answer.threshold:.0%} or more")


def _say_unknown(words: Sequence[str]) -> None:
    if words:
        err.print(f"the model does not know, and left out: {', '.join(words)}")


def _named(engine: "Engine", keys: Sequence[str]) -> list[str]:
    """The paths of pictures; a key where it was deleted meanwhile."""
    return [str(entry.path) if (entry := engine.files.entry(key)) is not None else key for key in keys]


def _known_fields(engine: "Engine", query: "SearchRequest") -> str:
    """A hint: the fields that conditions can use, beside the ones that were not found."""
    from limner.store.metadata_index import OWN

    known = [field.name for field in engine.fields()]
    unknown = [condition.name for condition in query.conditions if condition.name not in (*known, *OWN)]
    missing = f"none has {', '.join(map(repr, unknown))}; " if unknown else ""
    return f"{missing}conditions can ask for {', '.join((*OWN, *known))}"


def _sentences(engine: "Engine", query: "SearchRequest", store: object) -> SentencesAnswer:
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
    if hit.group is not None and hit.group > 1:
        parts.append(f"and {hit.group - 1} more")
    return "  ".join(parts)


def _draw(answer: Answer, query: "SearchRequest", truth: str | None, sheet: Path) -> None:
    from limner.search.contact_sheet import contact_sheet

    # a sheet's heading is the text where a text and a picture were searched by together
    heading = query.text or query.image or f"like {query.like}"
    assert isinstance(heading, str | Path)
    try:
        contact_sheet(answer.hits, query=heading, truth=truth).save(sheet)
    # Pillow knows formats by the file's ending, and calls an unknown one a ValueError
    except (OSError, ValueError) as error:
        raise SettingsError(f"{sheet}: the sheet cannot be saved ({error}); try a name in .jpg") from None
    err.print(f"drawn to {sheet}")
