from datetime import datetime
from pathlib import Path

from PIL import Image

from limner.data.images import capture_time


def picture(path: Path, **times: str) -> Path:
    """A JPEG with times in its EXIF data."""
    exif = Image.Exif()
    tags = {"original": 0x9003, "digitised": 0x9004}
    exif.get_ifd(0x8769).update({tags[name]: value for name, value in times.items()})
    Image.new("RGB", (4, 4)).save(path, exif=exif)
    return path


def test_the_time_of_the_camera(tmp_path: Path) -> None:
    taken = picture(tmp_path / "a.jpg", original="2026:11:20 08:15:30", digitised="2026:12:01 00:00:00")
    assert capture_time(taken) == datetime(2026, 11, 20, 8, 15, 30)
    scanned = picture(tmp_path / "b.jpg", original="    :  :     :  :  ", digitised="2026:12:01 00:00:00\0")
    assert capture_time(scanned) == datetime(2026, 12, 1)


def test_no_time(tmp_path: Path) -> None:
    assert capture_time(picture(tmp_path / "none.jpg")) is None
    assert capture_time(picture(tmp_path / "wrong.jpg", original="yesterday")) is None
    assert capture_time(tmp_path / "missing.jpg") is None
    (tmp_path / "text.jpg").write_text("no picture")
    assert capture_time(tmp_path / "text.jpg") is None
