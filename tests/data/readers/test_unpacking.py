import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from limner.cli.console import show_log_lines
from limner.data.image_digests import cache_folder
from limner.data.readers import open_dataset, unpacking, webdataset
from limner.data.readers.unpacking import Sample, unpack
from limner.errors import DataError
from tests.data import trees
from tests.data.trees import picture, write_tar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


def shard(root: Path, count: int = 3, name: str = "train.tar") -> str:
    members = [
        (f"{n}.{kind}", value) for n in range(count) for kind, value in (("jpg", picture(n)), ("txt", b"a"))
    ]
    write_tar(root / "set" / name, members)
    return f"webdataset:{root / 'set'}"


def images(source: str) -> list[Path]:
    return [record.image for record in open_dataset(source).records]


def count_reading(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The archives that are read from here on."""
    read: list[Path] = []
    real = webdataset._samples

    def samples(archive: Path) -> Iterator[Sample]:
        read.append(archive)
        yield from real(archive)

    monkeypatch.setattr(webdataset, "_samples", samples)
    return read


def test_a_shard_is_unpacked_once_wherever_it_lies(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_dataset(shard(tmp_path))
    read = count_reading(monkeypatch)
    shutil.copytree(tmp_path / "set", tmp_path / "copy")
    again = open_dataset(f"webdataset:{tmp_path / 'copy'}")
    assert again.records == first.records
    assert again.fingerprint == first.fingerprint
    assert not read
    # Another content is another entry, and the old one stays.
    shard(tmp_path, 4)
    assert len(images(f"webdataset:{tmp_path / 'set'}")) == 4
    assert len(read) == 1
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 2


def test_only_the_user_may_read_the_pictures(tmp_path: Path, cache: Path) -> None:
    images(shard(tmp_path))
    assert cache.stat().st_mode & 0o077 == 0


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: next(entry.glob("*.jpg")).unlink(),
        lambda entry: next(entry.glob("*.jpg")).write_bytes(b""),
        lambda entry: (entry / "samples").unlink(),
        lambda entry: (entry / "samples").write_text("{}"),
        lambda entry: (entry / "samples").write_text((entry / "samples").read_text().replace('"a"', '"b"')),
        lambda entry: (entry / "samples").write_bytes(b"\xff"),
        lambda entry: shutil.rmtree(entry),
    ],
)
def test_an_entry_that_is_not_whole_is_unpacked_again(damage: Damage, tmp_path: Path) -> None:
    source = shard(tmp_path)
    before = open_dataset(source)
    damage(before.records[0].image.parent)
    after = open_dataset(source)
    assert after.records == before.records
    assert [record.image.read_bytes() for record in after.records] == [picture(number) for number in range(3)]


class Stopped(BaseException):
    pass


def test_what_a_killed_process_leaves_is_not_used(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shard(tmp_path, name="train-0.tar")
    shard(tmp_path, 2, name="train-1.tar")
    real = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if self.suffix == ".part" and len([path for path in cache.iterdir() if path.is_dir()]) == 2:
            raise Stopped
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(Stopped):
            open_dataset(source)
    (part,) = cache.glob("*.part")  # full, and not yet under its name
    next(part.glob("*.jpg")).write_bytes(b"half")
    read = count_reading(monkeypatch)
    assert len(images(source)) == 5
    # The finished shard is kept, the other one is unpacked anew.
    assert [archive.name for archive in read] == ["train-1.tar"]
    assert not list(cache.glob("*.part"))


def test_two_that_want_a_shard_at_once_unpack_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shard(tmp_path, 40)
    read = count_reading(monkeypatch)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(images, [source] * 4))
    assert all(one == found[0] for one in found)
    assert len(found[0]) == 40
    assert len(read) == 1


def test_nothing_stays_of_a_shard_that_is_damaged_or_interrupted(tmp_path: Path, cache: Path) -> None:
    write_tar(tmp_path / "set" / "0.tar", [("0.jpg", picture()), ("0.txt", b"a"), ("1.txt", b"a")])
    with pytest.raises(DataError, match="one picture was expected"):
        open_dataset(f"webdataset:{tmp_path / 'set'}")
    assert not [path for path in cache.iterdir() if path.is_dir()]

    def stopped(_: Path) -> Iterator[Sample]:
        yield Sample("row 0", "a.jpg", picture(), {})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(unpack([tmp_path / "set" / "0.tar"], stopped, "test"))
    assert not [path for path in cache.iterdir() if path.is_dir()]


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_disk_without_room_is_one_line(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shard(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(2**30, 2**30, 2**26 + 1000))
    with pytest.raises(DataError, match=r"train\.tar: 0\.0 GB are free in .*shards, too few to unpack"):
        open_dataset(source)
    assert not [path for path in cache.iterdir() if path.is_dir()]
    # A compressed shard is larger than it looks: room is asked for again while it is unpacked.
    size = (tmp_path / "set" / "train.tar").stat().st_size
    free = iter([2**26 + 2 * size, 2**26])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(2**30, 0, next(free)))
    bomb = (Sample(f"row {number}", "", bytes(size), {}) for number in range(9))
    with pytest.raises(DataError, match="set LIMNER_CACHE to a folder on a larger disk"):
        list(unpack([tmp_path / "set" / "train.tar"], lambda _: bomb, "bomb"))


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, cache: Path) -> None:
    source = shard(tmp_path)
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file")
    with pytest.raises(
        DataError, match=r"cannot be unpacked here .* set LIMNER_CACHE to a folder that can be"
    ):
        open_dataset(source)


def test_a_whole_entry_is_read_from_a_cache_that_cannot_be_written(tmp_path: Path, cache: Path) -> None:
    source = shard(tmp_path)
    before = images(source)
    for lock in cache.glob("*.lock"):
        lock.unlink()
    assert images(source) == before
    assert not list(cache.glob("*.lock"))


def test_names_are_cleaned_and_endings_are_those_of_pictures(tmp_path: Path) -> None:
    names = ["a b/ö&.JPEG", "..", "", "noending", "x.exe", "-" * 300 + ".png"]
    samples = [Sample(f"row {number}", name, picture(), {}) for number, name in enumerate(names)]
    write_tar(tmp_path / "set" / "0.tar", [])
    ((*found,),) = unpack([tmp_path / "set" / "0.tar"], lambda _: samples, "names")
    assert [one.image.name for one in found] == [
        *("0000000-picture.jpeg", "0000001-picture.jpg", "0000002-picture.jpg", "0000003-noending.jpg"),
        *("0000004-x.exe.jpg", f"0000005-{'-' * 60}.png"),
    ]
    assert [one.name for one in found] == names
    assert all(one.image.parent.parent == cache_folder() / "shards" for one in found)


def test_the_command_line_shows_what_takes_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_log_lines()
    show_log_lines()
    monkeypatch.setattr(unpacking, "_PAUSE", -1.0)
    source = trees.write_webdataset(tmp_path / "set", trees.ROWS)
    open_dataset(source)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("unpacking")] == [
        f"unpacking 3 of 3 shards (0.0 GB) into {cache_folder() / 'shards'}"
    ]
    assert "unpacked 2 of 3 shards" in lines
    monkeypatch.setattr(unpacking, "_PAUSE", 5.0)
    open_dataset(source)
    assert capsys.readouterr().err == ""
    assert logging.getLogger("limner.data").handlers
