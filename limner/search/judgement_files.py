"""Judged searches as files: CSV, JSON, TREC's qrels with the queries that belong to them, and a zip of all of it."""

import csv
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any

from limner.errors import DataError
from limner.judgements import Judgements
from limner.wire import Item

_COLUMNS = (
    "query",
    "text",
    "like",
    "error",
    "rank",
    "id",
    "name",
    "path",
    "identity",
    "taken",
    "score",
    "probability",
    "mark",
    "note",
)

# a spreadsheet takes a cell that begins with a sign, half or full width, for a formula, and runs it: CSV of clients'
# notes and names would be code. It may drop blanks in front, and where lists are written with semicolons it begins a
# cell behind each of them, and a row behind each line break, in quotes or not
_SIGNS = "=+@＝＋＠－-"
_FORMULA = re.compile(rf"^(?=[\s;]*[{_SIGNS}]|[\t\r\n])|(?<=[;\t\r\n])(?=[{_SIGNS}])")

_UNSAFE = re.compile(r"^\.+|[^\w .,()+-]")
"""Signs that a name in a zip has not: those of paths, which lead elsewhere, and those that a system does not allow."""

_RELEVANCE = {"right": 1, "wrong": 0}
"""TREC's relevance of a mark; 0 says "looked at and not relevant", and "maybe" says nothing."""


def query_name(text: str | None, like: str | None, *, picture: bool = False) -> str:
    """Name a search by what it asks for, so that exports of several days can be joined.

    >>> query_name("a red coat", None) == query_name(" a  red coat ", None)
    True
    """
    asked = [None if text is None else " ".join(text.split()), like, picture]
    return f"q-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]}"


def as_json(judged: Judgements) -> bytes:
    """Write all of it as JSON, in the form that `limner.judgements.Judgements` describes."""
    return judged.model_dump_json(indent=2).encode() + b"\n"


def as_csv(judged: Judgements) -> bytes:
    """Write a row a picture, with its search before it and the provenance behind it; a search without one has a row.

    A text that a spreadsheet would take for a formula, or a part of one behind a semicolon or line break, gets an
    apostrophe in front.
    """
    origin = judged.provenance
    told = {
        "exported": origin.exported.isoformat(),
        "who": origin.who,
        "store": origin.store,
        "store_version": origin.version,
        "model": origin.model.fingerprint,
    }
    pictures = [one for search in judged.searches for one in search.pictures]
    names = sorted({name for one in pictures for name in one.metadata})
    shown = [name for name in _COLUMNS if name != "path" or any(one.path is not None for one in pictures)]
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow([*shown, *(cell(f"metadata.{name}") for name in names), *told])
    for search in judged.searches:
        for one in search.pictures or [None]:
            known = {
                **(one.model_dump(mode="json") if one else {}),
                **search.model_dump(include={"query", "text", "like", "error"}),
            }
            facts = [cell(one.metadata.get(name)) if one else None for name in names]
            table.writerow([*(cell(known.get(name)) for name in shown), *facts, *map(cell, told.values())])
    # with a mark of its coding, without which Excel reads UTF-8 as the system's own
    return text.getvalue().encode("utf-8-sig")


def as_qrels(judged: Judgements) -> bytes:
    """Write TREC's qrels, `query 0 item relevance`: 1 for right and 0 for wrong, of searches by a text alone.

    Queries are named as in `as_queries`, and pictures by their keys. Raises `DataError` if nothing was marked right,
    since no measure is defined then, and for a picture that is marked both right and wrong under one text.
    """
    lines: dict[tuple[str, str], int] = {}
    for search in judged.searches:
        # a picture cannot be asked again from a file of texts, and a query without an answer would count as missed
        if search.text is None or search.like is not None or search.picture:
            continue
        for one in search.pictures:
            if one.mark in _RELEVANCE:
                relevance = _RELEVANCE[one.mark]
                if lines.setdefault((search.query, one.id), relevance) != relevance:
                    raise DataError(f"{one.name} is marked both right and wrong for {search.text[:60]!r}")
    if 1 not in lines.values():
        raise DataError("qrels need a picture that is marked right in a search by a text")
    return "".join(f"{query} 0 {key} {relevance}\n" for (query, key), relevance in lines.items()).encode()


def as_queries(judged: Judgements) -> bytes:
    """Write the texts of the searches for `limner search STORE --queries FILE`: a name, a tab and a text a line."""
    texts = {
        search.query: " ".join(search.text.split())
        for search in judged.searches
        if search.text is not None and search.like is None and not search.picture
    }
    return "".join(f"{name}\t{text}\n" for name, text in texts.items()).encode()


def file_name(picture: Item, ending: str, taken: Collection[str]) -> str:
    """The name of a picture's file in a zip: its own where its path is told, else its key."""
    if picture.path is None:
        return f"{picture.id}{ending}"
    # an upload's name is what a client wrote; and on some systems names end at a dot, or differ not by case
    stem = _UNSAFE.sub("_", PurePath(picture.name).stem)
    folded = {name.casefold() for name in taken}
    return f"{stem}-{picture.id}{ending}" if f"{stem}{ending}".casefold() in folded else f"{stem}{ending}"


def as_zip(judged: Judgements, pictures: Mapping[str, bytes], sheets: Mapping[str, bytes]) -> bytes:
    """Pack all of it: the files above, a contact sheet a search, and the pictures under `pictures/`.

    `pictures` are contents of files, `sheets` JPEGs, by name.
    """
    file = io.BytesIO()
    # stored and not deflated: pictures are compressed already, and the rest is small
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("judgements.json", as_json(judged))
        packed.writestr("judgements.csv", as_csv(judged))
        packed.writestr("queries.tsv", as_queries(judged))
        try:
            packed.writestr("qrels.txt", as_qrels(judged))
        except DataError as error:
            # it says why there are none, in the place where somebody looks for them
            packed.writestr("qrels-missing.txt", f"{error}\n")
        for name, sheet in sheets.items():
            packed.writestr(f"{name}.jpg", sheet)
        for name, content in pictures.items():
            packed.writestr(f"pictures/{name}", content)
    return file.getvalue()


def cell(value: Any) -> Any:
    """Make a value fit for a cell of CSV: lists as JSON, and no text that a spreadsheet would run.

    >>> cell("=1+1"), cell("a;=1+1"), cell(-0.5), cell(["a"])
    ("'=1+1", "a;'=1+1", -0.5, '["a"]')
    """
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _FORMULA.sub("'", text)
