"""Erasure: what a store holds of some images is gone from the disk, and a search of its files shows it.

`StoreFiles.delete` takes images out of search at once; their bytes stay in LanceDB's files and in segments until
compacting pays. An erasure writes the rows that stay into the tables of a new generation, and the bytes that stay of
each segment in which others lie; then `store.json` names the new generation, and all that belonged to the old one is
removed: what was deleted earlier, too. A writer that is killed leaves the old generation or the new one, and the next
writer removes the rest.

No deletion within a table: LanceDB keeps deleted rows of a file as long as they are few, and names of deleted rows in
the files of its transactions.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from limner.errors import CheckpointError, StoreError
from limner.inference.calibration_file import FILE as CALIBRATION
from limner.search.commits import digest_sum
from limner.search.compaction import alive_bytes
from limner.store.entry import PLACE
from limner.store.erasable import Erasable, chosen_by, same_name
from limner.store.manifest import FILE, MODEL_FOLDER, StoreManifest, write_manifest
from limner.search.row_digests import DIGEST, facts_digests
from limner.search.segments import FOLDER, FULL, SegmentWriter, sync_folder
from limner.search.spans import Spans, expect_own_bytes
from limner.store.files import StoreFiles
from limner.store.path import expect_own_files, reached
from limner.search.table import Table
from limner.store.traces import Traces, TraceSearch, files_below, values_of
from limner.store.uploads import Uploads
from limner.store_reports import ErasureReport, Remains, TraceCounts
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
"""Is told what is being done, how much of it, and of how much."""

_ROWS = 4096  # rows in memory while a table is copied
_LOOKED_UP = 1024  # rows that are looked up by their keys at once
_IMAGES = 64  # images whose bytes are in memory: 13 MB of region features of 7 × 7 × 2048
_TRACED = 20_000  # rows whose traces are searched for; they take 6 KB of memory each
_PLACES = ["id", *PLACE]
_OWNERLESS = "sentences of pictures that the store does not hold, perhaps of these; erase them by their paths"
_FACTS = (FILE, CALIBRATION)
"""Files of a store that hold nothing of its images; what is in them is no trace of one."""
_OTHERS = (*_FACTS, MODEL_FOLDER)
"""Files that an erasure leaves as they are."""


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

    `ids` are keys, and `paths` files, or folders with all below them; `identity` and `where` must all be met. An
    identity counts however its accents are written. Without any of these only what was deleted earlier goes. Unknown
    names and conditions that no image meets are reported and no error: a call that was killed is made again.

    `uploads`: folder of a server's uploads, of which all pictures that no row names afterwards are deleted: those of
    these images, and what deletions and killed changes have left. Files of other names are left alone.
    `audit`: an audit log, from which what it tells of these images is removed. A server that writes it looks at the
    store before each line, so that searches that began earlier add nothing of them.

    The report says in which files traces of the rows were found all the same, and how many lines of the audit log name
    them; none must be left. Raises `StoreError` while another process writes and if the disk refuses, `SettingsError`
    for a folder that no server of this store has had for uploads and for a file that is no audit log; the call can then
    be made again.
    """
    tell = progress or (lambda what, done, total: None)
    # of what lies elsewhere nothing would be removed
    expect_own_files(files.folder)
    with files.writing():
        chosen = chosen_by(files, ids, identity, paths, where)
        added = None if uploads is None else Uploads.of(uploads, files)
        old = _Generation.of(files, chosen)
        traces, traced, exchanged = _traces(files, chosen)
        if exchanged:
            # the bytes of an image that goes may lie where those of one that stays should
            expect_own_bytes(files, old.places)
        with files.taking_over() as manifest:
            in_model = len(set(_in_files(files, traces.search(), (MODEL_FOLDER,))))
            shared, visible = _written_anew(files, manifest, chosen, old, traces, tell)
            # before the rows go: killed in between, the same call still knows whose lines these are. Servers wait for
            # the log until the rows have gone, or they would add lines of what they have found until then
            with _forgotten(files, chosen, audit) as lines:
                if old.replaced:
                    write_manifest(files.folder, manifest)
        # if no row goes now: what an erasure that was killed behind its takeover has left
        files.clean()
        if isinstance(files.folder, Path):
            # what is removed must not come back with a power cut
            for folder in (files.folder / FOLDER, files.folder):
                if folder.is_dir():
                    sync_folder(folder)
        # after the rows have gone: killed in between, the next call finds files that no row names
        removed = [] if added is None else added.remove_leftovers(files)
        proof = _proof(files, added, traces, shared, visible, tell)
        proof["traces"] = proof["traces"].model_copy(update={"model": in_model})
        if chosen.ownerless:
            left = Remains(file=f"{files.sentences.name}.lance", kind=_OWNERLESS, count=chosen.ownerless)
            proof["found"] = (*proof["found"], left)
        if audit is not None:
            with reached("the audit log", "read"):
                if count := audit.left(_keys(chosen)):
                    left = Remains(
                        file="the audit log", kind="lines that name an erased picture", count=count
                    )
                    proof["found"] = (*proof["found"], left)
        own = {Path(image.path).name for image in chosen.images}
        return ErasureReport(
            pictures=len(chosen.images),
            sentences=len(chosen.sentences),
            left=len(files.table),
            uploads=sum(name in own for name in removed),
            leftovers=sum(name not in own for name in removed),
            unknown=tuple(name for name in chosen.unknown if Path(name).name not in removed),
            unmet=chosen.unmet,
            similar=chosen.similar,
            audit_lines=lines,
            learnt=_learnt(files, chosen),
            traced=traced,
            **proof,
        )


@dataclass(frozen=True)
class _Generation:
    """The files that an erasure replaces: tables by kind, and segments in which bytes of no image that stays lie."""

    tables: dict[str, Table]
    segments: set[str]
    places: pa.Table
    """Where the bytes of the images that stay lie."""
    replaced: bool
    """False if there is nothing to remove, so that the generation stays."""

    @classmethod
    def of(cls, files: StoreFiles, chosen: Erasable) -> "_Generation":
        places = files.table.all(_PLACES)
        gone = set(chosen.keys)
        stays = [key not in gone for key in places["id"].to_pylist()]
        places = places.filter(pa.array(stays, pa.bool_()))
        alive = alive_bytes(places, files.stored.region_size)
        sizes = files.stored.segments.sizes()
        dead = {name for name, size in sizes.items() if alive.get(name, 0) < size}
        both = {"pictures": files.table, "sentences": files.sentences}
        tables = {kind: table for kind, table in both.items() if table.opened() is not None}
        # a table of one version has never held anything else, but for what a killed writer has left
        needed = gone or chosen.sentences or dead or any(table.version > 1 for table in tables.values())
        needed = needed or _needless(files)
        return cls(tables, dead, places, replaced=bool(needed))


def _traces(files: StoreFiles, chosen: Erasable) -> tuple[Traces, int, bool]:
    """Collect the traces of rows that will be erased, count these rows, and say if bytes of one are not its own."""
    traces, exchanged = Traces(), False
    keys, sentences = _sample(chosen.keys), _sample(chosen.sentences)
    for kind, text in chosen.named:
        traces.add_text(kind, text)
    for start in range(0, len(keys), _LOOKED_UP):
        rows = files.table.in_order(keys[start : start + _LOOKED_UP], files.table.schema.names[1:])
        # the name of a segment tells nothing of an image, and others have it, too
        traces.add_rows(rows, besides=("segment",))
        stored = [row for row in rows.select(_PLACES).to_pylist() if row["segment"] is not None]
        for first in range(0, len(stored), _IMAGES):
            some, size = stored[first : first + _IMAGES], files.stored.region_size
            # bytes that are damaged cannot be read; they are removed all the same
            with suppress(StoreError):
                for content in files.stored.whole(some):
                    traces.add_bytes("region features", memoryview(content)[:size])
                    traces.add_bytes("thumbnail", memoryview(content)[size:])
            exchanged = exchanged or not _are_own(files, some)
    for start in range(0, len(sentences), _LOOKED_UP):
        some = sentences[start : start + _LOOKED_UP]
        traces.add_rows(files.sentences.in_order(some, files.sentences.schema.names[1:]), besides=())
    # of very many only some were read
    exchanged = exchanged or len(keys) < len(chosen.keys)
    return traces, len(keys) + len(sentences), exchanged


def _are_own(files: StoreFiles, rows: Sequence[Mapping[str, Any]]) -> bool:
    """True if the bytes at the places of these rows are those of their digests."""
    try:
        files.stored.own(rows)
    except StoreError:
        return False
    return True


def _sample(keys: list[str]) -> list[str]:
    """All keys, or of very many an even part."""
    return keys if len(keys) <= _TRACED else keys[:: -(-len(keys) // _TRACED)]


def _written_anew(
    files: StoreFiles,
    manifest: StoreManifest,
    chosen: Erasable,
    old: _Generation,
    traces: Traces,
    tell: Progress,
) -> tuple[int, set[bytes]]:
    """Write the next generation's tables and segments; count the traces that stay, and tell the visible others."""
    search = traces.search()
    shared, visible = set(_in_files(files, search, _FACTS)), set(_in_old(files, old, search))
    gone = {"pictures": set(chosen.keys), "sentences": set(chosen.sentences)}
    try:
        moved = {"pictures": _moved(files, old)}
        new = dict(zip(("pictures", "sentences"), files.tables_of(manifest), strict=True))
        for kind, table in old.tables.items():
            batches = _staying(table, gone[kind], moved.get(kind, {}), search, shared, tell)
            if old.replaced:
                new[kind].create(batches)
            else:
                # read all the same: a name that was asked for may be a part of one that stays
                deque(batches, maxlen=0)
    except BaseException:
        # what is left would keep a full disk full; if this fails, too, the next writer does it
        with suppress(StoreError):
            files.clean()
        raise
    return traces.leave_out(shared), visible - shared


def _moved(files: StoreFiles, old: _Generation) -> dict[str, tuple[str, int]]:
    """Copy the bytes that stay out of segments that go, and return their new places by key."""
    rows = old.places.filter(pc.is_in(old.places["segment"], pa.array(sorted(old.segments), pa.string())))
    # in the order of the bytes: each old segment is read once, from first to last
    rows = rows.sort_by([("segment", "ascending"), ("offset", "ascending")])
    moved: dict[str, tuple[str, int]] = {}
    writer = SegmentWriter(files.folder)
    try:
        for start in range(0, len(rows), _IMAGES):
            some = rows.slice(start, _IMAGES).to_pylist()
            # what is copied must be of an image that stays
            for row, content in zip(some, files.stored.own(some), strict=True):
                if writer.size >= FULL:
                    writer.finish()
                    writer = SegmentWriter(files.folder)
                moved[row["id"]] = (writer.name, writer.write(memoryview(content)))
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return moved


def _staying(
    table: Table,
    gone: Collection[str],
    moved: dict[str, tuple[str, int]],
    search: TraceSearch,
    shared: set[bytes],
    tell: Progress,
) -> Iterator[pa.RecordBatch]:
    """The rows that stay, batch by batch, with their new places; traces that they have, too, are added to `shared`."""
    done, total = 0, len(table)
    known, digests = table.states(), list[bytes]()
    for batch in table.batches(table.schema.names, _ROWS):
        # all of them: of a row that is damaged nobody can say whether it is one of those that go
        table.expect_rows(pa.Table.from_batches([batch]))
        digests += batch.column(DIGEST).to_pylist()
        keys = batch.column("id").to_pylist()
        # take makes a copy, in which nothing of the other rows is
        kept = batch.take(pa.array([row for row, key in enumerate(keys) if key not in gone], pa.int64()))
        if len(kept):
            rows = _in_new_places(pa.Table.from_batches([kept]).select(table.schema.names), moved)
            for content in values_of(rows):
                shared.update(trace for _, trace in search.found(content))
            yield from rows.cast(table.schema).combine_chunks().to_batches()
        done += len(batch)
        tell("rows", done, total)
    # rows that could not be read must not be taken for rows that are to go
    table.expect(len(digests), digest_sum(digests), known)


def _in_new_places(rows: pa.Table, moved: Mapping[str, tuple[str, int]]) -> pa.Table:
    """Rows with the new places of their bytes, and the digests that go with them."""
    places = [moved.get(key) for key in rows["id"].to_pylist()]
    numbers = [number for number, place in enumerate(places) if place is not None]
    if not numbers:
        return rows
    segments, offsets, digests = (rows[name].to_pylist() for name in ("segment", "offset", DIGEST))
    for number in numbers:
        segments[number], offsets[number] = places[number] or (None, 0)
    for name, values in (("segment", segments), ("offset", offsets)):
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
    for number, digest in zip(numbers, facts_digests(rows.take(numbers), rows.schema), strict=True):
        digests[number] = digest
    field = rows.schema.field(DIGEST)
    return rows.set_column(rows.schema.get_field_index(DIGEST), field, pa.array(digests, field.type))


def _in_files(files: StoreFiles, search: TraceSearch, names: Collection[str]) -> Iterator[bytes]:
    """Traces in files and folders of a store."""
    for path, name in _files(files):
        if Path(name).parts[0] in names:
            yield from (trace for _, trace in search.in_file(path))


def _in_old(files: StoreFiles, old: _Generation, search: TraceSearch) -> Iterator[bytes]:
    """Traces in the files that an erasure replaces."""
    names = {f"{files.manifest.table(kind)}.lance" for kind in old.tables if old.replaced}
    for path, name in _files(files):
        parts = Path(name).parts
        if parts[0] in names or (parts[0] == FOLDER and parts[-1] in old.segments):
            yield from (trace for _, trace in search.in_file(path))


def _files(files: StoreFiles) -> list[tuple[Any, str]]:
    """All files of a store, and their names within its folder."""
    start = len(str(files.folder).rstrip("/")) + 1
    return [(path, str(path)[start:]) for path in files_below(files.folder)]


@contextmanager
def _forgotten(files: StoreFiles, chosen: Erasable, audit: Forgetting | None) -> Iterator[int | None]:
    """Remove from an audit log what it tells of the images, and of identities that nobody has any more."""
    if audit is None:
        yield None
        return
    gone = set(chosen.keys)
    rows = files.table.all(["id", "identity"]).to_pylist()
    others = {same_name(row["identity"] or "") for row in rows if row["id"] not in gone}
    identities = {image.identity for image in chosen.images if image.identity}
    identities |= {text for kind, text in chosen.named if kind == "identity"}
    texts = sorted(name for name in identities if same_name(name) not in others)
    # a refusal may name the file of an upload, which is the hash of its picture
    texts += sorted({image.sha256 for image in chosen.images})
    with ExitStack() as held:
        with reached("the audit log"):
            lines = held.enter_context(audit.forgetting(_keys(chosen), texts))
        yield lines


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


def _proof(
    files: StoreFiles,
    uploads: Uploads | None,
    traces: Traces,
    shared: int,
    visible: set[bytes],
    tell: Progress,
) -> dict[str, Any]:
    """Search all files of a store for traces, and the folder of uploads for pictures that no row names."""
    search = traces.search()
    spans = Spans(files)
    stay: set[bytes] = set()
    found: dict[str, set[bytes]] = {}
    covered: set[str] = set()
    below = [(path, name, int(path.stat().st_size)) for path, name in _files(files)]
    total, done = sum(size for *_, size in below), 0
    for path, name, size in below:
        parts = Path(name).parts
        for place, trace in search.in_file(path) if parts[0] not in _OTHERS else ():
            if parts[0] == FOLDER and spans.cover(parts[-1], place, len(trace)):
                stay.add(trace)
                covered.add(parts[-1])
            else:
                found.setdefault(name, set()).add(trace)
        done += size
        tell("bytes", done, total)
    for name, trace in _in_rows(files, search):
        found.setdefault(name, set()).add(trace)
    remains = [
        Remains(file=f"{FOLDER}/{name}", kind="bytes that are not those of their picture", count=1)
        for name in spans.not_own(covered)
    ]
    remains += [
        Remains(file=name, kind=kind, count=count)
        for name, some in sorted(found.items())
        for kind, count in _by_kind(traces, some - stay)
    ]
    remains += [
        Remains(file=f"{FOLDER}/{name}", kind="bytes of no picture", count=count)
        for name, count in spans.dead()
    ]
    remains += [Remains(file=name, kind="a file that no row needs", count=1) for name in _needless(files)]
    if uploads is not None:
        kind = "a picture that no row names"
        remains += [Remains(file=f"uploads/{name}", kind=kind, count=1) for name in uploads.remains(files)]
    counts = TraceCounts(
        searched=len(traces) - len(stay),
        # bytes in a part of a segment that stays were never those of the erased images alone
        visible=len(visible - stay),
        shared=shared + len(stay),
        short=traces.short,
    )
    # a file of another program may have a name that is no UTF-8, which no answer over HTTP can hold
    told = (one.model_copy(update={"file": _told(one.file)}) for one in remains)
    return {"traces": counts, "files": len(below), "bytes": total, "found": tuple(told)}


def _told(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _in_rows(files: StoreFiles, search: TraceSearch) -> Iterator[tuple[str, bytes]]:
    """Names of tables, and traces in their rows as LanceDB reads them: it compresses texts, which bytes do not show."""
    for table in (files.table, files.sentences):
        names = [name for name in table.schema.names if name != "vector"]
        for batch in table.batches(names, _ROWS):
            for content in values_of(batch):
                yield from ((f"{table.name}.lance", trace) for _, trace in search.found(content))


def _needless(files: StoreFiles) -> list[str]:
    """Names of files in the folders of tables that their newest versions do not need, e.g. of a writer that was killed.

    A table of one version needs no others; on an object storage the record names no files, and nobody can tell.
    """
    needed: set[str] = set()
    for table in (files.table, files.sentences):
        for name in table.states()[0].files:
            needed.add(f"{table.name}.lance/{name}")
            if name.startswith("_versions/"):
                # as plain text it has the names of its transaction and of its files
                content = Path(f"{files.folder}/{table.name}.lance/{name}").read_bytes()
                needed |= {
                    name for path, name in _files(files) if _in(table, name) and path.name.encode() in content
                }
    held = [name for _, name in _files(files) if name.split("/")[0].endswith(".lance")] if needed else []
    return [name for name in held if name not in needed and not name.endswith("/latest_version_hint.json")]


def _in(table: Table, name: str) -> bool:
    return name.split("/")[0] == f"{table.name}.lance"


def _by_kind(traces: Traces, some: Collection[bytes]) -> list[tuple[str, int]]:
    kinds = [traces.kinds[trace] for trace in some]
    return sorted((kind, kinds.count(kind)) for kind in set(kinds))
