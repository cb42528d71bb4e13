"""Checks that a store is whole: its file, every row against its digest, its model, and the pictures' files."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from limner.errors import LimnerError, StoreError
from limner.export.exported import ExportedModel
from limner.store.contents import chunks
from limner.store.digests import digest_of, known, row_digest, total_of, vector_sums
from limner.store.entry import NOWHERE, PictureRow, Place, StoredImage
from limner.store.files import StoreFiles
from limner.store.manifest import IN_STORE
from limner.store.path import expect_own_files
from limner.store.rows import Reading, SentenceRow
from limner.store_reports import Finding, Verification, as_text

DAMAGE = {
    "file": "the store's file is damaged: put back a copy of the store, or index into a new folder",
    "rows": "rows that are not those of the last commit (`limner store repair`)",
    "row": "rows that have changed since they were written (`limner store repair`)",
    "vector": "embeddings that are lost, have changed, or hold NaN or infinite values (`limner store repair`)",
    "map": "region features that are lost or have changed, or hold NaN or infinite values (`limner store repair`)",
    "thumbnail": "thumbnails that are lost or have changed (`limner store repair`)",
    "sentence": "sentences that have changed (`limner store repair`)",
    "model": (
        "the model in the store's folder, or a calibration of it (`limner store repair` takes it back from its run, if "
        "that has it still)"
    ),
    "calibration": "the store's calibration: fit it anew (`limner calibrate --store`)",
}
"""Kinds of damage; limner itself leaves none of them behind, also when it is killed."""

BESIDE = ("file", "model", "calibration")
"""Damage that no repair mends."""

STALE = {
    "missing": (
        "pictures whose file is gone, or whose disk is away: bring that back, and nothing is lost (else `limner store "
        "sync STORE`, or `limner store delete STORE --missing`)"
    ),
    "copies": "copies that are gone of pictures whose other files are there (`limner store sync STORE`)",
    "waiting": "pictures that are out of the search, and wait for their files (docs/watch.md)",
    "changed": "pictures whose file has changed since (`limner index` again)",
}
"""Kinds of changes to files since they were indexed; no damage."""


@dataclass
class Findings:
    """The findings so far: the number of each kind, and an example."""

    pictures: int = 0
    sentences: int = 0
    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def note(self, kind: str, example: object) -> None:
        """Count one more of a kind; the example may be what a damaged row has in place of its path."""
        count, first = self.found.get(kind, (0, as_text(example)))
        self.found[kind] = (count + 1, first)

    def report(self) -> Verification:
        """Sum up all findings, for people and programs."""
        return Verification(
            pictures=self.pictures,
            sentences=self.sentences,
            # files that went or changed are no damage
            sound=not any(kind in DAMAGE for kind in self.found),
            found={kind: Finding(count=count, example=text) for kind, (count, text) in self.found.items()},
        )


def verify(
    files: StoreFiles,
    *,
    hashes: bool = False,
    workers: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Read all of a store, and the model if it holds it, and check that every picture's file exists unchanged.

    With `hashes` also read each file and compare its bytes. All rows are of one moment; others may write meanwhile.
    """
    findings = Findings()
    try:
        expect_own_files(files.folder)
    except StoreError as error:
        # nothing else is read: it may be a pipe, which would keep this waiting
        findings.note("file", str(error))
        return findings.report()
    try:
        for fault in files.rows.faults():
            findings.note("file", fault)
        with files.rows.reading() as reading, ThreadPoolExecutor(workers) as threads:
            total = reading.state("pictures").rows
            for row, faults in checked_pictures(files, reading):
                for kind in faults:
                    findings.note(kind, row.path)
            # threads: waiting for the disk and hashing release the GIL
            for some in chunks(list(reading.pictures()), 1024):
                images = [StoredImage.of(row) for row in some if row_digest(row[:-1]) == row.digest]
                places = [(image, place) for image in images for place in image.places]
                states = threads.map(lambda one: _state(one[0], one[1], hashes), places)
                by_path = {place.path: state for (_, place), state in zip(places, states, strict=True)}
                for image in images:
                    _note_places(findings, image, {path: by_path[path] for path in image.paths})
                findings.pictures += len(some)
                if progress is not None:
                    progress(findings.pictures, max(total, findings.pictures))
            _check_sentences(findings, files, reading)
    except StoreError as error:
        findings.note("file", str(error))
    _check_calibration(findings, files)
    if files.manifest.run == IN_STORE:
        _check_model(findings, files)
    return findings.report()


def checked_pictures(files: StoreFiles, reading: Reading) -> Iterator[tuple[PictureRow, list[str]]]:
    """All rows of images, each with the kinds of its damage; last, if need be, one for all of them together.

    The values of a row with the damage "row" are of any type: nobody may go by them.
    """
    state, digests = reading.state("pictures"), list[bytes]()
    for every in chunks(list(reading.pictures())):
        digests += known(row.digest for row in every)
        some = []
        for row in every:
            if row_digest(row[:-1]) == row.digest:
                some.append(row)
            else:
                yield row, ["row"]
        vectors, thumbnails = _vectors(reading, some), reading.thumbnails([row.number for row in some])
        regions = {} if files.region_shape is None else reading.regions([row.number for row in some])
        for row in some:
            faults = []
            if not _is_vector(vectors.get(row.number, b""), row.vector_sum, files.dim):
                faults.append("vector")
            if row.thumbnail_digest is not None and not _is(thumbnails, row, row.thumbnail_digest):
                faults.append("thumbnail")
            content = regions.get(row.number, b"")
            if files.region_shape is not None and not (
                _is(regions, row, row.regions_digest) and np.isfinite(np.frombuffer(content, "<f2")).all()
            ):
                faults.append("map")
            yield row, faults
    if (len(digests), total_of(digests)) != (state.rows, state.total):
        yield _NOBODY._replace(path=f"{len(digests)} of {state.rows}"), ["rows"]


_NOBODY = PictureRow("", "", NOWHERE, "", 0, 0, None, None, None, "{}", None, 0, 0, None, None, b"")


def checked_sentences(files: StoreFiles, reading: Reading) -> Iterator[tuple[SentenceRow, list[str]]]:
    """All sentences with their damage: "row" or "vector"; last, if need be, one for all of them together."""
    state, digests = reading.state("sentences"), list[bytes]()
    for row, vector in reading.sentences():
        digests += known([row.digest])
        if row_digest(row[:-1]) != row.digest:
            yield row, ["row"]
        else:
            yield row, [] if _is_vector(vector, row.vector_sum, files.dim) else ["vector"]
    if (len(digests), total_of(digests)) != (state.rows, state.total):
        yield SentenceRow("", f"{len(digests)} of {state.rows} sentences", None, 0, b""), ["rows"]


def _vectors(reading: Reading, rows: Sequence[PictureRow]) -> dict[int, bytes]:
    """Vectors by number, of those that are there."""
    found: dict[int, bytes] = {}
    try:
        for places, contents in reading.vectors(np.array([row.number for row in rows], np.int64)):
            found |= {rows[place].number: one for place, one in zip(places.tolist(), contents, strict=True)}
    except StoreError:
        # one of them is gone: each by itself
        for row in rows if len(rows) > 1 else ():
            found |= _vectors(reading, [row])
    return found


def _is_vector(content: object, vector_sum: int, dim: int) -> bool:
    # of a sentence it stands in the row, and may be of any type
    if not isinstance(content, bytes) or len(content) != 4 * dim:
        return False
    vector = np.frombuffer(content, "<f4")[None]
    return vector_sums(vector) == [vector_sum] and bool(np.isfinite(vector).all())


def _is(held: dict[int, bytes], row: PictureRow, digest: bytes | None) -> bool:
    content = held.get(row.number)
    return content is not None and digest_of(content) == digest


def _check_sentences(findings: Findings, files: StoreFiles, reading: Reading) -> None:
    for row, faults in checked_sentences(files, reading):
        if "rows" in faults:
            findings.note("rows", row.text)
            continue
        if faults:
            findings.note("sentence", row.path or row.text)
        findings.sentences += 1


def _check_calibration(findings: Findings, files: StoreFiles) -> None:
    from limner.store.calibration import load_store_calibration

    try:
        load_store_calibration(files, files.fingerprint)
    except LimnerError as error:
        findings.note("calibration", str(error))


def _check_model(findings: Findings, files: StoreFiles) -> None:
    # here: what a store without a model need not wait for
    from limner.inference.calibration_file import load_calibration
    from limner.store.kept_model import load_stored_model

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


def _note_places(findings: Findings, image: StoredImage, states: Mapping[str, str | None]) -> None:
    """Note what has become of the files of an image; one that is gone altogether counts once."""
    if image.gone is not None or set(states.values()) == {"missing"}:
        findings.note("missing" if image.gone is None else "waiting", image.path)
        return
    for path, state in states.items():
        if state is not None:
            findings.note("copies" if state == "missing" else state, path)


def _state(entry: StoredImage, place: Place, hashes: bool) -> str | None:
    """Tell which kind of `STALE` a file of an image is; None if it is unchanged."""
    path = Path(place.path)
    try:
        status = path.stat()
        # by its bytes a file that was only touched is unchanged: copies and checkouts give new times
        same = status.st_size == entry.size and (hashes or status.st_mtime_ns == place.mtime)
        if same and hashes:
            with path.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256
    except OSError:
        # also a file without the right to read it: limner cannot show it either
        return "missing"
    return None if same else "changed"
