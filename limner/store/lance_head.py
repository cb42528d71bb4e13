"""`store.json` of a store in LanceDB's tables: texts, and the versions that count. See `limner.store.lance_rows`."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from limner.durable import opened, sealed
from limner.errors import StoreError
from limner.store.lance_tables import KEYS, taken_over, told
from limner.store.path import StorePath, read_text
from limner.store.sound import damaged

FILE = "store.json"
"""Name of the object that makes a folder a store."""


class Kept(NamedTuple):
    """A table as `store.json` has it; `deleted`: files hold rows that were deleted since the last `scrub`."""

    version: int = 0
    commits: int = 0
    rows: int = 0
    total: int = 0
    deleted: bool = False


class Head(NamedTuple):
    """The content of `store.json`; `number`: the last that a row was given; `tag`: the storage's name of all this."""

    texts: dict[str, str]
    tables: dict[str, Kept]
    number: int = 0
    changed: float | None = None
    tag: str | None = None


def read_head(folder: StorePath, *, tagged: bool) -> Head:
    """Read the state of a store; `tagged` to put another. Raises `StoreError`."""
    path: Any = folder / FILE
    with told(folder):
        try:
            # the tag first: if the content changes before it is read, the put on the condition of this tag fails
            remote = tagged and not isinstance(path, Path)
            tag = path.fs.info(path.path, refresh=True).get("ETag") if remote else None
            text = read_text(path)
        except FileNotFoundError:
            raise StoreError(f"{folder}: no such store; build one with `limner index`", "missing") from None
    try:
        values = json.loads(text)
        if isinstance(values, dict) and "texts" not in values:
            raise StoreError(f"{folder}: a store of an earlier limner; index into a new folder")
        values = opened(values)
        tables = {name: Kept(*values["tables"][name]) for name in KEYS}
        return Head(values["texts"], tables, values["number"], values["changed"], tag)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise damaged(folder, f"{FILE} has changed since it was written") from None


def put_head(folder: StorePath, head: Head, *, new: bool = False) -> None:
    """Write the state, unless another process has done so since it was read."""
    path: Any = folder / FILE
    text = sealed({name: value for name, value in head._asdict().items() if name != "tag"})
    with told(folder, "written"):
        if isinstance(path, Path):
            partial = path.with_name(f".{FILE}.partial")
            partial.write_text(text)
            partial.replace(path)
            return
        condition = {"mode": "create"} if new else {} if head.tag is None else {"IfMatch": head.tag}
        try:
            path.fs.pipe_file(path.path, text.encode(), **condition)
        except OSError:
            # the first try, of which the answer was lost, is in the way of the second one
            if not new and read_text(path) == text:
                return
            # what a storage says of a condition that is not met differs
            if new or head.tag == path.fs.info(path.path, refresh=True).get("ETag"):
                raise
            raise taken_over(folder) from None
