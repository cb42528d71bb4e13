"""Erasure: what a store holds of some images and sentences is gone from the disk, and a search of its files shows it.

`StoreFiles.delete` takes images out of search at once; pieces of their bytes may stay in the store's file until it is
written anew. An erasure deletes in one commit, which also a kill leaves whole or not made, and then has the engine
write its file without all that was ever deleted (`Rows.scrub`); the same call made again does what a kill has left.
"""

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from limner.counted import counted
from limner.durable import sync
from limner.errors import CheckpointError, StoreError, UnfinishedErasureError
from limner.store.alerts import leave_alerts
from limner.store.contents import chunks
from limner.store.entry import PictureRow, further_paths
from limner.store.erasable import Erasable, chosen_by
from limner.store.files import StoreFiles
from limner.store.folders import leave_folders
from limner.store.manifest import MODEL_FOLDER
from limner.store.path import expect_own_files, reached
from limner.store.rows import Reading
from limner.store.sound import sound
from limner.store.traces import Traces, TraceSearch, files_below
from limner.store.uploads import Uploads, has_uploads_name, other_folders
from limner.store_reports import ErasureReport, Remains, TraceCounts, as_text
from limner.wire import Where


@runtime_checkable
class Forgetting(Protocol):
    """An audit log, e.g. `limner.server.audit.ErasableLog`."""

    def forgetting(self, keys: Collection[str], texts: Collection[str]) -> AbstractContextManager[int]:
        """Remove what it tells of keys and texts, and yield the number of changed lines.

        No line is added before the block has ended.
        """

    def left(self, keys: Collection[str]) -> int:
        """Count the lines that name one of the keys."""


Progress = Callable[[str, int, int], None]
"""Is called with what is being done, how much of it is done, and of how much."""

ERASURES = "erasures"
"""Text of a store that is another one after each erasure, by which a long reading knows of one."""

_TRACED = 20_000  # rows whose traces are searched for; they take 6 KB of memory each
_TEXTS = ("description", "calibration")  # of a store: what is in them is no trace of an image
_ELSEWHERE = "erased pictures that clients have added, in a folder of uploads that was not searched"
_OWNERLESS = "sentences of pictures that the store does not hold, perhaps of these; erase them by their paths"


def erase(
    files: StoreFiles,
    ids: str | Iterable[str] = (),
    *,
    identity: str | None = None,
    paths: str | Path | Iterable[str | Path] = (),
    where: Where = (),
    uploads: str | Path | None = None,
    audit: Forgetting | None = None,
    progress: Progress | None = None,
) -> ErasureReport:
    """Erase images that are named, and those that meet all conditions, with their sentences; see the module.

    `ids` are keys of images and of sentences, and `paths` files, or folders with all below them; `identity` and `where`
    must all be met. An identity counts however its accents are written. Without any of these only what was deleted
    earlier goes. Unknown names and conditions that no image meets are reported and no error: a call that was killed is
    made again.

    `uploads`: folder of a server's uploads, of which all pictures that no row names afterwards are deleted: those of
    these images, and what deletions and killed changes have left. Files of other names are left alone.
    `audit`: an audit log, from which what it tells of these images is removed. A server that writes it looks at the
    store before each line, so that searches that began earlier add nothing of them.

    The report says in which files traces of the rows were found all the same, and how many lines of the audit log name
    them; none must be left. Raises `StoreError` while another process writes and if the disk refuses, of it
    `UnfinishedErasureError` if the rows had gone by then, `SettingsError` for a folder that no server of this store has
    had for uploads and for a file that is no audit log; the call can then be made again.
    """
    tell = progress or (lambda what, done, total: None)
    # of what lies elsewhere nothing would be removed
    expect_own_files(files.folder)
    with files.writing():
        chosen = chosen_by(files, ids, identity, paths, where)
        added = None if uploads is None else Uploads.of(uploads, files)
        traces, traced = _traces(files, chosen)
        search = traces.search()
        visible = {trace for _, trace in _in_files(files, search)}
        in_model = sum(
            name.startswith(f"{MODEL_FOLDER}/") for name, _ in _in_files(files, search, model=True)
        )
        wanted = [path for kind, path in chosen.named if kind == "path"]
        # keys say nothing of a folder: it is followed on when all of its pictures are gone by themselves
        by_name = identity is not None or bool(wanted) or bool(where)
        # before the rows go: killed in between, the same call still knows whose folders and lines these are. Servers
        # wait for the log until the rows have gone, or they would add lines of what they have found until then
        leave_folders(files, wanted, chosen.images if by_name else [])
        alerts = leave_alerts(
            files, chosen.names, {*wanted, *(path for one in chosen.images for path in one.paths)}
        )
        with _removing(chosen, added, files):
            with _forgotten(chosen, audit) as lines:
                with files.changing() as writer:
                    writer.delete(chosen.keys)
                    writer.delete_sentences(chosen.sentences)
                # while they wait: by this text they know that what they have found may be gone
                with _finishing(chosen):
                    files.rows.set_text(ERASURES, secrets.token_hex(8))
            with _finishing(chosen):
                files.rows.scrub()
                if isinstance(files.folder, Path):
                    # what is removed must not come back with a power cut
                    sync(files.folder)
                removed = [] if added is None else added.remove_leftovers(files)
        shared = traces.leave_out(_in_rows(files, search, tell))
        proof = _proof(files, added, traces, tell)
        elsewhere = _elsewhere(chosen, added)
        others = [("sentences", _OWNERLESS, chosen.ownerless), ("uploads", _ELSEWHERE, elsewhere)]
        if audit is not None:
            with reached("the audit log", "read"):
                others.append(
                    ("the audit log", "lines that name an erased picture", audit.left(_keys(chosen)))
                )
        left = (Remains(file=file, kind=kind, count=count) for file, kind, count in others if count)
        proof["found"] = (*proof["found"], *left)
        own = {Path(path).name for image in chosen.images for path in image.paths}
        return ErasureReport(
            pictures=len(chosen.images),
            sentences=len(chosen.sentences),
            left=len(files),
            uploads=sum(name in own for name in removed),
            leftovers=sum(name not in own for name in removed),
            unknown=tuple(name for name in chosen.unknown if Path(name).name not in removed),
            unmet=chosen.unmet,
            similar=chosen.similar,
            naming=chosen.naming,
            alerts=alerts,
            audit_lines=lines,
            learnt=_learnt(files, chosen),
            traced=traced,
            traces=TraceCounts(
                searched=len(traces),
                visible=len(visible & traces.kinds.keys()),
                shared=shared,
                short=traces.short,
                model=in_model,
            ),
            **proof,
        )


@contextmanager
def _removing(chosen: Erasable, added: Uploads | None, files: StoreFiles) -> Iterator[None]:
    """Have the uploads of erased images removed, also by a server that begins when this was killed."""
    with ExitStack() as held:
        if added is not None:
            with reached(added.folder):
                held.enter_context(
                    added.changing((path for image in chosen.images for path in image.paths), files)
                )
        yield


@contextmanager
def _finishing(chosen: Erasable) -> Iterator[None]:
    """Say of an error that the rows have gone before it, which the same call can no longer name."""
    try:
        yield
    except StoreError as error:
        if not (chosen.images or chosen.sentences):
            raise
        raise UnfinishedErasureError(
            f"{error}. {counted(len(chosen.images), 'pictures')} and "
            f"{counted(len(chosen.sentences), 'sentences')} are deleted, but their "
            "bytes may still be on the disk: the same call takes them off, though it no longer finds what it names",
            error.trouble,
            chosen.told,
        ) from None


def _traces(files: StoreFiles, chosen: Erasable) -> tuple[Traces, int]:
    """Collect the traces of rows that will be erased, and count these rows."""
    traces = Traces()
    keys, sentences = _sample(chosen.keys), set(_sample(chosen.sentences))
    for kind, text in chosen.named:
        traces.add_text(kind, text)
    with files.rows.reading() as reading:
        for row in reading.pictures(keys):
            _add_picture(traces, row)
        numbers = {row.number for row in reading.pictures(keys)}
        for kind, content in _contents(reading, sorted(numbers)):
            traces.add_bytes(kind, content)
        for sentence, vector in reading.sentences() if sentences else ():
            if sentence.id in sentences:
                traces.add_text("id", sentence.id)
                traces.add_text("text", sentence.text)
                traces.add_text("path", sentence.path)
                traces.add_bytes("vector", vector)
    return traces, len(keys) + len(sentences)


def _add_picture(traces: Traces, row: PictureRow) -> None:
    for kind in ("id", "path", "sha256", "identity", "metadata"):
        traces.add_text(kind, getattr(row, kind))
    for path in further_paths(row.others):
        traces.add_text("path", path)
    for kind in ("thumbnail_digest", "regions_digest", "digest"):
        traces.add_bytes(kind, getattr(row, kind) or b"")


def _contents(reading: Reading, numbers: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Vectors, thumbnails and region features of images by their number, each with its kind."""
    for _, vectors in reading.vectors(np.array(numbers, np.int64)):
        yield from (("vector", content) for content in vectors)
    for some in chunks(numbers):
        yield from (("thumbnail", content) for content in reading.thumbnails(some).values())
        yield from (("region features", content) for content in reading.regions(some).values())


def _sample(keys: list[str]) -> list[str]:
    """All keys, or of very many an even part."""
    return keys if len(keys) <= _TRACED else keys[:: -(-len(keys) // _TRACED)]


def _in_rows(files: StoreFiles, search: TraceSearch, tell: Progress) -> set[bytes]:
    """Traces that what stays has, too: its rows, and the texts of the store."""
    shared = {trace for text in _TEXTS for _, trace in search.found((files.rows.text(text) or "").encode())}
    with files.rows.reading() as reading:
        done, total = 0, reading.state("pictures").rows
        # all of them: of a row that is damaged nobody can say whether it is one of those that had to go
        rows = list(sound(files.folder, reading.pictures()))
        # without region features a row is small
        for some in chunks(rows, 64 if files.region_shape else 1024):
            contents = (content for _, content in _contents(reading, [row.number for row in some]))
            # together: a search of a vector of its own takes several times as long
            shared |= _found(search, b"\0".join(chain(map(_plain, chain.from_iterable(some)), contents)))
            done += len(some)
            tell("rows", done, total)
        for sentence, vector in reading.sentences():
            shared |= _found(search, b"\0".join(map(_plain, (*sentence, vector))))
    return shared


def _plain(value: Any) -> bytes:
    # surrogateescape: a damaged text has the bytes that it was read with
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _found(search: TraceSearch, content: bytes) -> set[bytes]:
    return {trace for _, trace in search.found(content)}


def _in_files(files: StoreFiles, search: TraceSearch, *, model: bool = False) -> Iterator[tuple[str, bytes]]:
    """Names of files of a store, those of its model or the others, with the traces that are in them."""
    for path, name in _files(files):
        if name.startswith(f"{MODEL_FOLDER}/") == model:
            yield from ((name, trace) for _, trace in search.in_file(path))


def _files(files: StoreFiles) -> list[tuple[Any, str]]:
    """All files of a store, and their names within its folder."""
    start = len(str(files.folder).rstrip("/")) + 1
    return [(path, str(path)[start:]) for path in files_below(files.folder)]


@contextmanager
def _forgotten(chosen: Erasable, audit: Forgetting | None) -> Iterator[int | None]:
    """Remove from an audit log what it tells of the images, and of identities that no image has any more."""
    if audit is None:
        yield None
        return
    # a refusal may name the file of an upload, which is the hash of its picture
    texts = [*chosen.names, *sorted({image.sha256 for image in chosen.images})]
    with ExitStack() as held:
        with reached("the audit log"):
            lines = held.enter_context(audit.forgetting(_keys(chosen), texts))
        yield lines


def _elsewhere(chosen: Erasable, added: Uploads | None) -> int:
    """Count the files of the images that are there, in another folder of uploads than the one that was searched."""
    paths = [path for image in chosen.images for path in image.paths if os.path.lexists(path)]
    others = other_folders(paths, None if added is None else added.folder)
    return sum(has_uploads_name(path) and str(Path(path).parent) in others for path in paths)


def _keys(chosen: Erasable) -> list[str]:
    """Keys of images that are erased, and those that were named."""
    return sorted({*chosen.keys, *(text for kind, text in chosen.named if kind == "id")})


def _learnt(files: StoreFiles, chosen: Erasable) -> int | None:
    """Count the images that the store's model has learnt from, by what its checkpoint says; None if it cannot tell."""
    # imported when it is needed: a store of another program's embeddings has no model, and torch takes seconds
    from limner.inference.learnt_images import named_by, word_of

    try:
        named = named_by(Path(files.run))
    # of a damaged model, too: the erasure is made, and the report says that this is not known
    except CheckpointError:
        return None
    return None if named is None else sum(word_of(image.sha256) in named for image in chosen.images)


def _proof(files: StoreFiles, uploads: Uploads | None, traces: Traces, tell: Progress) -> dict[str, Any]:
    """Search all files of a store for traces, and the folder of uploads for pictures that no row names."""
    search = traces.search()
    found: dict[str, set[bytes]] = {}
    below = [(path, name, int(path.stat().st_size)) for path, name in _files(files)]
    total, done = sum(size for *_, size in below), 0
    for path, name, size in below:
        if not name.startswith(f"{MODEL_FOLDER}/"):
            for _, trace in search.in_file(path):
                found.setdefault(name, set()).add(trace)
        done += size
        tell("bytes", done, total)
    remains = [
        Remains(file=name, kind=kind, count=count)
        for name, some in sorted(found.items())
        for kind, count in _by_kind(traces, some)
    ]
    if uploads is not None:
        kind = "a picture that no row names"
        remains += [Remains(file=f"uploads/{name}", kind=kind, count=1) for name in uploads.remains(files)]
    # a file of another program may have a name that is no UTF-8, which no answer over HTTP can hold
    told = (one.model_copy(update={"file": as_text(one.file)}) for one in remains)
    return {"files": len(below), "bytes": total, "found": tuple(told)}


def _by_kind(traces: Traces, some: Collection[bytes]) -> list[tuple[str, int]]:
    kinds = [traces.kinds[trace] for trace in some]
    return sorted((kind, kinds.count(kind)) for kind in set(kinds))
