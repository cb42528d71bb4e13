"""The rows of a store in files of other programs: Parquet, Lance, faiss, and points for Qdrant.

    OUT.parquet       one row a picture, the vectors with it; the schema's metadata say of which model
    OUT.lance         the same as a Lance dataset, which is the table OUT of a LanceDB database in its folder
    OUT/              vectors.faiss (an IndexFlatIP), rows.parquet (its rows in order), about.json
    OUT.jsonl         one point a line as Qdrant's clients upload it, and OUT.jsonl.about.json

Each holds what was committed at one moment, and appears when it is whole. `limner index --vectors` reads all four
(`limner.search.vector_files`).
"""

import json
import os
import secrets
import shutil
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limner.durable import sync, sync_all
from limner.errors import SettingsError, StoreError
from limner.store.erase import ERASURES
from limner.store.files import StoreFiles
from limner.store.lance_tables import lancedb
from limner.store.path import StorePath, reached, store_path
from limner.store.rows import Reading
from limner.store.sound import expect_rows, read_vectors, sound, sound_sentences
from limner.store_reports import StoreExport
from limner.tables import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
"""Version of what stands in the exported files."""

ABOUT = "limner"
"""Key of the schema's metadata under which Parquet and Lance say what the rows are."""

INDEX, ROWS, ABOUT_FILE = "vectors.faiss", "rows.parquet", "about.json"
"""Files of a folder for faiss."""

_ENDINGS = {"parquet": ".parquet", "lance": ".lance", "faiss": "", "qdrant-jsonl": ".jsonl"}

_BLOCK = 1024
"""Rows in memory at once."""

_FACTS = ("id", "path", "sha256", "size", "taken", "taken_from", "identity", "metadata")


def export_store(
    store: str | Path | StorePath,
    out: str | Path,
    to: str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> StoreExport:
    """Write all pictures of a store for `to`, with vectors, facts and their sentences' texts; others may change it.

    What was deleted is not among them, and an erasure meanwhile ends the export. One block of rows is in memory at a
    time, and the texts of all sentences. `progress` is called with the numbers of pictures written and of all.

    Raises `SettingsError` for another format, a name with another ending than the format's, one that is there or lies
    in the store, and without pyarrow; `StoreError` for a store that is damaged or was erased from, and for a full disk.
    """
    if to not in _WRITERS:
        raise SettingsError(f"--to: expected {', '.join(_WRITERS)}, got {to[:40]!r}")
    require_pyarrow("an export of a store")
    place, target = store_path(store), Path(os.path.abspath(out))  # noqa: PTH100 - links in it stay as they are
    if target.suffix != _ENDINGS[to]:
        ending = f"a name that ends in {_ENDINGS[to]}" if _ENDINGS[to] else "a folder's name without a dot"
        raise SettingsError(f"{out}: expected {ending} for {to}")
    if target.exists() or target.is_symlink():
        raise SettingsError(f"{out}: is there already; name a new file or folder for the export")
    if isinstance(place, Path) and target.resolve().is_relative_to(place.resolve()):
        raise SettingsError(f"{out}: lies in the store; name a place outside of it")
    files = StoreFiles.open(place)
    # a folder and a name of its own: a killed export leaves it, hidden and half, and never the name that was asked for
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with reached(target):
            partial.mkdir(parents=True)
            erasures = files.rows.text(ERASURES)
            with files.rows.reading() as reading:
                rows = _Rows(files, reading, progress)
                made = _WRITERS[to](rows, partial, target.name)
            if files.rows.text(ERASURES) != erasures:
                # the export would bring back what is gone
                raise StoreError(f"{files.folder}: was erased from meanwhile; export it again")
            sync_all(partial)
            # what lies beside comes first: whoever sees the export finds it
            for path in sorted(partial.iterdir(), key=lambda one: one == made):
                if made != partial:
                    path.replace(target.with_name(path.name))
            if made == partial:
                partial.rename(target)
            sync(target.parent)
            size = sum(path.stat().st_size for path in (target, *target.rglob("*")) if path.is_file())
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return StoreExport(
        out=str(out),
        to=to,
        pictures=rows.count,
        sentences=rows.sentences,
        dim=files.dim,
        fingerprint=files.fingerprint,
        bytes=size,
    )


class _Rows:
    """The rows of a store at one moment, which `reading` is of."""

    def __init__(
        self, files: StoreFiles, reading: Reading, progress: Callable[[int, int], None] | None
    ) -> None:
        self._files, self._reading, self._progress = files, reading, progress
        self.sentences = 0
        self.dim = files.dim
        state = reading.state("pictures")
        self._rows = list(sound(files.folder, reading.pictures()))
        expect_rows(files.folder, [row.digest for row in self._rows], state.rows, state.total)
        self._rows = sorted((row for row in self._rows if row.gone is None), key=lambda row: row.path)
        self.count = len(self._rows)
        self._texts: dict[str | None, list[str]] = {}
        sentences = sound_sentences(files.folder, reading.sentences())
        for sentence, _ in sorted(sentences, key=lambda one: one[0].text):
            self._texts.setdefault(sentence.path, []).append(sentence.text)
        self.about = {
            "format": FORMAT,
            "rows": self.count,
            "dim": files.dim,
            "fingerprint": files.fingerprint,
            "run": files.run,
        }
        """Description of the rows, which is kept beside them."""

    def schema(self, *, vectors: bool) -> "pa.Schema":
        """Columns of the export, with what it is of as metadata."""
        import pyarrow as pa

        fields = [
            pa.field("id", pa.string(), nullable=False),
            pa.field("path", pa.string(), nullable=False),
            pa.field("sha256", pa.string(), nullable=False),
            pa.field("size", pa.int64(), nullable=False),
            # no zone: EXIF times are those of the camera's clock
            pa.field("taken", pa.timestamp("us")),
            pa.field("taken_from", pa.string()),
            pa.field("identity", pa.string()),
            pa.field("metadata", pa.string(), nullable=False),
            pa.field("sentences", pa.list_(pa.string()), nullable=False),
        ]
        if vectors:
            fields.append(pa.field("vector", pa.list_(pa.float32(), self.dim), nullable=False))
        return pa.schema(fields, {ABOUT: json.dumps(self.about)})

    def __iter__(self) -> Iterator["pa.Table"]:
        """Blocks of rows, each compared with its digests. Raises `StoreError`."""
        import pyarrow as pa

        schema = self.schema(vectors=True)
        for start in range(0, self.count, _BLOCK):
            some = self._rows[start : start + _BLOCK]
            texts = [
                sorted({text for path in row.paths for text in self._texts.get(path, ())}) for row in some
            ]
            self.sentences += sum(map(len, texts))
            matrix = read_vectors(self._files.folder, self._reading, some, self.dim)
            flat = pa.array(np.ascontiguousarray(matrix).ravel())
            columns = [
                *(pa.array([getattr(row, name) for row in some], schema.field(name).type) for name in _FACTS),
                pa.array(texts, schema.field("sentences").type),
                pa.FixedSizeListArray.from_arrays(flat, self.dim),
            ]
            yield pa.Table.from_arrays(columns, schema=schema)
            if self._progress is not None:
                self._progress(start + len(some), self.count)

    def batches(self, *, vectors: bool = True) -> Iterator["pa.RecordBatch"]:
        """The rows for Arrow's writers."""
        schema = self.schema(vectors=vectors)
        for rows in self:
            yield from rows.select(schema.names).cast(schema).to_batches()


def _write_parquet(rows: _Rows, folder: Path, name: str) -> Path:
    import pyarrow.parquet as pq

    schema = rows.schema(vectors=True)
    with pq.ParquetWriter(folder / name, schema, compression="zstd") as writer:
        for batch in rows.batches():
            writer.write_batch(batch)
    return folder / name


def _write_lance(rows: _Rows, folder: Path, name: str) -> Path:
    import pyarrow as pa

    failed: list[BaseException] = []

    def watched() -> Iterator["pa.RecordBatch"]:
        try:
            yield from rows.batches()
        except BaseException as error:
            # LanceDB would make a text of it
            failed.append(error)
            raise

    schema = rows.schema(vectors=True)
    try:
        reader = pa.RecordBatchReader.from_batches(schema, watched())
        lancedb().connect(str(folder)).create_table(Path(name).stem, reader, schema=schema)
    except Exception as error:
        raise (failed or [error])[0] from None
    return folder / name


# faiss writes an index that lies in memory as a whole. This one is a header and the rows, so it is written as they
# come, without faiss; tests read it with faiss.read_index. Little endian, as faiss writes on all that torch runs on
_HEADER = struct.Struct("<4siqqqBiQ")
"""Of faiss's IndexFlatIP: name, width, rows, two numbers that it ignores, is trained, metric, numbers that follow."""


def flat_header(rows: int, dim: int) -> bytes:
    """The beginning of the file of an IndexFlatIP; its rows follow."""
    return _HEADER.pack(b"IxFI", dim, rows, 1 << 20, 1 << 20, 1, 0, rows * dim)


def _write_faiss(rows: _Rows, folder: Path, name: str) -> Path:
    import pyarrow.parquet as pq

    schema = rows.schema(vectors=False)
    with (
        (folder / INDEX).open("wb") as index,
        pq.ParquetWriter(folder / ROWS, schema, compression="zstd") as writer,
    ):
        index.write(flat_header(rows.count, rows.dim))
        for block in rows:
            vectors = block["vector"].combine_chunks().flatten().to_numpy()
            index.write(vectors.astype("<f4", copy=False).tobytes())
            writer.write_table(block.select(schema.names).cast(schema))
    _write_about(rows, folder / ABOUT_FILE)
    return folder


def _write_points(rows: _Rows, folder: Path, name: str) -> Path:
    with (folder / name).open("w", encoding="utf-8") as file:
        for block in rows:
            facts = block.drop_columns(["vector"]).to_pylist()
            for one, numbers in zip(facts, _numbers(block["vector"]), strict=True):
                file.write(_point(one, numbers))
    _write_about(rows, folder / f"{name}.about.json")
    return folder / name


def _numbers(vectors: "pa.ChunkedArray") -> list[str]:
    """The numbers of each vector as JSON has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = vectors.combine_chunks()
    # Arrow's spelling is the shortest that reads back to the same 32 bits: half the length of Python's, which is that
    # of 64, and without an object for each number
    texts = rows.flatten().cast(pa.string())
    # which readers take for a whole number, that has no sign
    texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)
    ends = pa.array(np.arange(len(rows) + 1) * rows.type.list_size, pa.int32())
    joined: list[str] = pc.binary_join(pa.ListArray.from_arrays(ends, texts), ", ").to_pylist()
    return joined


def _point(facts: Mapping[str, Any], numbers: str) -> str:
    taken = facts["taken"]
    payload = {
        **{
            name: facts[name]
            for name in ("id", "path", "sha256", "size", "identity", "sentences", "taken_from")
        },
        "taken": None if taken is None else taken.isoformat(),
        # as JSON and not as text: Qdrant filters by payload.metadata.camera
        "metadata": json.loads(facts["metadata"]),
    }
    # Qdrant takes UUIDs and no other text
    head = json.dumps({"id": str(uuid.UUID(facts["id"]))})
    return f'{head[:-1]}, "vector": [{numbers}], "payload": {json.dumps(payload, ensure_ascii=False)}}}\n'


def _write_about(rows: _Rows, file: Path) -> None:
    file.write_text(json.dumps(rows.about, indent=2) + "\n", encoding="utf-8")


_WRITERS: Mapping[str, Callable[[_Rows, Path, str], Path]] = {
    "parquet": _write_parquet,
    "lance": _write_lance,
    "faiss": _write_faiss,
    "qdrant-jsonl": _write_points,
}
