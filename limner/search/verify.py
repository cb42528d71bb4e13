"""Checks of a store: damaged rows, and image files that are gone or have changed."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool

from limner.errors import LimnerError, StoreError
from limner.export.exported import ExportedModel
from limner.search.commits import State, digest_sum
from limner.search.compaction import segment_names
from limner.search.entry import FIELDS, PLACE, StoredImage
from limner.search.generations import earlier_tables, newest_manifest
from limner.search.integrity import reason_of
from limner.search.manifest import IN_STORE
from limner.search.row_digests import DIGEST, damaged
from limner.search.segments import MissingSegmentError
from limner.search.sentences import Sentence
from limner.search.store_files import StoreFiles
from limner.search.store_path import expect_own_files
from limner.search.table import Table, matrix_of
from limner.store_reports import Finding, Verification

_CALIBRATION = "calibration.json"  # the module that names it imports torch, which takes seconds
_TRIES = 3  # of a look at the versions that a writer may disturb
_PAUSE = 0.2  # seconds between two of them
_TOGETHER = 64  # images whose region features are read at once

DAMAGE = {
    "manifest": "store.json that is older than the tables (`limner store repair`)",
    "files": "tables that are damaged or lost in part; what is left was not read (`limner store repair`)",
    "version": "earlier versions of a table that cannot be read and stop every compaction (`limner store repair`)",
    "rows": "tables whose rows are not those of their last commit",
    "row": "rows that have changed since they were written",
    "twice": "pictures or sentences that stand in their table more than once",
    "key": "rows whose key is not that of their path",
    "metadata": "rows whose metadata are no JSON object",
    "vector": "embeddings that have changed, or hold NaN or infinite values",
    "map": "region features that are lost, damaged, or hold NaN or infinite values",
    "thumbnail": "thumbnails that are lost or damaged",
    "segment": "segments that pictures name and that are gone",
    "sentence": "sentences that have changed, with a key that is not theirs, or values that are no numbers",
    "model": "the model in the store's folder, or a calibration of it: put its file back from its run or a copy",
    "calibration": "the store's calibration.json: put it back, or fit it anew (`limner calibrate --store`)",
}
"""Kinds of damage; limner itself leaves none of them behind, also when it is killed."""

BESIDE = ("model", "calibration")
"""Damage of files beside the tables: no repair encodes them again, they are put back or fitted anew."""

STALE = {
    "unused": "segments that no picture names; the next change removes them",
    "generation": "tables of an earlier generation, with what was erased from it; the next change removes them",
    "table": "no table of pictures: nothing was indexed yet, or it is gone",
    "missing": "pictures whose file is gone (`limner store delete STORE --missing`)",
    "changed": "pictures whose file has changed since (`limner index` again)",
}
"""Kinds of changes to files since they were indexed, and leftovers; no damage."""


@dataclass
class _Findings:
    """The findings so far: the number of each kind, and the path of the first."""

    pictures: int = 0
    sentences: int = 0
    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def note(self, kind: str, path: str) -> None:
        """Count one more of a kind."""
        count, first = self.found.get(kind, (0, path))
        self.found[kind] = (count + 1, first)

    def report(self) -> Verification:
        """Sum up all findings, for people and programs."""
        return Verification(
            pictures=self.pictures,
            sentences=self.sentences,
            # files that went or changed are no damage
            sound=not any(kind in DAMAGE for kind in self.found),
            found={kind: Finding(count=count, example=path) for kind, (count, path) in self.found.items()},
        )


def verify(
    files: StoreFiles,
    *,
    hashes: bool = False,
    workers: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Read every row, and the model if the store holds it, and check that every file exists unchanged; with `hashes`
    also read each file and compare its bytes.

    Every row is read from one version of the table, so that another process may write meanwhile. A table that cannot be
    read is one of the findings.
    """
    findings = _Findings()
    try:
        expect_own_files(files.folder)
    except StoreError as error:
        # nothing else is read: it may be a pipe, which would keep this waiting
        findings.note("files", str(error))
        return findings.report()
    try:
        newest_manifest(files.folder)
    except StoreError as error:
        findings.note("manifest", str(error))
        # the tables and the calibration that it names are gone or old: told as damage, they would be told twice
    else:
        _verify_content(findings, files, hashes, workers, progress)
    if files.manifest.run == IN_STORE:
        _verify_model(findings, files)
    return findings.report()


def _verify_content(
    findings: _Findings,
    files: StoreFiles,
    hashes: bool,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Check what `store.json` names beside the model."""
    try:
        # read from first to last, and not as far as a search would
        files.table.opened()
        if not files.has_table:
            # a table that is gone with its record reads like a store that nothing was added to: told, and no damage
            findings.note("table", f"{files.folder}/{files.manifest.table('pictures')}.lance")
        _verify_pictures(findings, files, hashes, workers, progress)
    except StoreError as error:
        findings.note("files", str(error))
    for table in (files.table, files.sentences):
        _verify_versions(findings, table)
    for name in earlier_tables(files.folder, files.manifest):
        findings.note("generation", name)
    try:
        _verify_sentences(findings, files)
    except StoreError as error:
        findings.note("files", str(error))
    _verify_calibration(findings, files)


def _verify_versions(findings: _Findings, table: Table) -> None:
    """Read the manifests of all versions of a table, as a compaction does; no search needs the earlier ones."""
    for left in reversed(range(_TRIES)):
        try:
            if (opened := table.opened()) is not None and isinstance(table.folder, Path):
                opened.list_versions()
            return
        except StoreError:
            # told already
            return
        # which error a damaged file raises depends on where it is damaged; a writer may have removed one meanwhile
        except Exception as error:
            if left:
                time.sleep(_PAUSE)
            else:
                findings.note("version", f"{table.folder}: {table.name}.lance ({reason_of(error)})")


def _verify_calibration(findings: _Findings, files: StoreFiles) -> None:
    if not files.manifest.calibration and not (files.folder / _CALIBRATION).exists():
        return
    from limner.search.store_calibration import load_store_calibration

    try:
        load_store_calibration(files.folder, files.fingerprint, files.manifest)
    except LimnerError as error:
        findings.note("calibration", str(error))


def _verify_model(findings: _Findings, files: StoreFiles) -> None:
    # here: what a store without a model need not wait for
    from limner.inference.calibration_file import load_calibration
    from limner.search.kept_model import load_stored_model

    try:
        model = load_stored_model(files.run, files, device="cpu")
        if model.fingerprint != files.manifest.fingerprint:
            raise StoreError(f"{model.path}: is not the model that the store was built with")
        load_calibration(model.path, model.fingerprint)
        if isinstance(model, ExportedModel):
            model.expect_whole()
            return
        # torch: an export carries none
        from limner.inference.composing import load_inversion

        load_inversion(model.path, model.fingerprint)
    except LimnerError as error:
        findings.note("model", str(error))


def _verify_pictures(
    findings: _Findings,
    files: StoreFiles,
    hashes: bool,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    seen, total, digests = set[str](), len(files), list[bytes]()
    named, known = set[str](), files.table.states()
    # threads: waiting for the disk and hashing release the GIL
    with ThreadPoolExecutor(workers) as threads:
        for batch in files.batches(files.table.schema.names):
            table = pa.Table.from_batches([batch])
            rows = table.select(["id", *FIELDS, *PLACE]).to_pylist()
            digests += table[DIGEST].to_pylist()
            named |= {row["segment"] for row in rows} - {None}
            entries = [_checked(findings, seen, row) for row in rows]
            changed, vectors = damaged(table, files.table.schema)
            for kind, which in (("row", changed), ("vector", vectors | _not_finite(table, files.dim))):
                for row in np.flatnonzero(which):
                    findings.note(kind, rows[row]["path"])
            for start in range(0, len(rows), _TOGETHER):
                _check_bytes(findings, files, rows[start : start + _TOGETHER])
            # a batch at a time, so that a store of any size is checked in the memory of 1,024 rows
            states = threads.map(lambda one: _state(one, hashes), entries)
            for entry, state in zip(entries, states, strict=True):
                if state is not None:
                    findings.note(state, entry.path)
            findings.pictures += len(rows)
            if progress is not None:
                # another process may have added images since the total was counted
                progress(findings.pictures, max(total, findings.pictures))
    _check_set(findings, files.table, digests, known)
    _check_segments(findings, files, named)


def _check_set(findings: _Findings, table: Table, digests: list[bytes], known: Sequence[State]) -> None:
    try:
        table.expect(len(digests), digest_sum(digests), known)
    except StoreError as error:
        findings.note("rows", str(error))


def _check_segments(findings: _Findings, files: StoreFiles, named: set[str]) -> None:
    there = files.stored.segments.sizes().keys()
    # asked again: a writer may have compacted the store since the rows were read
    now = segment_names(files.table)
    for name in sorted(named & now - there):
        findings.note("segment", name)
    for name in sorted(there - now - named):
        findings.note("unused", name)


def _check_bytes(findings: _Findings, files: StoreFiles, rows: Sequence[dict[str, Any]]) -> None:
    """Read the region features and thumbnails of some rows, and note which of them are damaged."""
    readers: dict[str, Callable[[Sequence[dict[str, Any]]], bool]] = {
        "thumbnail": lambda some: files.stored.thumbnails(some) is not None
    }
    if files.region_shape is not None:
        readers["map"] = lambda some: bool(np.isfinite(files.stored.regions(some)).all())
    for kind, read in readers.items():
        if _reads(files, read, rows):
            continue
        # one of them is damaged: each by itself
        for row in rows:
            if not _reads(files, read, [row]):
                findings.note(kind, row["path"])


def _reads(
    files: StoreFiles, read: Callable[[Sequence[dict[str, Any]]], bool], rows: Sequence[dict[str, Any]]
) -> bool:
    try:
        return read(rows)
    except MissingSegmentError:
        # a writer may have compacted the store since the rows were read; what was deleted meanwhile is not damaged
        try:
            return read(files.places([row["id"] for row in rows]))
        except StoreError:
            return False
    except StoreError:
        return False


def _verify_sentences(findings: _Findings, files: StoreFiles) -> None:
    schema, digests, known = files.sentences.schema, list[bytes](), files.sentences.states()
    seen: set[str] = set()
    for batch in files.sentences.batches(schema.names, 1024):
        table = pa.Table.from_batches([batch])
        rows = table.select(["id", "text", "path"]).to_pylist()
        digests += table[DIGEST].to_pylist()
        changed, vectors = damaged(table, schema)
        bad = changed | vectors | _not_finite(table, files.dim)
        for wrong, row in zip(bad, rows, strict=True):
            if wrong or Sentence(row["text"], row["path"]).id != row["id"]:
                findings.note("sentence", row["path"] or row["text"])
            if row["id"] in seen:
                findings.note("twice", row["path"] or row["text"])
            seen.add(row["id"])
        findings.sentences += len(rows)
    _check_set(findings, files.sentences, digests, known)


def _checked(findings: _Findings, seen: set[str], row: dict[str, Any]) -> StoredImage:
    """Make the entry of a row, and note what is wrong with it."""
    path = row["path"]
    if path in seen:
        findings.note("twice", path)
    # by path and not by key: two rows of a path have one key, unless the key is damaged, too
    seen.add(path)
    try:
        whole = isinstance(json.loads(row["metadata"]), dict)
    except json.JSONDecodeError:
        whole = False
    if not whole:
        findings.note("metadata", path)
    # with empty metadata the other checks of the row can go on
    entry = StoredImage.from_row(row if whole else {**row, "metadata": "{}"})
    if entry.id != row["id"]:
        findings.note("key", path)
    return entry


def _not_finite(table: pa.Table, width: int) -> Bool[np.ndarray, " rows"]:
    """For each row, True if its vector holds NaN or infinite values."""
    found: Bool[np.ndarray, " rows"] = ~np.isfinite(matrix_of(table["vector"], width)).all(axis=1)
    return found


def _state(entry: StoredImage, hashes: bool) -> str | None:
    """Tell which kind of `STALE` a file is; None if it is unchanged."""
    path = Path(entry.path)
    try:
        status = path.stat()
        # by its bytes a file that was only touched is unchanged: copies and checkouts give new times
        same = status.st_size == entry.size and (hashes or status.st_mtime_ns == entry.mtime)
        if same and hashes:
            with path.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256
    except OSError:
        # also a file without the right to read it: limner cannot show it either
        return "missing"
    return None if same else "changed"
