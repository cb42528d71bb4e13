"""Many queries in one process: `limner search STORE --queries FILE`, as JSON Lines, as CSV or as a TREC run.

A process takes four seconds to start and a query some milliseconds, so that a thousand queries one by one would take
an hour.
"""

import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from limner.cli.console import err, out
from limner.cli.contract import emit
from limner.documented import Result
from limner.errors import DataError, LimnerError, SettingsError
from limner.one_line import one_line
from limner.text_files import text_lines
from limner.wire import Answer

if TYPE_CHECKING:
    import numpy as np

    from limner.requests import SearchRequest
    from limner.search.engine import Engine

# a text takes 4.5 ms in a batch of 64 and 30 ms alone (docs/log/2026-11-22.md)
_TOGETHER = 64
"""Queries of a file that are encoded together."""


_OF_HIT = ("rank", "id", "path", "identity", "score", "confidence", "probability")
_COLUMNS = ("query", "text", "good", "error", *_OF_HIT)
"""Columns of `--format csv`."""


class QueryAnswer(Result):
    """One line of `limner search --queries`."""

    query: str
    """Its name in the file, or its line number."""
    text: str
    """The query; "" for a vector."""
    answer: Answer | None
    """The answer; null if `error` says why there is none."""
    error: str | None
    """The error, e.g. that the model knows no word of it."""


@dataclass(frozen=True)
class NamedText:
    """A line of the file: the query and its name."""

    name: str
    text: str


def read_queries(file: str) -> Iterator[NamedText]:
    """The queries of a file, or of stdin for "-": one a line, a text or NAME, a tab and a text.

    Without a name the line's number is one; empty lines are skipped. Raises `SettingsError` for a file that is not
    there and `DataError` for a name that stands twice and for what is no UTF-8.
    """
    if file == "-":
        yield from _named(sys.stdin, "stdin")
        return
    path = Path(file)
    if not path.is_file():
        raise SettingsError(f"--queries {file}: no such file; give one query a line, or - for stdin")
    # line by line, so that a file may be larger than memory and answers come at once
    yield from _named(text_lines(path), file)


def _named(lines: Any, source: str) -> Iterator[NamedText]:
    # programs that read runs would join two queries of one name
    seen: set[str] = set()
    try:
        for number, line in enumerate(lines, start=1):
            # only the line end is stripped: a tab separates name and text
            # stdin may begin with a mark of the encoding, too
            name, tab, text = line.removeprefix("\ufeff").strip("\r\n").partition("\t")
            query = NamedText(name.strip(), text.strip()) if tab else NamedText(str(number), name.strip())
            if not query.text:
                continue
            if query.name in seen:
                raise DataError(f"{source}: line {number}: the name {query.name[:40]!r} stands there twice")
            seen.add(query.name)
            yield query
    # of stdin, in the middle of it: the answers before it stay printed
    except UnicodeDecodeError:
        raise DataError(f"{source}: not UTF-8 text; save it as UTF-8") from None


def answer_queries(
    engine: "Engine",
    query: "SearchRequest",
    queries: "str | Sequence[tuple[str, np.ndarray]]",
    form: str,
    *,
    by_key: bool = False,
) -> None:
    """Print the answer to each query of a file, or to each named vector, which differ from `query` by it.

    A TREC run names pictures by their path, or `by_key`. Ends with exit code 1 when one could not be answered, e.g. for
    want of a word that the model knows; the others are.
    """
    if isinstance(queries, str):
        asked = ((named, query.replace(text=named.text)) for named in read_queries(queries))
    else:
        asked = ((NamedText(name, ""), query.replace(vector=vector)) for name, vector in queries)
    # who writes a line to stdin and waits for its answer must not wait for 63 other lines
    together = 1 if isinstance(queries, str) and queries == "-" else _TOGETHER
    failed = 0
    if form == "csv":
        _print_row(_COLUMNS)
    while batch := list(islice(asked, together)):
        found = engine.answers([one for _, one in batch])
        for (named, _), answer in zip(batch, found, strict=True):
            if isinstance(answer, Exception):
                # a bug ends all, with its stack trace; a query that cannot be answered does not
                if not isinstance(answer, LimnerError):
                    raise answer
                failed += 1
                err.print(f"{named.name}: {answer}")
            _print(named, answer, form, by_key=by_key)
        # into a pipe Python writes by blocks of kilobytes, and a reader would wait for the next queries
        sys.stdout.flush()
    if failed:
        raise typer.Exit(1)


def _print(query: NamedText, found: Any, form: str, *, by_key: bool) -> None:
    error = str(found) if isinstance(found, Exception) else None
    answer = None if error is not None else found
    if form == "jsonl":
        emit(QueryAnswer(query=query.name, text=query.text, answer=answer, error=error), lines=True)
    elif form == "csv":
        # a query that cannot be answered keeps its line, so that each is seen
        for hit in answer.hits if answer is not None and answer.hits else [None]:
            good = None if answer is None else answer.good
            known = [None] * len(_OF_HIT) if hit is None else [getattr(hit, name) for name in _OF_HIT]
            _print_row([query.name, query.text, good, error, *known])
    # a run has no place for an error: a query that is missing counts as one without hits
    elif answer is not None:
        # who judges files knows nothing of copies, so each has its line
        items = [
            hit.id if by_key else _field(str(path))
            for hit in answer.hits
            for path in ((hit.path,) if by_key else (hit.path, *hit.copies))
        ]
        first = answer.hits[0].rank if items else 1
        for rank, item in enumerate(items, start=first):
            # falling whole numbers in place of cosines: other programs go by the score, some in single precision, and
            # would break near-ties their own way
            _echo(f"{_field(query.name)} Q0 {item} {rank} {len(items) + 1 - rank} limner")


def _print_row(values: Sequence[Any]) -> None:
    from limner.search.judgement_files import cell

    line = io.StringIO()
    texts = (str(one) if isinstance(one, bool | Path) else one for one in values)
    csv.writer(line, lineterminator="").writerow([cell(one) for one in texts])
    _echo(line.getvalue())


def _echo(line: str) -> None:
    # exact for a program that reads it; a terminal shows it to a person
    typer.echo(one_line(line) if out.is_terminal else line)


def _field(name: str) -> str:
    """A name in a file whose fields are parted by blanks; with the percent sign written so too, names stay apart."""
    return re.sub(r"[\s%]", lambda found: quote(found[0]), name)
