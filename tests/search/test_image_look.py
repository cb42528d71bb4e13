import hashlib
import io
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from limner.data.images import PictureBytes
from limner.data.transforms import ImageSettings, load
from limner.search import image_look
from limner.search.image_look import Seen, Task, look_at
from limner.types import ImageSource, Pixels

TAKEN = datetime(2026, 5, 4, 3, 2, 1)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = TAKEN.strftime("%Y:%m:%d %H:%M:%S")
    cells = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(cells).resize((640, 480)).save(path, exif=exif)
    return path


def prepare(source: ImageSource) -> Pixels:
    return load(source, ImageSettings())


def looked(path: Path) -> Seen:
    seen = look_at(Task(str(path)), prepare)
    assert isinstance(seen, Seen)
    return seen


def test_a_file_is_read_and_decoded_once(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, decoded = [], []
    plain_open, plain_load = Path.open, ImageFile.ImageFile.load

    def noted_open(path: Path, *rest: Any, **options: Any) -> Any:
        opened.append(path)
        return plain_open(path, *rest, **options)

    def noted_load(image: ImageFile.ImageFile) -> Any:
        decoded.extend(image.tile)
        return plain_load(image)

    monkeypatch.setattr(Path, "open", noted_open)
    monkeypatch.setattr(ImageFile.ImageFile, "load", noted_load)
    seen = looked(photo)
    assert (opened, len(decoded)) == ([photo], 1)
    assert seen.entry.taken == TAKEN
    assert seen.entry.sha256 == hashlib.sha256(photo.read_bytes()).hexdigest()
    assert seen.thumbnail is not None
    assert Image.open(io.BytesIO(seen.thumbnail)).size == (256, 192)


def test_a_large_file_gives_the_same_without_being_held(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = looked(photo)
    monkeypatch.setattr(image_look, "READ_AT_ONCE", 100)
    given: list[ImageSource] = []

    def noted(source: ImageSource) -> Pixels:
        given.append(source)
        return prepare(source)

    seen = look_at(Task(str(photo)), noted)
    assert given == [str(photo)]
    assert isinstance(seen, Seen)
    assert (seen.entry, seen.thumbnail) == (at_once.entry, at_once.thumbnail)
    np.testing.assert_array_equal(seen.pixels, at_once.pixels)


def test_what_is_no_image_is_refused_by_its_reason_alone(photo: Path) -> None:
    whole = photo.read_bytes()
    photo.write_bytes(whole[:-2])
    seen = look_at(Task(str(photo)), prepare)
    assert isinstance(seen, Seen)
    assert seen.is_cut
    photo.write_bytes(whole[: len(whole) // 2])
    assert str(look_at(Task(str(photo)), prepare)).startswith("cut off or damaged")


@pytest.mark.parametrize("moment", ["before it is read", "after"])
def test_a_file_that_grows_is_not_taken(moment: str, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_open = Path.open

    def grow(path: Path, *rest: Any, **options: Any) -> Any:
        with plain_open(path, "ab") as file:
            file.write(b"more")
        return plain_open(path, *rest, **options)

    def grown(source: ImageSource) -> Pixels:
        assert isinstance(source, PictureBytes)
        assert moment == "after"
        photo.write_bytes(source + b"more")
        return prepare(source)

    if moment != "after":
        monkeypatch.setattr(Path, "open", grow)
    assert look_at(Task(str(photo)), grown) == "changed while it was read; index again"
