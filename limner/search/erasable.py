"""Which images and sentences of a store an erasure is about: by key, path, folder, identity and conditions."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Bool

from limner.search.conditions import Condition
from limner.search.entry import FIELDS, StoredImage, keys_of
from limner.search.metadata_index import MetadataIndex
from limner.search.store_files import StoreFiles
from limner.wire import Where, where_strings


@dataclass(frozen=True)
class Erasable:
    """The images and sentences that an erasure is about.

    - `images`: key and facts of each image, in the order of their paths; `sentences`: keys of sentences.
    - `named`: keys, paths and identities that were asked for, whether the store holds such images or not.
    - `unknown`: the keys and paths among them of which it holds nothing.
    """

    images: list[StoredImage]
    sentences: list[str]
    named: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """Keys of the images."""
        return [image.id for image in self.images]


def erasable(
    files: StoreFiles,
    ids: str | Iterable[str] = (),
    *,
    identity: str | None = None,
    paths: str | Path | Iterable[str | Path] = (),
    where: Where = (),
) -> Erasable:
    """Find what `limner.search.erase.erase` would erase with these arguments."""
    return files.read(lambda: chosen_by(files, ids, identity, paths, where))


def chosen_by(
    files: StoreFiles,
    ids: str | Iterable[str],
    identity: str | None,
    paths: str | Path | Iterable[str | Path],
    where: Where,
) -> Erasable:
    """Find what `erasable` finds, for a writer, whose reading nobody disturbs."""
    keys = {ids} if isinstance(ids, str) else set(ids)
    given = [paths] if isinstance(paths, str | Path) else paths
    wanted = [os.path.abspath(path) for path in given]  # noqa: PTH100 - as indexed: resolve() would follow links
    rows = files.table.all(["id", *FIELDS])
    named = np.isin(np.array(rows["id"].to_pylist(), object), list(keys)) | _below(rows["path"], wanted)
    conditions = [Condition.parse(one) for one in where_strings(where)]
    if identity is not None or conditions:
        named |= _meeting(rows, identity, conditions)
    images = [StoredImage.from_row(row) for row in rows.filter(pa.array(named)).to_pylist()]
    images.sort(key=lambda image: image.path)
    erased = {image.path for image in images}
    sentences = files.sentences.all(["id", "path"])
    # also those of a named path without an image
    theirs = _below(sentences["path"], wanted) | np.array(
        [path in erased for path in sentences["path"].to_pylist()], bool
    )
    asked = [("id", key) for key in sorted(keys)]
    asked += [("path", path) for path in wanted if keys_of([path])]
    asked += [("id", key) for key in keys_of(wanted)]
    if identity is not None:
        asked.append(("identity", identity))
    unknown = sorted(keys.difference(rows["id"].to_pylist()))
    unknown += _without_rows(wanted, [*rows["path"].to_pylist(), *sentences["path"].to_pylist()])
    return Erasable(
        images, sentences["id"].filter(pa.array(theirs)).to_pylist(), tuple(asked), tuple(unknown)
    )


def _without_rows(wanted: list[str], paths: list[str | None]) -> list[str]:
    """The wanted paths at and below which no row is."""
    held = set(paths)
    some = [path for path in wanted if path not in held]
    # folders only: of many wanted files each is looked up, not each compared with all rows
    parents: set[str] = set()
    for path in held if some else ():
        while path and (path := path.rpartition(os.sep)[0]) not in parents:
            parents.add(path)
    return [path for path in some if path.rstrip(os.sep) not in parents]


def _below(column: pa.ChunkedArray, wanted: list[str]) -> Bool[np.ndarray, " rows"]:
    """True for the paths that are wanted, or lie below one of them."""
    exact = set(wanted)
    # with the separator: below "/a/b" lies "/a/b/c" and not "/a/bc"
    folders = tuple(path.rstrip(os.sep) + os.sep for path in wanted)
    return np.array(
        [path is not None and (path in exact or path.startswith(folders)) for path in column.to_pylist()],
        bool,
    )


def _meeting(rows: pa.Table, identity: str | None, conditions: list[Condition]) -> Bool[np.ndarray, " rows"]:
    met = np.ones(len(rows), bool)
    if identity is not None:
        met &= np.array([one == identity for one in rows["identity"].to_pylist()], bool)
    index = MetadataIndex(rows)
    for condition in conditions:
        met &= index.meeting(condition)
    return met
