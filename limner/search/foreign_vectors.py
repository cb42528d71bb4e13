"""Embeddings that another program has computed: a store of them, which is searched without the model.

Such a store names a model in place of a run. It is searched by an image of the store or by embeddings of queries, and
`limner reindex` encodes its images with a model of limner into a new store. The embeddings are in a file that
`limner store export` writes (`limner.search.vector_files`), or in an `.npz` file with the names that `limner score`
reads:

images (n, d)         embeddings, a row each, compared by cosine
image_names (n,)      their files, absolute or relative to the folder of the `.npz`
image_groups (n,)     their identities, integers or text, where there are any
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from jaxtyping import Float

from limner.errors import DataError, ImageError, LimnerError, SettingsError
from limner.evaluation.array_files import checked_arrays, unit_rows
from limner.search.image_look import Note, Seen, Task, is_another, look_at, told_of
from limner.search.index import spelled_as, told_by
from limner.search.places import unused_key
from limner.search.vector_files import reader_of
from limner.store.entry import StoredImage, keys_of
from limner.store.files import StoreFiles, has_store
from limner.store.path import StorePath
from limner.store_reports import IndexReport
from limner.types import ImageSource, Pixels, Reranker

_SCHEME = "vectors:"
"""Prefix of the model's name where a manifest names a run."""

_TOGETHER = 256
"""Images that are looked at before their rows are written."""


class ForeignModel:
    """The model of such a store: a name. It encodes nothing (`SettingsError`); see `limner.types.Encoder`."""

    reranker: Reranker | None = None
    rerank: int | Literal["all"] = 0

    def __init__(self, name: str, dim: int) -> None:
        self.name, self.dim = name, dim

    @property
    def fingerprint(self) -> str:
        """Digest of the name: vectors of another model have another one."""
        return hashlib.sha256(f"{_SCHEME}{self.name}".encode()).hexdigest()

    def prepare_image(self, source: ImageSource) -> Pixels:
        """Raise `ImageError`: whoever adds or repairs images is told which ones have no vector."""
        raise ImageError(f"its vector is one of {self.name!a}; add it with `limner index --vectors`")

    def encode_pixels(self, pixels: np.ndarray) -> Float[np.ndarray, "batch dim"]:
        """Raise `SettingsError`: vectors of another model come from that model, which limner has not."""
        self._refuse()

    def encode_images(self, images: ImageSource | Iterable[ImageSource]) -> Float[np.ndarray, "batch dim"]:
        """Raise `SettingsError`, as `encode_pixels` does."""
        self._refuse()

    def encode_texts(
        self, sentences: str | Iterable[str], *, check: bool = True
    ) -> Float[np.ndarray, "batch dim"]:
        """Raise `SettingsError`, as `encode_pixels` does."""
        self._refuse()

    def encode_queries(self, sentences: str | Iterable[str]) -> Float[np.ndarray, "batch dim"]:
        """Raise `SettingsError`, as `encode_pixels` does."""
        self._refuse()

    def check_query(self, sentence: str) -> None:
        """Raise `SettingsError`, as `encode_pixels` does."""
        self._refuse()

    def known_words(self, sentence: str) -> list[str]:
        """None."""
        return []

    def unknown_words(self, sentence: str) -> list[str]:
        """None, since no sentence is read."""
        return []

    def _refuse(self) -> NoReturn:
        raise SettingsError(
            f"the store holds vectors of {self.name!a}, a model that limner has not; search by a picture of the store "
            "(--like) or by vectors (--vectors), or make a store of a model with `limner reindex`"
        )


def foreign_model(files: StoreFiles) -> ForeignModel | None:
    """The model of a store of foreign vectors; None for any other store."""
    run = files.manifest.run
    return ForeignModel(run.removeprefix(_SCHEME), files.dim) if run.startswith(_SCHEME) else None


@dataclass(frozen=True, eq=False)
class ForeignVectors:
    """The embeddings of image files, at unit length: `vectors[i]` is that of `paths[i]`, `facts[i]` what is known.

    `keys[i]` is the key that a store had given to it.
    """

    paths: tuple[str, ...]
    vectors: Float[np.ndarray, "images dim"]
    facts: tuple[Mapping[str, Any], ...] | None = None
    keys: tuple[str | None, ...] = ()


def read_vectors(path: Path) -> ForeignVectors:
    """Read the embeddings of images, by the name of the file. Raises `DataError`, which names the array or column."""
    if (read := reader_of(path)) is not None:
        rows = read(path)
        paths = tuple(os.path.abspath(path.parent / name) for name in rows.paths)  # noqa: PTH100
        _expect_once(path, "path", paths)
        return ForeignVectors(paths, _unit(rows.vectors, f"{path}: 'vector'"), rows.facts, rows.keys)
    arrays = checked_arrays(path, ("images", "image_names", "image_groups"))
    for needed in ("images", "image_names"):
        if needed not in arrays:
            raise DataError(f"{path}: lacks the array '{needed}'; {_FORM}")
    names, count = arrays["image_names"], len(arrays["images"])
    for name, array in arrays.items():
        if len(array) != count:
            raise DataError(f"{path}: '{name}' has {len(array)} rows, 'images' {count}")
    paths = tuple(os.path.abspath(path.parent / name) for name in names)  # noqa: PTH100 - as pictures are indexed
    _expect_once(path, "image_names", paths)
    groups = arrays.get("image_groups")
    facts = None if groups is None else tuple({"identity": str(group)} for group in groups)
    return ForeignVectors(paths, _unit(arrays["images"], f"{path}: 'images'"), facts)


def _unit(rows: Float[np.ndarray, "images dim"], name: str) -> Float[np.ndarray, "images dim"]:
    """Rows at unit length; those in 32 bits that have it stay as they are, bit for bit."""
    found = unit_rows(rows, name)
    if rows.dtype == np.float32:
        # a second division would change last bits, and a store that was exported would come back as another one
        is_unit = np.abs(np.linalg.norm(rows, axis=1) - 1) < _ROUNDING
        found[is_unit] = rows[is_unit]
    return found


_ROUNDING = 1e-5
"""Largest distance of a row's length from 1 after a division in 32 bits."""


_FORM = "expected 'images' (n, d), a row an image, and 'image_names' (n,), their files"


def read_query_vectors(path: Path) -> list[tuple[str, Float[np.ndarray, " dim"]]]:
    """Read named queries: `sentences` (m, d) at unit length, and `sentence_names` or their numbers from 1.

    Raises `DataError` as `read_vectors` does.
    """
    arrays = checked_arrays(path, ("sentences", "sentence_names"))
    if "sentences" not in arrays:
        raise DataError(f"{path}: lacks the array 'sentences'; expected (m, d), a row a query")
    vectors = unit_rows(arrays["sentences"], f"{path}: 'sentences'")
    names = arrays.get("sentence_names") or [str(place + 1) for place in range(len(vectors))]
    if len(names) != len(vectors):
        raise DataError(f"{path}: 'sentence_names' has {len(names)} rows, 'sentences' {len(vectors)}")
    # programs that read runs would join two queries of one name
    _expect_once(path, "sentence_names", list(map(repr, names)))
    return list(zip(names, vectors, strict=True))


def _expect_once(path: Path, array: str, names: Sequence[str]) -> None:
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path}: '{array}': {name} stands there twice")


def store_of_vectors(name: str, dim: int, folder: StorePath) -> StoreFiles:
    """Open the store of a foreign model's vectors, or make it.

    Raises `StoreError` for a store of another model or width, `SettingsError` for an empty name.
    """
    if not name.strip():
        raise SettingsError("--vectors: name the model that made them, in place of a run")
    model = ForeignModel(name, dim)
    if not has_store(folder):
        return StoreFiles.create(folder, fingerprint=model.fingerprint, dim=dim, run=f"{_SCHEME}{name}")
    files = StoreFiles.open(folder)
    files.check_model(model.fingerprint, dim)
    return files


def index_vectors(
    files: StoreFiles,
    given: ForeignVectors,
    *,
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Add images by the embeddings that are given for them; their files are read for thumbnails and digests.

    An image that is there keeps its row where neither its file, its facts nor its vector has changed. `metadata`,
    `workers` and `progress` are those of `limner.search.index.index_pictures`; facts of the file with the vectors stand
    where the metadata name none. Raises `StoreError`, and `DataError` for metadata that JSON cannot hold.
    """
    told = told_by(_with_facts(given, spelled_as(given.paths, metadata or {})))
    counts, skipped = {"added": 0, "updated": 0, "unchanged": 0, "forgotten": 0}, list[tuple[str, str]]()
    vectors = dict(zip(given.paths, given.vectors, strict=True))
    threads = ThreadPoolExecutor(workers or os.cpu_count() or 1)
    with threads, files.changing() as writer:
        stored = files.entries(given.paths)
        with files.rows.reading() as reading:
            taken = {*reading.digests()}
        keys = {path: stored[path].id for path in vectors if path in stored and stored[path].path == path}
        for path, key in zip_longest(given.paths, given.keys):
            if path not in keys and keys_of([path]):
                keys[path] = unused_key(path, key, taken)
        known = _with_same_vector(files, stored, vectors)

        def look(path: str) -> Seen | str:
            before = stored.get(path)
            note = Note() if before is None else told_of(before)
            if path in told:
                note = told[path].over(note)
            return look_at(Task(path, known.get(path), note, keys.get(path)), _nothing)

        try:
            for start in range(0, len(given.paths), _TOGETHER):
                paths = given.paths[start : start + _TOGETHER]
                fresh, kept = list[Seen](), list[StoredImage]()
                for path, seen in zip(paths, threads.map(look, paths), strict=True):
                    if isinstance(seen, str):
                        skipped.append((path, seen))
                        continue
                    outcome = seen.outcome if seen.pixels is None or path not in stored else "updated"
                    counts[outcome] += 1
                    if seen.pixels is not None:
                        fresh.append(seen)
                    elif seen.write:
                        kept.append(seen.entry)
                if fresh:
                    counts["forgotten"] += writer.delete_sentences(
                        paths=[
                            seen.entry.path
                            for seen in fresh
                            if is_another(stored.get(seen.entry.path), seen.entry)
                        ]
                    )
                    rows = np.stack([vectors[seen.entry.path] for seen in fresh]).astype(np.float32)
                    writer.add([seen.entry for seen in fresh], rows, None, [seen.thumbnail for seen in fresh])
                if kept:
                    writer.update(kept)
                if writer.due:
                    writer.commit()
                if progress:
                    progress(start + len(paths), len(given.paths))
        except BaseException:
            # what is whole stays, as `index_pictures` has it
            with suppress(LimnerError):
                writer.commit()
            raise
    unused = tuple(sorted((metadata or {}).keys() - set(given.paths)))
    return IndexReport(**counts, skipped=tuple(skipped), unused_metadata=unused)


def _with_facts(
    given: ForeignVectors, metadata: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    if given.facts is None:
        return metadata
    pairs = zip(given.paths, given.facts, strict=True)
    return {**metadata, **{path: {**facts, **metadata.get(path, {})} for path, facts in pairs}}


def _with_same_vector(
    files: StoreFiles, stored: Mapping[str, StoredImage], vectors: Mapping[str, np.ndarray]
) -> dict[str, StoredImage]:
    """The stored images whose vector is the one that is given."""
    # of many paths all rows are read, those of others, too
    entries = [entry for entry in stored.values() if entry.path in vectors]
    if not entries:
        return {}
    snapshot = files.snapshot()
    own = snapshot.vectors[[snapshot.places[entry.id] for entry in entries]]
    return {
        entry.path: entry
        for entry, row in zip(entries, own, strict=True)
        if np.array_equal(row, vectors[entry.path].astype(np.float32))
    }


def _nothing(source: ImageSource) -> Pixels:
    # no network reads them; `look_at` decodes the file for its thumbnail
    return np.zeros((1, 1, 3), np.uint8)
