"""`limner search` and `limner explain`: a store asked from the command line."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, cast

import typer

from limner.cli.console import err, out
from limner.cli.options import Cpu, Rerank, StoreFolder, device, first
from limner.data.capture_time import local_time
from limner.errors import DataError, SettingsError
from limner.search.conditions import Condition
from limner.search.contact_sheet import contact_sheet
from limner.search.engine import Engine
from limner.search.entry import key_of
from limner.search.metadata_index import OWN
from limner.search.query import Query
from limner.search.store import open_store
from limner.search.store_path import StorePath
from limner.wire import Answer, FoundSentence, Grouping, Hit

_BAR = 24  # characters of the longest bar


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
        float, typer.Option(help="Of the text beside a picture, in [0, 1]; the picture has the rest.")
    ] = 0.5,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only pictures that meet this, e.g. camera=3; may be repeated (docs/concepts.md)."),
    ] = None,
    after: Annotated[str | None, typer.Option(help="Only pictures taken at this ISO time or later.")] = None,
    before: Annotated[str | None, typer.Option(help="Only pictures taken before this ISO time.")] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Only the best of each 'identity', or of pictures that are 'near' equal."),
    ] = None,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Find sentences of the store in place of pictures.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
    sheet: Annotated[Path | None, typer.Option(help="Draw the ranked pictures into this file.")] = None,
    truth: Annotated[
        str | None, typer.Option(help="The identity that is right: frames its pictures green, others red.")
    ] = None,
    rerank: Rerank = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --json: where the matcher looked, word by word.")
    ] = False,
    run: Annotated[Path | None, typer.Option(help="Run folder of the model, if it has moved.")] = None,
    cpu: Cpu = False,
) -> None:
    """Find the pictures of a store that fit a description, that are like a picture, or both."""
    if explain and not as_json:
        raise SettingsError(
            "--explain: attention comes with --json; `limner explain` says what each word adds"
        )
    if truth is not None and sheet is None:
        raise SettingsError("--truth: frames the pictures of a sheet; name one with --sheet")
    if group not in (None, "identity", "near"):
        raise SettingsError(f"--group: expected 'identity' or 'near', got {group!r}")
    query = Query(
        text=text,
        image=image,
        like=like,
        text_weight=text_weight,
        k=k,
        where=tuple(map(Condition.parse, where or [])),
        after=_time("--after", after),
        before=_time("--before", before),
        group=cast(Grouping | None, group),
        rerank=first(rerank),
        explain=explain,
    )
    engine = open_store(store, run=run, device=device(cpu)).engine
    if like is not None:
        query = replace(query, like=_key(engine, like))
    if sentences:
        if where or after or before or group or rerank or explain or sheet or truth:
            raise SettingsError("--sentences: goes with a text, --image, --like, -k and --json only")
        _print_sentences(engine.sentences(query), as_json, store)
        return
    answer = engine.answer(query)
    if as_json:
        typer.echo(json.dumps(answer.model_dump(mode="json"), indent=2))
    else:
        _print(answer, store)
        _say_unknown(answer.unknown)
        if not answer.matching and answer.total:
            err.print(_known_fields(engine, query))
    if sheet is not None:
        _draw(answer, query, truth, sheet)


def explain_command(
    store: StoreFolder,
    text: Annotated[str, typer.Argument(help="The description.")],
    picture: Annotated[str, typer.Argument(help="A picture of the store: its path, or its key.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with the matcher's attention.")
    ] = False,
    run: Annotated[Path | None, typer.Option(help="Run folder of the model, if it has moved.")] = None,
    cpu: Cpu = False,
) -> None:
    """Say why a picture has its score for a description: how much the cosine falls without each word."""
    engine = open_store(store, run=run, device=device(cpu)).engine
    found = engine.explain(text, _key(engine, picture))
    if as_json:
        typer.echo(json.dumps(found.model_dump(mode="json"), indent=2))
        return
    sure = "" if found.confidence is None else f", the matcher is sure by {found.confidence:.1%}"
    out.print(f"cosine {found.score:+.3f}{sure}")
    weights = found.weights or ()
    longest, most = max(map(len, found.words), default=0), max(map(abs, weights), default=0) or 1
    for word, weight in zip(found.words, weights, strict=bool(weights)):
        bar = ("+" if weight > 0 else "-") * round(_BAR * abs(weight) / most)
        out.print(f"  {word:<{longest}}  {weight:+.3f}  {bar}")
    _say_unknown(found.unknown)
    if found.attention is not None:
        err.print(
            "with --json: where the matcher looked; `limner figure attention RUN PICTURE TEXT` draws it"
        )


def _time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return local_time(text)
    except ValueError:
        raise SettingsError(
            f"{option}: expected a time in ISO 8601, e.g. 2026-11-20 or 2026-11-20T08:15, got {text[:40]!r}"
        ) from None


def _key(engine: Engine, name: str) -> str:
    """The key of a picture that is named by its path or its key."""
    try:
        for key in (name, key_of(os.path.abspath(name))):  # noqa: PTH100 - resolve() would follow links
            if engine.files.entry(key) is not None:
                return key
    except UnicodeEncodeError:  # bytes that are no text, which no picture of a store is named by
        name = ascii(name)
    raise DataError(f"{name}: the store holds no picture of this path or key; see `limner store list`")


def _print(answer: Answer, store: StorePath) -> None:
    for hit in answer.hits:
        out.print(_line(hit))
    if not answer.total:
        err.print(f"{store}: the store is empty")
    elif not answer.matching:
        err.print(f"{store}: no picture meets the conditions")
    elif answer.good is False:
        err.print(f"no good match: none has a probability of {answer.threshold:.0%} or more")


def _say_unknown(words: Sequence[str]) -> None:
    if words:
        err.print(f"the model does not know, and left out: {', '.join(words)}")


def _known_fields(engine: Engine, query: Query) -> str:
    """What conditions could ask for, beside what they asked for in vain."""
    known = [field.name for field in engine.fields()]
    asked = [condition.name for condition in query.where if condition.name not in (*known, *OWN)]
    missing = f"none has {', '.join(map(repr, asked))}; " if asked else ""
    return f"{missing}conditions can ask for {', '.join((*OWN, *known))}"


def _print_sentences(found: Sequence[FoundSentence], as_json: bool, store: StorePath) -> None:
    if as_json:
        typer.echo(json.dumps([hit.model_dump(mode="json") for hit in found], indent=2))
        return
    for hit in found:
        of = "" if hit.path is None else f"  [{hit.path}]"
        out.print(f"{hit.rank:>3}  {hit.score:+.3f}  {hit.text}{of}")
    if not found:
        err.print(f"{store}: the store holds no sentences; add some with `limner index-sentences`")


def _line(hit: Hit) -> str:
    parts = [f"{hit.rank:>3}", f"{hit.score:+.3f}"]
    if hit.confidence is not None:
        parts.append(f"{hit.confidence:6.1%}")
    if hit.probability is not None:
        parts.append(f"p={hit.probability:.2f}")
    parts.append(str(hit.path))
    if hit.identity is not None:
        parts.append(f"[{hit.identity}]")
    if hit.group is not None and hit.group > 1:
        parts.append(f"and {hit.group - 1} more")
    return "  ".join(parts)


def _draw(answer: Answer, query: Query, truth: str | None, sheet: Path) -> None:
    asked = query.text or query.image or f"like {query.like}"
    assert isinstance(asked, str | Path)
    try:
        contact_sheet(answer.hits, query=asked, truth=truth).save(sheet)
    # Pillow knows formats by the file's ending, and calls an unknown one a ValueError
    except (OSError, ValueError) as error:
        raise SettingsError(f"{sheet}: the sheet cannot be saved ({error}); try a name in .jpg") from None
    err.print(f"drawn to {sheet}")
