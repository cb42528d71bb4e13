"""Indexing by workers elsewhere leaves the store that one process leaves."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from limner.search.batch_look import Looked, looked_at
from limner.search.image_look import Task
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.store.contents import region_features
from limner.store.contents import thumbnails as thumbnails_of
from limner.store.files import StoreFiles
from limner.store_reports import IndexReport
from tests.search.fake import DIM, FakeEncoder, draw, vectors_of


class Backwards:
    """Does all lists by threads, and answers the last one first."""

    def __init__(self, encoder: FakeEncoder | None = None, *, regions: bool = False) -> None:
        self.encoder, self.regions = encoder or FakeEncoder(), regions
        self.lists: list[Sequence[Task]] = []

    def looks(self, lists: Iterable[Sequence[Task]]) -> Iterator[Looked]:
        self.lists = list(lists)
        with ThreadPoolExecutor(2) as threads:
            for tasks in reversed(self.lists):
                yield looked_at(tasks, self.encoder, threads, threading.Lock(), regions=self.regions)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return [draw(tmp_path / "pictures" / f"{number:02}.png", number) for number in range(11)]


def made(folder: Path) -> StoreFiles:
    return StoreFiles.create(folder, fingerprint="a" * 64, dim=DIM, run="run")


def check_equal(store: StoreFiles, other: StoreFiles) -> None:
    """Equal rows, vectors and thumbnails."""
    store, other = StoreFiles.open(store.folder), StoreFiles.open(other.folder)
    assert len(store) == len(store.entries()) == len(other)
    assert store.entries() == other.entries()
    ids = [entry.id for entry in other.entries().values()]
    np.testing.assert_array_equal(vectors_of(store, ids), vectors_of(other, ids))
    assert thumbnails_of(store, ids) == thumbnails_of(other, ids)


def test_workers_leave_the_store_of_one_process(tmp_path: Path, pictures: list[Path]) -> None:
    folder = pictures[0].parent
    for name in ("00x.jpg", "05x.jpg", "zz.jpg"):
        (folder / name).write_text(f"no picture: {name}")
    metadata = {str(pictures[3]): {"identity": 7, "camera": "c1"}, "/elsewhere.png": {}}
    alone, together, workers = made(tmp_path / "alone"), made(tmp_path / "together"), Backwards()
    calls: list[tuple[int, int]] = []
    report = index_pictures(
        FakeEncoder(),
        together,
        [folder],
        metadata=metadata,
        batch_size=3,
        cluster=workers,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert report == index_pictures(FakeEncoder(), alone, [folder], metadata=metadata, batch_size=3)
    assert [Path(path).name for path, _ in report.skipped] == ["00x.jpg", "05x.jpg", "zz.jpg"]
    assert [len(tasks) for tasks in workers.lists] == [3, 3, 3, 3, 2]
    assert calls == [(done, 14) for done in (2, 5, 8, 11, 14)]
    check_equal(together, alone)


def test_what_the_store_knows_is_not_sent(tmp_path: Path, pictures: list[Path]) -> None:
    alone, together = made(tmp_path / "alone"), made(tmp_path / "together")
    for store in (alone, together):
        index_pictures(FakeEncoder(), store, pictures[:9])
    # new facts of one, another time of a second, other bytes in a third, no file any more in a fourth
    facts = {str(pictures[0]): {"camera": "c2"}}
    os.utime(pictures[1], ns=(5, 5))
    draw(pictures[2], 99)
    pictures[3].unlink()
    workers = Backwards()
    report = index_pictures(
        FakeEncoder(), together, [pictures[0].parent], metadata=facts, batch_size=4, cluster=workers
    )
    assert report == IndexReport(added=2, updated=2, unchanged=6)
    assert {Path(task.path) for tasks in workers.lists for task in tasks} == {pictures[2], *pictures[9:]}
    assert workers.encoder.encoded == 3
    assert index_pictures(FakeEncoder(), alone, [pictures[0].parent], metadata=facts) == report
    check_equal(together, alone)
    again = Backwards()
    assert index_pictures(FakeEncoder(), together, pictures[4:], cluster=again).unchanged == 7
    assert again.lists == []


def test_sentences_of_another_picture_are_forgotten(tmp_path: Path, pictures: list[Path]) -> None:
    store, path = made(tmp_path / "store"), str(pictures[0])
    index_pictures(FakeEncoder(), store, pictures, metadata={path: {"identity": "a"}})
    SentenceTable(store).index(FakeEncoder(), [Sentence("a red coat", path)])
    draw(pictures[0], 77)
    report = index_pictures(
        FakeEncoder(), store, pictures, metadata={path: {"identity": "b"}}, cluster=Backwards()
    )
    assert (report.updated, report.forgotten) == (1, 1)
    assert len(SentenceTable(store)) == 0


def test_region_features_come_along(tmp_path: Path, pictures: list[Path]) -> None:
    class WithRegions(FakeEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.reranker = self  # type: ignore[assignment]

        def region_features(self, pixels: np.ndarray) -> np.ndarray:
            return pixels[:, ::4, ::4].astype(np.float16)

    stores = []
    for name, cluster in (("alone", None), ("together", Backwards(WithRegions(), regions=True))):
        store = StoreFiles.create(
            tmp_path / name, fingerprint="a" * 64, dim=DIM, run="run", region_shape=(2, 2, 3)
        )
        index_pictures(WithRegions(), store, pictures, batch_size=4, cluster=cluster)
        stores.append(store)
    check_equal(*stores)
    ids = [entry.id for entry in stores[0].entries().values()]
    regions = region_features(stores[0], ids)
    assert regions.any()
    np.testing.assert_array_equal(regions, region_features(stores[1], ids))


def test_no_pixels_come_back(pictures: list[Path]) -> None:
    tasks = [Task(str(path), None, None) for path in pictures]
    with ThreadPoolExecutor(2) as threads:
        looked = looked_at(tasks, FakeEncoder(), threads, threading.Lock(), regions=False)
    assert looked.batch is not None
    assert len(looked) == 11
    assert all(seen.pixels is None and seen.thumbnail for seen in looked.batch.seen)
