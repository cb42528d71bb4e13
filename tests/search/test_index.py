import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limner.errors import DataError, SettingsError, StoreError
from limner.search.index import index_pictures, reindex
from limner.store import files as store_files
from limner.store.files import StoreFiles
from limner.store_reports import IndexReport
from limner.types import ImageSource
from tests.search.fake import DIM, FakeEncoder, draw, vectors_of


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return [draw(tmp_path / "pictures" / f"{number:02}.png", number) for number in range(11)]


@pytest.fixture
def store(tmp_path: Path) -> StoreFiles:
    return StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")


def check_rows(store: StoreFiles, pictures: list[Path]) -> None:
    """Each picture once, with the vector of its present bytes."""
    store = StoreFiles.open(store.folder)
    entries = store.entries()
    assert len(store) == len(entries) == len(pictures)
    assert sorted(entries) == sorted(map(str, pictures))
    stored = vectors_of(store, [entries[str(path)].id for path in pictures])
    np.testing.assert_array_equal(stored, FakeEncoder().encode_images(pictures))


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 1), (3, 2), (64, None)])
def test_every_picture_is_added_once(
    pictures: list[Path], store: StoreFiles, batch_size: int, workers: int | None
) -> None:
    calls: list[tuple[int, int]] = []
    encoder = FakeEncoder()
    summary = index_pictures(
        encoder,
        store,
        [pictures[0].parent, pictures[3]],
        batch_size=batch_size,
        workers=workers,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert summary == IndexReport(added=11, unchanged=0, updated=0, skipped=())
    # as docs/library.md has it
    assert str(summary) == "IndexReport(11 added, 0 updated, 0 unchanged, 0 skipped, 0 passed over)"
    assert calls == [(done, 11) for done in range(1, 12)]
    check_rows(store, pictures)


def test_of_few_paths_only_their_rows_are_read(
    pictures: list[Path], store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_pictures(FakeEncoder(), store, pictures)
    every = store.entries()
    monkeypatch.setattr(store_files, "_FEW", 3)
    names = [str(path) for path in pictures]
    for some in ([], names[:1], [*names[4:6], "/nowhere.png"]):
        assert store.entries(some) == {path: every[path] for path in some if path in every}
    assert store.entries(names) == every


def test_running_again_reads_nothing(
    pictures: list[Path], store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_pictures(FakeEncoder(), store, pictures)
    version = store.snapshot().version
    encoder = FakeEncoder()
    monkeypatch.setattr(encoder, "prepare_image", lambda path: pytest.fail(f"{path} was read"))
    assert index_pictures(encoder, store, pictures) == IndexReport(added=0, unchanged=11, updated=0)
    assert store.snapshot().version == version


def test_new_and_changed_files_are_taken(pictures: list[Path], store: StoreFiles) -> None:
    index_pictures(FakeEncoder(), store, pictures)
    old = store.entries()[str(pictures[4])]
    draw(pictures[4], 99)
    os.utime(pictures[4], ns=(0, old.mtime + 1_000_000))
    fresh = draw(pictures[0].parent / "new.png", 12)
    encoder = FakeEncoder()
    assert index_pictures(encoder, store, [fresh.parent]) == IndexReport(added=1, unchanged=10, updated=1)
    assert encoder.encoded == 2
    check_rows(store, [*pictures, fresh])
    assert store.entries()[str(pictures[4])].sha256 != old.sha256


def test_a_new_time_stamp_alone_encodes_nothing(pictures: list[Path], store: StoreFiles) -> None:
    index_pictures(FakeEncoder(), store, pictures)
    for path in pictures:
        os.utime(path, ns=(5, 5))
    encoder = FakeEncoder()
    assert index_pictures(encoder, store, pictures) == IndexReport(added=0, unchanged=11, updated=0)
    assert encoder.encoded == 0
    assert {entry.mtime for entry in store.entries().values()} == {5}
    check_rows(store, pictures)


def test_unreadable_pictures_are_listed(pictures: list[Path], store: StoreFiles) -> None:
    folder = pictures[0].parent
    (folder / "broken.jpg").write_bytes(b"no picture")
    (folder / "gone.jpg").symlink_to(folder / "nowhere")
    (folder / "note.txt").write_text("never tried in a folder")
    os.mkfifo(folder / "pipe.png")
    strange = os.fsdecode(os.fsencode(folder) + b"/\xff.png")
    Path(strange).write_bytes(pictures[0].read_bytes())
    summary = index_pictures(FakeEncoder(), store, [folder, folder / "note.txt"])
    assert summary.added == 11
    reasons = dict(summary.skipped)
    assert {Path(path).name for path in reasons} == {
        "broken.jpg",
        "gone.jpg",
        "note.txt",
        "pipe.png",
        Path(strange).name,
    }
    assert reasons[str(folder / "broken.jpg")].startswith("not a picture")
    assert "No such file" in reasons[str(folder / "gone.jpg")]
    assert reasons[str(folder / "pipe.png")] == "not a regular file"
    assert "Unicode" in reasons[strange]
    check_rows(store, pictures)


def test_a_picture_that_changes_while_it_is_read_is_not_stored(
    pictures: list[Path], store: StoreFiles
) -> None:
    encoder = FakeEncoder()
    prepare = encoder.prepare_image

    def slow(source: ImageSource) -> np.ndarray:
        pixels = prepare(source)
        if str(source) == str(pictures[2]):
            pictures[2].write_bytes(pictures[2].read_bytes() + b"more")
        return pixels

    encoder.prepare_image = slow  # type: ignore[method-assign]
    summary = index_pictures(encoder, store, pictures)
    assert [path for path, _ in summary.skipped] == [str(pictures[2])]
    assert index_pictures(FakeEncoder(), store, pictures).added == 1


def test_metadata_is_kept_changed_and_counted(pictures: list[Path], store: StoreFiles) -> None:
    names = [str(path) for path in pictures]
    facts: dict[str, dict[str, object]] = {
        names[0]: {"identity": 7, "camera": "c1"},
        names[1]: {"note": "x"},
        "/elsewhere.png": {},
    }
    assert index_pictures(FakeEncoder(), store, pictures[:2], metadata=facts) == IndexReport(
        added=2, unused_metadata=("/elsewhere.png",)
    )
    assert store.entries()[names[0]].identity == "7"
    assert store.entries()[names[1]].metadata == {"note": "x"}
    # Without metadata, or with the same, all stays; a changed picture keeps its facts.
    draw(pictures[0], 50)
    os.utime(pictures[0], ns=(9, 9))
    assert index_pictures(FakeEncoder(), store, pictures[:2]) == IndexReport(added=0, unchanged=1, updated=1)
    assert store.entries()[names[0]].metadata == {"camera": "c1"}
    encoder = FakeEncoder()
    changed: dict[str, dict[str, object]] = {names[0]: facts[names[0]], names[1]: {"identity": "q"}}
    assert index_pictures(encoder, store, pictures[:2], metadata=changed) == IndexReport(
        added=0, unchanged=1, updated=1
    )
    assert encoder.encoded == 0
    assert (store.entries()[names[1]].identity, store.entries()[names[1]].metadata) == ("q", {"note": "x"})
    check_rows(store, pictures[:2])


def test_misuse_is_refused_before_anything_is_stored(pictures: list[Path], store: StoreFiles) -> None:
    with pytest.raises(StoreError, match="limner reindex"):
        index_pictures(FakeEncoder("c" * 64), store, pictures)
    with pytest.raises(StoreError, match="width"):
        index_pictures(FakeEncoder(dim=3), store, pictures)
    with pytest.raises(DataError, match="no such file"):
        index_pictures(FakeEncoder(), store, [*pictures, "missing.png"])
    for bad in (float("inf"), 10**400):
        with pytest.raises(DataError, match=r"JSON can hold, whole numbers within ±2\^63"):
            index_pictures(FakeEncoder(), store, pictures, metadata={str(pictures[0]): {"x": bad}})
    for sizes in ({"batch_size": 0}, {"workers": 0}):
        with pytest.raises(SettingsError, match="at least 1"):
            index_pictures(FakeEncoder(), store, pictures, **sizes)  # type: ignore[arg-type]
    assert len(store) == 0


def test_stopped_by_an_error_keeps_whole_batches(pictures: list[Path], store: StoreFiles) -> None:
    class Failing(FakeEncoder):
        def encode_pixels(self, pixels: np.ndarray) -> np.ndarray:
            if self.encoded >= 6:
                raise KeyboardInterrupt
            return super().encode_pixels(pixels)

    with pytest.raises(KeyboardInterrupt):
        index_pictures(Failing(), store, pictures, batch_size=3)
    check_rows(store, pictures[:6])
    assert index_pictures(FakeEncoder(), store, pictures, batch_size=3) == IndexReport(
        added=5, unchanged=6, updated=0
    )
    check_rows(store, pictures)


def test_indexing_holds_the_store_from_first_to_last(pictures: list[Path], store: StoreFiles) -> None:
    refused = []

    def write_too(done: int, total: int) -> None:
        with pytest.raises(StoreError, match="is being written by another process"):
            index_pictures(FakeEncoder(), StoreFiles.open(store.folder), pictures)
        refused.append(done)

    index_pictures(FakeEncoder(), store, pictures, batch_size=3, progress=write_too)
    assert refused == list(range(1, 12))
    check_rows(store, pictures)
    assert (
        index_pictures(
            FakeEncoder(), StoreFiles.open(store.folder), [Path(str(store.folder)).parent]
        ).unchanged
        == 11
    )


KILLED = """
import sys, time
from limner.store import writer as store_writer
from limner.store import files as store_files
from limner.search.index import index_pictures, reindex
from limner.store.files import StoreFiles
from tests.search.fake import FakeEncoder

class Slow(FakeEncoder):
    def encode_pixels(self, pixels):
        time.sleep(0.05)
        return super().encode_pixels(pixels)

store_writer.IMAGES = 4
index_pictures(Slow(), StoreFiles.open(sys.argv[1]), [sys.argv[2]], batch_size=2,
               progress=lambda done, total: print(done, flush=True))
"""


def test_killed_at_any_moment_every_picture_is_there_once(tmp_path: Path, store: StoreFiles) -> None:
    pictures = [draw(tmp_path / "pictures" / f"{number:03}.png", number) for number in range(60)]
    command = [sys.executable, "-c", KILLED, str(store.folder), str(tmp_path / "pictures")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        for _ in range(9):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    before = len(StoreFiles.open(store.folder))
    assert 0 < before < 60
    assert before % 2 == 0
    assert index_pictures(FakeEncoder(), store, pictures) == IndexReport(added=60 - before, unchanged=before)
    check_rows(store, pictures)


def test_what_is_known_of_a_picture_goes_by_one_rule(tmp_path: Path, store: StoreFiles) -> None:
    """Facts that the metadata name replace what a picture has, null takes one away, and others stay."""
    picture = tmp_path / "a.jpg"

    def drawn(colour: str, taken: str | None = "2020:01:01 12:00:00") -> None:
        image = Image.new("RGB", (8, 8), colour)
        exif = Image.Exif()
        if taken is not None:
            exif.get_ifd(0x8769)[0x9003] = taken
        image.save(picture, exif=exif)

    def known(metadata: dict[str, object] | None = None) -> tuple[object, ...]:
        index_pictures(
            FakeEncoder(), store, [picture], metadata={str(picture): metadata} if metadata else None
        )
        entry = store.entries()[str(picture)]
        return entry.identity, entry.taken and entry.taken.year, entry.metadata

    drawn("red")
    assert known() == (None, 2020, {})
    assert known({"identity": "p", "taken": "2026-11-20", "camera": 3}) == ("p", 2026, {"camera": 3})
    assert known() == ("p", 2026, {"camera": 3})
    drawn("blue")
    assert known() == ("p", 2026, {"camera": 3})
    assert known({"camera": 4}) == ("p", 2026, {"camera": 4})
    assert known({"camera": None, "identity": None, "taken": None}) == (None, 2020, {})
    drawn("green")
    assert known({"identity": "q"}) == ("q", 2020, {})
    # what was read from the file follows the file, and goes with it
    drawn("green", "2019:01:02 03:04:05")
    assert known() == ("q", 2019, {})
    drawn("green", None)
    assert known() == ("q", None, {})
    # what was told stays, and gives way to what the file says by now
    assert known({"taken": "2026-11-20", "identity": None}) == (None, 2026, {})
    drawn("green", "2018:01:02 03:04:05")
    assert known() == (None, 2026, {})
    [item] = store.snapshot().items(np.array([0]))
    assert (item.taken, item.taken_from) == (datetime(2026, 11, 20), "told")
    assert known({"camera": 1, "taken": None}) == (None, 2018, {"camera": 1})
    [item] = store.snapshot().items(np.array([0]))
    assert item.taken_from == "file"
    other = StoreFiles.create(tmp_path / "other", fingerprint=store.fingerprint, dim=store.dim, run=store.run)
    reindex(store, FakeEncoder(), other)
    assert other.entries() == store.entries()
