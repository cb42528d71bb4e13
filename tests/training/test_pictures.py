import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limner.data.transforms import ImageSettings, load
from limner.errors import ImageError
from limner.training import pictures as module
from limner.training.pictures import Pictures, ahead

SETTINGS = ImageSettings(resize=(24, 20), crop=(16, 12))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("noise")
    rng = np.random.default_rng(0)
    paths = [folder / f"{number}.png" for number in range(5)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (24, 20, 3), np.uint8)).save(path)
    return paths


def _pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def test_centre_crops_are_cut_from_the_files(files: list[Path]) -> None:
    found = Pictures(files, SETTINGS).centred(np.array([3, 0]))
    # 24 − 16 = 8 rows and 20 − 12 = 8 columns to spare, half of them on each side
    np.testing.assert_array_equal(found[0], _pixels(files[3])[4:20, 4:16])
    np.testing.assert_array_equal(found[1], _pixels(files[0])[4:20, 4:16])


def test_random_views_are_crops_and_flips_of_the_file(files: list[Path]) -> None:
    pictures, places, mirrored = Pictures(files, SETTINGS), set(), set()
    source = _pixels(files[2])
    for epoch in range(40):
        view = pictures.random(range(2, 3), 0, 0, epoch)[0]
        matches = [
            (top, left, flipped)
            for top in range(9)
            for left in range(9)
            for flipped in (False, True)
            if np.array_equal(view[:, ::-1] if flipped else view, source[top : top + 16, left : left + 12])
        ]
        assert len(matches) == 1
        places.add(matches[0][:2])
        mirrored.add(matches[0][2])
    assert len(places) > 15
    assert mirrored == {False, True}


def test_a_view_depends_on_its_place_and_picture_alone(files: list[Path]) -> None:
    pictures = Pictures(files, SETTINGS)
    together = pictures.random(np.arange(5), 7, 0, 3)
    for number in (4, 1):
        alone = Pictures(files, SETTINGS).random(np.array([number]), 7, 0, 3)
        np.testing.assert_array_equal(alone[0], together[number])
    assert not np.array_equal(pictures.random(np.arange(5), 7, 0, 4), together)
    assert not np.array_equal(pictures.random(np.arange(5), 8, 0, 3), together)


def test_memory_is_kept_up_to_the_limit(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Path] = []

    def counting(source: Path, settings: ImageSettings) -> np.ndarray:
        loads.append(source)
        return load(source, settings)

    monkeypatch.setattr(module, "load", counting)
    monkeypatch.setattr(module, "KEPT_BYTES", 2 * 24 * 20 * 3 + 5)  # two pictures and a little
    pictures = Pictures(files, SETTINGS)
    first = pictures.centred(range(5))
    np.testing.assert_array_equal(pictures.centred(range(5)), first)
    assert sorted(loads.count(path) for path in files) == [1, 1, 2, 2, 2]


def test_unreadable_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"broken\.png"):
        Pictures([tmp_path / "broken.png"], SETTINGS).centred(range(1))


def test_ahead_keeps_the_order() -> None:
    def slowly(number: int) -> int:
        time.sleep(0.004 * (number % 3))
        return number * number

    assert list(ahead(range(20), slowly, threads=4, depth=6)) == [number**2 for number in range(20)]
    assert list(ahead([], slowly)) == []


def test_ahead_raises_at_the_place_of_the_error() -> None:
    def make(number: int) -> int:
        if number == 3:
            raise ImageError("3: broken")
        return number

    source = ahead(range(10), make)
    assert [next(source) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ImageError, match="3: broken"):
        next(source)


def test_ahead_computes_no_more_than_its_depth_before_it_is_asked() -> None:
    started: list[int] = []
    lock = threading.Lock()

    def make(number: int) -> int:
        with lock:
            started.append(number)
        return number

    source = ahead(range(100), make, threads=2, depth=3)
    assert started == []
    for taken in range(1, 6):
        next(source)
        time.sleep(0.02)
        assert len(started) <= taken + 3
    source.close()  # type: ignore[attr-defined]
    time.sleep(0.02)
    assert len(started) <= 5 + 3


def test_forgotten_pictures_are_decoded_again(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = Pictures(files, SETTINGS)
    first = pictures.centred(range(5))
    pictures.forget()
    files[0].unlink()
    with pytest.raises(ImageError, match=files[0].name):
        pictures.centred(range(1))
    np.testing.assert_array_equal(pictures.centred(range(1, 5)), first[1:])
