"""Embeddings of a split by workers are those of one process, and of the files that lie here."""

from pathlib import Path

import numpy as np
import pytest

from limner.data.image_digests import image_digests
from limner.errors import DataError, ImageError
from limner.search.cluster_embeddings import cluster_embeddings
from tests.search.fake import FakeEncoder, draw
from tests.search.test_batch_look import Backwards


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return [draw(tmp_path / f"{number:02}.png", number) for number in (7, 3, 9, 1, 4, 8, 2)]


def test_rows_are_in_the_order_of_the_paths(pictures: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Backwards()
    calls: list[tuple[int, int]] = []
    # one of them twice, and as a path of this process's folder
    monkeypatch.chdir(pictures[0].parent)
    paths = [*pictures, Path(pictures[2].name)]
    vectors, regions = cluster_embeddings(
        workers, paths, image_digests(paths), batch_size=3, progress=lambda *told: calls.append(told)
    )
    assert regions is None
    np.testing.assert_array_equal(vectors, FakeEncoder().encode_images(paths))
    assert [[Path(task.path).name for task in tasks] for tasks in workers.lists] == [
        ["07.png", "03.png", "09.png"],
        ["01.png", "04.png", "08.png"],
        ["02.png"],
    ]
    assert calls == [(1, 7), (4, 7), (7, 7)]


def test_another_file_on_a_worker_is_refused(pictures: list[Path]) -> None:
    """What a run has learnt from is told by the files here."""
    digests = image_digests(pictures)
    draw(pictures[4], 99)
    with pytest.raises(DataError, match=r"04\.png: a worker of the cluster has read another file"):
        cluster_embeddings(Backwards(), pictures, digests)


def test_a_picture_that_cannot_be_read_ends_it(pictures: list[Path]) -> None:
    digests = image_digests(pictures)
    pictures[4].write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"04\.png: "):
        cluster_embeddings(Backwards(), pictures, digests)
