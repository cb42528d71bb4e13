import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limner.errors import DataError, LimnerError, StoreError
from limner.store.contents import thumbnails
from limner.store.entry import StoredImage
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.verify import verify
from tests.search.fake import nearest, vectors_of

MODEL, OTHER = "1234567890abcdef" * 4, "fedcba0987654321" * 4


def entry(name: str, **changes: object) -> StoredImage:
    return StoredImage(**{"path": f"/pictures/{name}", "sha256": "0" * 64, "size": 1, "mtime": 2, **changes})  # type: ignore[arg-type]


def store_of(folder: Path, dim: int = 4) -> StoreFiles:
    return StoreFiles.create(folder / "store", fingerprint=MODEL, dim=dim, run="runs/a")


def test_search_equals_a_full_sort_with_ties_by_path(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = store_of(tmp_path, 37)
    distinct = rng.standard_normal((60, 37)).astype(np.float32)
    vectors = distinct[rng.integers(0, 60, 300)]  # every vector about five times
    names = [f"{number:04}.jpg" for number in rng.permutation(300)]
    for start in range(0, 300, 70):
        store.add([entry(name) for name in names[start : start + 70]], vectors[start : start + 70])
    assert len(store) == 300
    for query in distinct[:10] + np.float32(0.1):
        exact = vectors.astype(np.float64) @ query.astype(np.float64)
        order = sorted(range(300), key=lambda row: (-round(exact[row], 4), names[row]))
        for k in (1, 7, 300, 1000):
            hits = nearest(store, query, k)
            assert [hit.name for hit in hits] == [names[row] for row in order[:k]]
            assert [hit.rank for hit in hits] == list(range(1, min(k, 300) + 1))
            np.testing.assert_allclose([hit.score for hit in hits], exact[order[:k]], rtol=1e-4, atol=1e-5)


def test_equal_scores_beyond_the_last_place_are_cut_by_path(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.add([entry(name) for name in "edcba"], np.ones((5, 4), np.float32))
    assert [hit.name for hit in nearest(store, np.ones(4, np.float32), 3)] == ["a", "b", "c"]


@pytest.mark.parametrize("count", [301, 1003])
def test_copies_of_a_picture_score_alike(tmp_path: Path, count: int) -> None:
    # A matrix product rounds the last rows of odd sizes in another order; copies must still be told by path alone.
    rng = np.random.default_rng(3)
    store = store_of(tmp_path, 515)
    vector = rng.standard_normal(515).astype(np.float32)
    names = [f"{number:04}.jpg" for number in range(count)]
    store.add([entry(name) for name in names], np.tile(vector, (count, 1)))
    for query in rng.standard_normal((6, 515)).astype(np.float32):
        hits = nearest(store, query, count)
        assert len({hit.score for hit in hits}) == 1
        assert [hit.name for hit in hits] == names


def test_hits_carry_what_was_stored(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    kept = entry("ä.jpg", identity="p7", metadata={"camera": 3, "tags": ["x", None], "name": "Zoë"})
    store.add([kept, entry("b.jpg")], np.eye(4, dtype=np.float32)[:2])
    first, second = nearest(StoreFiles.open(tmp_path / "store"), np.array([1, 0.5, 0, 0], np.float32))
    assert (first.path, first.identity, first.metadata) == (Path("/pictures/ä.jpg"), "p7", kept.metadata)
    assert (first.id, len(first.id)) == (kept.id, 32)
    assert (second.identity, second.metadata, second.score) == (None, {}, 0.5)
    assert json.loads(json.dumps(first.model_dump(mode="json")))["metadata"]["name"] == "Zoë"


def test_a_path_has_one_row(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.add([entry("a"), entry("b")], np.eye(4, dtype=np.float32)[:2])
    store.add([entry("c"), entry("a", sha256="1" * 64)], np.eye(4, dtype=np.float32)[2:])
    assert len(store) == 3
    assert store.entries()["/pictures/a"].sha256 == "1" * 64
    np.testing.assert_array_equal(vectors_of(store, [entry("a").id, entry("b").id]), np.eye(4)[[3, 1]])
    assert nearest(store, np.array([1, 0, 0, 0], np.float32), 1)[0].score == 0


def test_what_another_handle_adds_is_seen(tmp_path: Path) -> None:
    reader = store_of(tmp_path)
    query = np.ones(4, np.float32)
    assert nearest(reader, query) == []
    assert reader.entries() == {}
    StoreFiles.open(tmp_path / "store").add([entry("a")], np.ones((1, 4), np.float32))
    assert [hit.name for hit in nearest(reader, query)] == ["a"]
    held = reader.snapshot()
    assert reader.snapshot() is held
    StoreFiles.open(tmp_path / "store").add([entry("b")], np.ones((1, 4), np.float32))
    assert len(nearest(reader, query)) == 2


def test_another_model_is_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.check_model(MODEL, 4)
    with pytest.raises(
        StoreError, match=r"1234567890ab \(run runs/a\).*fedcba098765.*limner reindex"
    ) as caught:
        store.check_model(OTHER, 4)
    assert OTHER not in str(caught.value)
    with pytest.raises(StoreError, match="width 4, the model gives 5"):
        store.check_model(MODEL, 5)


def test_vectors_that_do_not_fit_are_refused_and_change_nothing(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.add([], np.empty((0, 4), np.float32))
    with pytest.raises(StoreError, match="width 4"):
        store.add([entry("a")], np.ones((1, 3), np.float32))
    with pytest.raises(StoreError, match="expected 1 vectors"):
        store.add([entry("a")], np.ones((2, 4), np.float32))
    with pytest.raises(DataError, match="NaN"):
        store.add([entry("a")], np.full((1, 4), np.nan, np.float32))
    with pytest.raises(DataError, match="twice"):
        store.add([entry("a"), entry("a")], np.ones((2, 4), np.float32))
    for bad in ({"x": float("nan")}, {"x": "\ud800"}, {"x": object()}, {"x": [{"y": 2**63}]}):
        with pytest.raises(DataError, match="JSON"):
            store.add([entry("a", metadata=bad)], np.ones((1, 4), np.float32))
    assert len(store) == 0


def test_folders_that_are_no_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such store"):
        StoreFiles.open(tmp_path / "missing")
    with pytest.raises(StoreError, match=r"not a store, it has no store\.sqlite"):
        StoreFiles.open(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(StoreError, match=r"not empty \(holds 'notes.txt'\)"):
        StoreFiles.create(tmp_path, fingerprint=MODEL, dim=4, run="r")
    with pytest.raises(StoreError, match="cannot be written"):
        StoreFiles.create(tmp_path / "notes.txt", fingerprint=MODEL, dim=4, run="r")


READS: dict[str, Callable[[StoreFiles], object]] = {
    "search": lambda opened: nearest(opened, np.ones(4, np.float32)),
    "entries": StoreFiles.entries,
    "entry": lambda opened: opened.entry(entry("a").id),
    "thumbnails": lambda opened: thumbnails(opened, [entry("a").id]),
    "length": len,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"SQLite format 3\0" + bytes(500)], ids=["empty", "text", "cut"]
)
def test_a_file_that_is_no_database_is_one_line_whatever_reads_it(
    tmp_path: Path, read: Callable[[StoreFiles], object], content: bytes
) -> None:
    store_of(tmp_path).add([entry("a")], np.ones((1, 4), np.float32))
    (tmp_path / "store" / "store.sqlite").write_bytes(content)
    with pytest.raises(StoreError, match="is damaged") as caught:
        read(StoreFiles.open(tmp_path / "store"))
    assert "\n" not in str(caught.value)


def test_a_reader_follows_a_folder_that_was_replaced(tmp_path: Path) -> None:
    store_of(tmp_path).add([entry("old")], np.ones((1, 4), np.float32))
    reader = StoreFiles.open(tmp_path / "store")
    assert [hit.name for hit in nearest(reader, np.ones(4, np.float32))] == ["old"]
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreError, match="is gone; is its disk mounted"):
        nearest(reader, np.ones(4, np.float32))
    store_of(tmp_path).add([entry("new")], np.ones((1, 4), np.float32))
    assert [hit.name for hit in nearest(reader, np.ones(4, np.float32))] == ["new"]
    assert list(reader.entries()) == ["/pictures/new"]
    shutil.rmtree(tmp_path / "store")
    StoreFiles.create(tmp_path / "store", fingerprint=OTHER, dim=4, run="r")
    with pytest.raises(StoreError, match=f"replaced by a store of model {OTHER[:12]}"):
        nearest(reader, np.ones(4, np.float32))


def test_what_was_deleted_is_purged_from_the_disk(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    secret, larger = b"\xff\xd8 a face of somebody \xff\xd9", bytes(100)
    store.add([entry(name) for name in "ab"], np.ones((2, 4), np.float32), thumbnails=[secret, larger])
    store.delete([entry("a").id])
    erase(store)
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert not any(secret in path.read_bytes() for path in files)
    assert list(StoreFiles.open(tmp_path / "store").entries()) == ["/pictures/b"]
    assert thumbnails(store, [entry("b").id]) == [larger]


def test_a_store_whose_making_was_killed_can_be_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / ".store.sqlite.partial").write_bytes(b"SQLite format 3")
    store = StoreFiles.create(folder, fingerprint=MODEL, dim=4, run="r")
    assert not {path.name for path in folder.iterdir()} - {
        ".store.lock",
        "store.sqlite",
        "store.sqlite-wal",
        "store.sqlite-shm",
    }
    assert nearest(StoreFiles.open(folder), np.ones(4, np.float32)) == []
    store.add([entry("a")], np.ones((1, 4), np.float32))
    assert len(StoreFiles.open(folder)) == 1


def test_a_lock_file_alone_is_no_content_and_none_is_left_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / ".store.lock").touch()
    StoreFiles.create(folder, fingerprint=MODEL, dim=4, run="r")
    with pytest.raises(StoreError, match=r"not empty \(holds 'store.sqlite'\)"):
        StoreFiles.create(folder, fingerprint=MODEL, dim=4, run="r")
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("x")
    with pytest.raises(StoreError, match="not empty"):
        StoreFiles.create(other, fingerprint=MODEL, dim=4, run="r")
    assert [path.name for path in other.iterdir()] == ["notes.txt"]


WRITTEN = "is being written by another process; try again when it is done"


def test_of_two_handles_one_writes_and_both_read(tmp_path: Path) -> None:
    first = store_of(tmp_path)
    second = StoreFiles.open(first.folder)
    with first.writing():
        first.add([entry("a")], np.ones((1, 4), np.float32))
        with first.writing():
            first.add([entry("b")], np.ones((1, 4), np.float32))
        with pytest.raises(StoreError, match=WRITTEN):
            second.add([entry("c")], np.ones((1, 4), np.float32))
        with pytest.raises(StoreError, match=WRITTEN):
            erase(second)
        assert len(second) == len(second.entries()) == len(nearest(second, np.ones(4, np.float32))) == 2
    second.add([entry("c")], np.ones((1, 4), np.float32))
    assert len(first) == 3


@pytest.mark.parametrize("shared", [False, True], ids=["a handle each", "one handle"])
def test_writers_at_once_leave_one_row_a_picture(tmp_path: Path, shared: bool) -> None:
    store, together = store_of(tmp_path), threading.Barrier(3)
    refused: list[str] = []
    vectors = np.ones((20, 4), np.float32)

    def write() -> None:
        mine = store if shared else StoreFiles.open(store.folder)
        together.wait()
        for _ in range(3):
            try:
                mine.add([entry(f"{number:02}") for number in range(20)], vectors)
            except StoreError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(StoreFiles.open(store.folder)) == 20
    assert all(WRITTEN in message for message in refused)


HOLDING = """
import sys
from limner.store.files import StoreFiles

with StoreFiles.open(sys.argv[1]).writing():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.add([entry("a")], np.ones((1, 4), np.float32))
    command = [sys.executable, "-c", HOLDING, str(store.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=WRITTEN):
            store.add([entry("b")], np.ones((1, 4), np.float32))
        assert len(nearest(StoreFiles.open(store.folder), np.ones(4, np.float32))) == 1
        process.kill()
    store.add([entry("b")], np.ones((1, 4), np.float32))
    assert len(store) == 2


FULL = """
import resource, sys
import numpy as np
from limner.errors import StoreError
from limner.store.files import StoreFiles
from tests.store.test_store_files import entry

store = StoreFiles.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    store.add([entry(str(number)) for number in range(50)], np.ones((50, 4), np.float32), thumbnails=[bytes(9000)] * 50)
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [150_000, 300_000, 500_000])
def test_a_disk_that_is_full_is_one_line_and_what_was_there_stays(tmp_path: Path, size: int) -> None:
    store = store_of(tmp_path)
    store.add([entry("a")], np.ones((1, 4), np.float32))
    command = [sys.executable, "-c", f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{FULL}"]
    done = subprocess.run(
        [*command, str(store.folder), str(size)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert list(store.entries()) == ["/pictures/a"]
    assert verify(StoreFiles.open(store.folder)).pictures == 1
    store.add([entry("b")], np.ones((1, 4), np.float32))
    assert len(store) == 2


def test_a_disk_that_refuses_is_one_line(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    (tmp_path / "store" / ".store.lock").unlink(missing_ok=True)
    (tmp_path / "store" / ".store.lock").mkdir()
    with pytest.raises(StoreError, match=r"store: cannot be written \(Is a directory\)$"):
        store.add([entry("b")], np.ones((1, 4), np.float32))


def test_the_card_says_what_was_given(tmp_path: Path) -> None:
    store_of(tmp_path)
    card = StoreFiles.open(tmp_path / "store").manifest
    assert (card.fingerprint, card.dim, card.run, card.format) == (MODEL, 4, "runs/a", 8)
    with pytest.raises(LimnerError, match="dim"):
        StoreFiles.create(tmp_path / "other", fingerprint=MODEL, dim=0, run="r")
