"""Of what was erased nothing is left in any file; of what was not, everything is."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from limner.errors import StoreError, UnfinishedErasureError
from limner.search.repair import repair
from limner.store import erase as module
from limner.store.contents import thumbnails
from limner.store.entry import StoredImage
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.sqlite_rows import SqliteRows
from limner.store.sqlite_transactions import SqliteWriting
from limner.store.uploads import MARK, Uploads
from limner.store.verify import DAMAGE, verify
from tests.search.fake import FakeEncoder
from tests.store.erasing import Log, Made, add, answers, left_of, made, ranking, store_of

CASE = ("rows", "share", "commits", "regions", "sentences", "updated", "earlier", "seed")


@given(
    rows=st.integers(1, 60),
    share=st.floats(0, 1),
    commits=st.integers(1, 4),
    regions=st.booleans(),
    sentences=st.booleans(),
    updated=st.booleans(),
    earlier=st.booleans(),
    seed=st.integers(0, 99),
)
@example(**dict(zip(CASE, (41, 1 / 41, 1, True, True, False, False, 0), strict=True)))
@example(**dict(zip(CASE, (41, 1 / 41, 3, True, True, True, True, 1), strict=True)))
@example(**dict(zip(CASE, (41, 1.0, 2, True, True, False, False, 2), strict=True)))
@example(**dict(zip(CASE, (1000, 0.999, 4, False, True, True, False, 3), strict=True)))
@example(**dict(zip(CASE, (1000, 0.05, 2, True, False, False, True, 4), strict=True)))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_left(
    rows: int,
    share: float,
    commits: int,
    regions: bool,
    sentences: bool,
    updated: bool,
    earlier: bool,
    seed: int,
    tmp_path: Path,
) -> None:
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    some = [made(number, seed, regions) for number in range(rows)]
    files = store_of(tmp_path / "store", some, commits, sentences)
    before_update: list[bytes] = []
    if updated:
        # rows of before and their bytes are to go as well
        changed = made(0, seed + 100, regions)
        entry = StoredImage(**{**vars(changed.entry), "path": some[0].entry.path})
        before_update = some[0].needles[:2] + some[0].needles[4:7]
        some[0] = Made(entry, changed.vector, changed.regions, changed.thumbnail, some[0].sentence)
        add(files, some[:1])
    gone = some[: round(rows * share)]
    stays = some[len(gone) :]
    reader = StoreFiles.open(files.folder)
    expected, ranked = answers(reader, stays), ranking(reader, stays)
    needles = [needle for one in gone for needle in one.needles]
    assert not gone or len({needle for _, needle in left_of(files.folder, gone[0].needles)}) > 4
    if earlier:
        files.delete([one.entry.id for one in gone])
    report = erase(files, () if earlier else [one.entry.id for one in gone])
    assert left_of(files.folder, needles + before_update) == set()
    assert report.found == ()
    if not earlier:
        assert report.pictures == len(gone)
        assert report.sentences == (len(gone) if sentences else 0)
        # not the raw form of a hash
        assert not gone or report.traces.visible > 0.8 * report.traces.searched
    assert report.left == len(stays) == len(files)
    for one in (files, reader, StoreFiles.open(files.folder)):
        assert answers(one, stays) == expected
        assert ranking(one, stays) == ranked
    assert not verify(files).found.keys() & DAMAGE.keys()
    add(files, gone)
    assert answers(reader, stays + gone)["vectors"] == b"".join(one.vector.tobytes() for one in stays + gone)


class KilledError(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(step: int) -> Iterator[list[int]]:
    """End at the n-th operation on the disk; a process that has ended does nothing more."""
    count = [0]

    def ending(do: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] - 1 < step:
                return do(*args, **kwargs)
            raise KilledError

        return instead

    with pytest.MonkeyPatch.context() as patch:
        for of, name in (
            (Path, "unlink"),
            (SqliteWriting, "delete"),
            (SqliteWriting, "delete_sentences"),
            (SqliteWriting, "commit"),
            (SqliteRows, "set_text"),
            (SqliteRows, "scrub"),
            (Uploads, "remove_leftovers"),
        ):
            patch.setattr(of, name, ending(getattr(of, name)))
        yield count


def test_killed_at_each_step(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    some = [made(number, 5, True) for number in range(6)]
    digest = hashlib.sha256(b"a picture").hexdigest()
    upload = StoredImage(
        f"{uploads}/{digest}.jpg", digest, 1, 1, metadata={"name": "x", "note": "a long note"}
    )
    some[1] = Made(upload, some[1].vector, some[1].regions, some[1].thumbnail, some[1].sentence)
    gone, stays = some[:2], some[2:]
    template = store_of(tmp_path / "template", some, 2)
    all_before, expected = answers(template, some), answers(template, stays)
    needles = [needle for one in gone for needle in one.needles]
    states = set()
    for step in range(500):
        folder = tmp_path / f"store {step}"
        shutil.copytree(tmp_path / "template", folder)
        Path(upload.path).write_bytes(b"a picture")
        files = StoreFiles.open(folder)
        (uploads / MARK).unlink(missing_ok=True)
        Uploads.claim(uploads, files)
        with killed_at(step) as count, suppress(KilledError):
            erase(files, [one.entry.id for one in gone], uploads=uploads)
        if count[0] <= step:
            break
        for reader in (StoreFiles.open(folder), files):
            held = len(reader)
            states.add(held)
            assert answers(reader, stays) == expected
            if held == len(some):
                assert answers(reader, some) == all_before
            else:
                assert held == len(stays)
        # whichever it was, the same call ends in the store without them
        again = erase(StoreFiles.open(folder), [one.entry.id for one in gone], uploads=uploads)
        assert (again.left, again.found) == (len(stays), ())
        assert left_of(folder, needles) == set()
        assert not Path(upload.path).exists()
        assert answers(StoreFiles.open(folder), stays) == expected
        shutil.rmtree(folder)
    assert step > 5
    assert states == {len(some), len(stays)}


def test_a_name_that_is_not_there_and_one_that_others_contain(tmp_path: Path) -> None:
    some = [made(number, 7, False) for number in range(4)]
    files = store_of(tmp_path / "store", some)
    erase(files)
    report = erase(files, paths=["/people/camera"], ids=["0123456789abcdef" * 2])
    assert (report.pictures, report.left, report.found) == (0, 4, ())
    assert report.unknown == ("0123456789abcdef" * 2, "/people/camera")
    # the path is a part of others; of the names that were never there nothing is seen
    assert (report.traces.shared, report.traces.visible) == (1, 0)


def test_bytes_that_others_share(tmp_path: Path) -> None:
    one, other = made(0, 8, True), made(1, 8, True)
    twin = Made(
        StoredImage(**{**vars(other.entry), "sha256": one.entry.sha256, "identity": one.entry.identity}),
        one.vector,
        one.regions,
        one.thumbnail,
        one.sentence,
    )
    files = store_of(tmp_path / "store", [one, twin])
    report = erase(files, one.entry.id)
    assert report.found == ()
    # hash, identity, vector, digests, sentence; region features and thumbnail
    assert report.traces.shared >= 8
    assert left_of(files.folder, [one.entry.path.encode(), one.entry.id.encode()]) == set()
    assert thumbnails(files, [twin.entry.id]) == [one.thumbnail]


def test_what_is_left_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [made(number, 9, True) for number in range(12)]
    files = store_of(tmp_path / "store", some)
    (tmp_path / "store" / "forgotten.txt").write_bytes(b"..." + some[3].entry.path.encode())
    # SQLite as it is without VACUUM; while somebody has the store open its log stays
    held = sqlite3.connect(tmp_path / "store" / "store.sqlite")
    held.execute("SELECT count(*) FROM texts").fetchone()
    monkeypatch.setattr(SqliteRows, "scrub", lambda self: None)
    found = {(Path(one.file).name, one.kind) for one in erase(files, some[3].entry.id).found}
    assert ("forgotten.txt", "path") in found
    kinds = {kind for name, kind in found if name.startswith("store.sqlite")}
    assert {"path", "vector", "text", "thumbnail", "region features"} <= kinds
    monkeypatch.undo()
    held.close()
    (tmp_path / "store" / "forgotten.txt").unlink()
    assert erase(files, some[3].entry.id).found == ()
    assert left_of(files.folder, some[3].needles) == set()


def test_a_very_large_erasure_is_proved_by_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRACED", 5)
    some = [made(number, 10, False) for number in range(14)]
    files = store_of(tmp_path / "store", some)
    report = erase(files, [one.entry.id for one in some[:12]])
    assert (report.pictures, report.traced, report.found) == (12, 8, ())
    assert left_of(files.folder, [needle for one in some[:12] for needle in one.needles]) == set()


def test_the_owners_files_stay(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    some = [made(number, 11, False) for number in range(3)]
    digest = hashlib.sha256(b"a picture").hexdigest()
    paths = [uploads / f"{digest}.jpg", uploads / "own.jpg", tmp_path / f"{digest}.jpg"]
    facts = {"name": "of a client", "note": "a note of one"}
    some = [
        Made(StoredImage(str(path), digest, 1, 1, metadata=facts), one.vector, None, None, one.sentence)
        for path, one in zip(paths, some, strict=True)
    ]
    for path in paths:
        path.write_bytes(b"a picture")
    files = store_of(tmp_path / "store", some)
    Uploads.claim(uploads, files)
    told: list[Any] = []
    report = erase(files, [one.entry.id for one in some], uploads=uploads, audit=Log(files, told))
    assert (report.uploads, report.audit_lines, report.left) == (1, 5, 0)
    assert [path.exists() for path in paths] == [False, True, True]
    # a refused request may have been told that name
    assert told == [(sorted(one.entry.id for one in some), [digest])]


def test_a_failing_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [made(number, 12, True) for number in range(5)]
    files = store_of(tmp_path / "store", some)
    expected = answers(files, some)

    def full(self: SqliteWriting) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(SqliteWriting, "commit", full)
    with pytest.raises(StoreError, match="full"):
        erase(files, some[0].entry.id)
    assert answers(files, some) == expected


def test_a_reader_that_reads_for_long_has_the_erasure_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.store.sqlite_file.WAIT", 0.1)
    some = [made(number, 17, False) for number in range(5)]
    files, reader = store_of(tmp_path / "store", some), StoreFiles.open(tmp_path / "store")
    with reader.rows.reading() as reading:
        assert reading.state("pictures").rows == 5
        with pytest.raises(UnfinishedErasureError, match="call it again when that is done") as failed:
            erase(files, identity=some[0].entry.identity)
        # what it has deleted is told now: the same call can no longer name it
        assert failed.value.keys == tuple(one.entry.id for one in some[:3])
        assert "3 pictures and 3 sentences are deleted, but their bytes may" in str(failed.value)
        with pytest.raises(StoreError, match=r"when that is done$"):
            erase(files, identity=some[0].entry.identity)
    # of nothing that meets the selection, the bytes go all the same
    report = erase(files, identity=some[0].entry.identity)
    assert (report.pictures, report.unmet, report.found) == (0, ("identity=person 0 of 17",), ())
    assert left_of(files.folder, [needle for one in some[:3] for needle in one.needles]) == set()


def test_identities_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    some = [made(number, 13, False) for number in range(6)]
    files = store_of(tmp_path / "store", some)
    told: list[Any] = []

    log = Log(files, told)
    erase(files, some[0].entry.id, audit=log)
    erase(files, identity="person 1 of 13", audit=log)
    # the first identity has two other images
    hashes = [one.entry.sha256 for one in some]
    assert [texts for _, texts in told] == [hashes[:1], ["person 1 of 13", *sorted(hashes[3:])]]
    # a call that was killed after its rows had gone is made again
    erase(files, identity="person 1 of 13", audit=log)
    assert told[2] == ([], ["person 1 of 13"])


def test_the_log_is_held_until_the_rows_have_gone_and_looked_at_then(tmp_path: Path) -> None:
    some = [made(number, 14, False) for number in range(3)]
    files = store_of(tmp_path / "store", some)
    log = Log(files, [], left=2)
    report = erase(files, some[0].entry.id, audit=log)
    assert log.held == [(3, 2)]
    # whoever waited for the log sees by this that what it has found may be gone
    before, behind = log.marks
    assert before != behind
    assert report.audit_lines == 5
    assert [(one.file, one.count) for one in report.found] == [("the audit log", 2)]


@pytest.mark.parametrize("name", ["store.sqlite", "model"])
def test_a_symbolic_link_is_refused(tmp_path: Path, name: str) -> None:
    some = [made(number, 16, False) for number in range(4)]
    files = store_of(tmp_path / "store", some)
    (tmp_path / "store" / "model").mkdir()
    files.forget()
    moved = tmp_path / "store" / name
    shutil.move(moved, tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    for call in (
        lambda: erase(files, some[0].entry.id),
        lambda: StoreFiles.open(files.folder),
        lambda: repair(files, FakeEncoder),
    ):
        with pytest.raises(
            StoreError, match="is a symbolic link; the files of a store must lie in its own folder"
        ):
            call()
    assert not verify(files).sound
    # the store's folder itself may be one
    moved.unlink()
    shutil.move(tmp_path / "elsewhere", moved)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert erase(StoreFiles.open(tmp_path / "link"), some[0].entry.id).found == ()
