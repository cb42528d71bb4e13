"""Index pictures into a store: decode in threads, encode in batches, commit each batch.

Killed at any moment, the store holds whole batches; running the same again adds the rest. A picture that is
there already is recognised by path, size and time of change without being read.
"""

import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limner.errors import DataError, ImageError, SettingsError
from limner.search.entry import Entry, to_json
from limner.search.files import find_pictures
from limner.search.store import Store
from limner.types import Encoder, Maps, Pixels

_COMPACT_AFTER = 8  # commits; each leaves a small file that every later reader opens
_KEPT_BATCH = 1024  # rows rewritten at once with the vectors that they have


@dataclass(frozen=True)
class IndexSummary:
    """What indexing did, in pictures.

    - `added`: new; `updated`: replaced because their bytes or metadata changed; `unchanged`: left as they
      were.
    - `skipped`: path and reason of each that could not be read (an older row of it stays).
    - `unused_metadata`: entries of the metadata that name none of the pictures.
    """

    added: int
    unchanged: int
    updated: int
    skipped: tuple[tuple[str, str], ...]
    unused_metadata: int = 0


@dataclass(frozen=True)
class _Note:
    """What the metadata say of a picture."""

    identity: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Seen:
    """A picture after a look at its file.

    `pixels` are None where the stored vector still holds; `write` says whether the row must be written.
    """

    entry: Entry
    outcome: Literal["added", "updated", "unchanged"]
    write: bool = True
    pixels: Pixels | None = None


def index_pictures(
    encoder: Encoder,
    store: Store,
    paths: Iterable[str | Path],
    *,
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IndexSummary:
    """Add the pictures of files and folders (see `limner.search.files`) to a store of the same model.

    `metadata` gives facts by path, "identity" among them (see `limner.search.metadata`); a picture that it
    does not name keeps what it has. `batch_size` pictures are encoded and committed at once, `workers`
    threads decode (default: one a core), and at most two batches wait decoded, which bounds the memory.
    `progress` is called with the pictures done and their total. The store is held for writing from first to last.

    Raises `StoreError` for another model's store and for one that another process writes to, `DataError` for
    paths that do not exist and metadata that JSON cannot hold, `SettingsError` for sizes below 1. A picture that
    cannot be read is skipped and listed.
    """
    workers = workers if workers is not None else os.cpu_count() or 1
    if batch_size < 1 or workers < 1:
        raise SettingsError(f"expected batch size and workers of at least 1, got {batch_size} and {workers}")
    store.check_model(encoder.fingerprint, encoder.dim)
    notes = _notes(metadata or {})
    with store.writing():
        pictures, unlisted = find_pictures(paths)
        stored = store.entries()

        def look(path: str) -> _Seen | str:
            return _look(path, stored.get(path), notes.get(path), encoder.prepare_image)

        writer = _Writer(encoder, store, batch_size)
        skipped = list(unlisted)
        with ThreadPoolExecutor(workers) as threads:
            for done, (path, seen) in enumerate(_ahead(threads, look, pictures, 2 * batch_size), start=1):
                if isinstance(seen, str):
                    skipped.append((path, seen))
                else:
                    writer.take(seen)
                if progress:
                    progress(done, len(pictures))
        writer.finish()
    unused = len(notes.keys() - set(pictures))
    return IndexSummary(**writer.counts, skipped=tuple(skipped), unused_metadata=unused)


class _Writer:
    """Gathers pictures into batches and commits them."""

    def __init__(self, encoder: Encoder, store: Store, batch_size: int) -> None:
        self.encoder, self.store, self.batch_size = encoder, store, batch_size
        self.counts = {"added": 0, "updated": 0, "unchanged": 0}
        self._commits = 0
        self._fresh: list[tuple[Entry, Pixels]] = []
        self._kept: list[Entry] = []

    def take(self, seen: _Seen) -> None:
        self.counts[seen.outcome] += 1
        if seen.pixels is not None:
            self._fresh.append((seen.entry, seen.pixels))
        elif seen.write:
            self._kept.append(seen.entry)
        if len(self._fresh) == self.batch_size:
            self._encode()
        if len(self._kept) == _KEPT_BATCH:
            self._rewrite()

    def finish(self) -> None:
        self._encode()
        self._rewrite()
        if self._commits >= _COMPACT_AFTER:
            self.store.compact()

    def _encode(self) -> None:
        if self._fresh:
            entries = [entry for entry, _ in self._fresh]
            pixels = np.stack([pixels for _, pixels in self._fresh])
            judge = self.encoder.judge if self.store.map_shape is not None else None
            maps = None if judge is None else judge.maps(pixels)
            self._add(entries, self.encoder.encode_pixels(pixels), maps)
            self._fresh.clear()

    def _rewrite(self) -> None:
        if self._kept:
            maps = None
            if self.store.map_shape is not None:
                maps = self.store.maps([entry.id for entry in self._kept])
            self._add(self._kept, self.store.vectors(self._kept), maps)
            self._kept.clear()

    def _add(self, entries: list[Entry], vectors: np.ndarray, maps: Maps | None) -> None:
        self.store.add(entries, vectors, maps)
        self._commits += 1


def _ahead(
    threads: ThreadPoolExecutor, look: Callable[[str], _Seen | str], paths: list[str], window: int
) -> Iterator[tuple[str, _Seen | str]]:
    """Results in order, at most `window` of them begun and not yet taken."""
    waiting: deque[tuple[str, Future[_Seen | str]]] = deque()
    try:
        for path in paths:
            waiting.append((path, threads.submit(look, path)))
            if len(waiting) == window:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


def _look(
    path: str, stored: Entry | None, note: _Note | None, prepare: Callable[[str], Pixels]
) -> _Seen | str:
    """What to do about one picture, or why it cannot be read."""
    try:
        path.encode()
        before = os.stat(path)  # noqa: PTH116 - beside the digest, on one name
        if not stat.S_ISREG(before.st_mode):
            return "not a regular file"
        known = note or (_Note(stored.identity, stored.metadata) if stored else _Note())
        # Time stamps change in a copy or a checkout, without the bytes.
        if stored and stored.size == before.st_size:
            if stored.mtime == before.st_mtime_ns:
                return _settled(stored, known, stored.mtime)
            if _digest(path) == stored.sha256:
                return _settled(stored, known, before.st_mtime_ns)
        # Decoded first: what is no picture is refused before all of it is read for the digest.
        pixels = prepare(path)
        digest = _digest(path)
        after = os.stat(path)  # noqa: PTH116
    except UnicodeEncodeError:
        return "its name is not valid Unicode; rename it"
    except ImageError as error:
        return str(error).removeprefix(path).removeprefix(": ")
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return "changed while it was read; index again"
    entry = Entry(path, digest, after.st_size, after.st_mtime_ns, known.identity, known.metadata)
    return _Seen(entry, "updated" if stored else "added", pixels=pixels)


def _settled(stored: Entry, note: _Note, mtime: int) -> _Seen:
    """A picture whose bytes are those that were embedded; its facts or time stamp may have changed."""
    now = replace(stored, mtime=mtime, identity=note.identity, metadata=note.metadata)
    changed = (stored.identity, to_json(stored.metadata)) != (now.identity, to_json(now.metadata))
    return _Seen(now, "updated" if changed else "unchanged", write=changed or stored.mtime != mtime)


def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _notes(metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, _Note]:
    notes = {}
    for path, values in metadata.items():
        facts = {name: value for name, value in values.items() if name != "identity"}
        identity = values.get("identity")
        try:
            to_json({"identity": identity, **facts})
        except (TypeError, ValueError, RecursionError):
            raise DataError(f"metadata of {path!a}: expected values that JSON can hold") from None
        absolute = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
        notes[absolute] = _Note(None if identity is None else str(identity), facts)
    return notes
