import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.data.check import check_dataset
from limner.data.image_digests import cache_folder
from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.errors import DataError
from tests.data.trees import picture, write_tar

JPEG = picture()


def read(root: Path, *members: tuple[str, bytes], name: str = "train-0.tar", mode: str = "w") -> Dataset:
    write_tar(root / name, members, mode)
    return open_dataset(f"webdataset:{root}")


def test_a_sample_is_the_files_of_a_key(tmp_path: Path) -> None:
    values = {"captions": ["a man", "someone"], "identity": 3, "labels": ["coat"], "url": "x"}
    dataset = read(
        tmp_path,
        ("a/0.jpg", picture(0)),
        ("a/0.txt", b"\xef\xbb\xbf a woman \n"),
        ("a/0.cls", b"7"),
        ("a/0.json", b'{"identity": 4}'),
        ("a/0.npy", b"left out"),
        ("b/0.seg.PNG", b"left out as well: the ending is seg.png"),
        ("b/0.JPG", picture(1)),
        ("b/0.json", json.dumps(values).encode()),
        ("b/0.txt", b"a man"),
        ("c.jpg", picture(2)),
        ("c.json", json.dumps({**values, "captions": None}).encode()),
    )
    first, second, third = dataset.records
    assert first.image.read_bytes() == picture(0)
    assert first.metadata == {"name": "a/0.jpg", "cls": "7"}
    # Captions of JSON go before those of .txt.
    assert (first.sentences, third.sentences) == (("a woman",), ())
    assert (second.sentences, second.group, second.labels) == (("a man", "someone"), "id-3", ("coat",))
    assert second.metadata == {"name": "b/0.jpg", "url": "x"}
    assert second.split == "train"


def test_captions_of_text_files(tmp_path: Path) -> None:
    (record,) = read(
        tmp_path, ("0.jpg", JPEG), ("0.txt", b"\xef\xbb\xbf a woman \n"), ("0.json", b'{"w": 1}')
    ).records
    assert (record.sentences, record.metadata) == (("a woman",), {"name": "0.jpg", "w": 1})


@pytest.mark.parametrize(("name", "mode"), [("0.tar.gz", "w:gz"), ("0.tgz", "w:gz"), ("0.tar.xz", "w:xz")])
def test_compressed_archives(name: str, mode: str, tmp_path: Path) -> None:
    dataset = read(tmp_path, ("0.jpg", JPEG), ("0.txt", b"a"), name=name, mode=mode)
    assert len(dataset.records) == 1
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(DataError, match="a tar archive was expected, it cannot be read"):
        open_dataset(f"webdataset:{tmp_path}")


def test_archives_by_a_range(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(tmp_path / f"val-{number:03}.tar", [("0.jpg", picture(number)), ("0.txt", b"a")])
    dataset = open_dataset(f"webdataset:{tmp_path}/val-{{000..002}}.tar")
    assert dataset.split_counts == {"val": 3}
    # One key in several archives is several pictures.
    assert len({record.group for record in dataset.records}) == 3
    with pytest.raises(DataError, match=r"val-003\.tar: a tar archive was expected; 1 of 4 are not there"):
        open_dataset(f"webdataset:{tmp_path}/val-{{000..003}}.tar")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"a tar archive was expected here \(\.tar, \.tar\.gz"):
        open_dataset(f"webdataset:{tmp_path / 'empty'}")


@pytest.mark.parametrize(
    "name", ["../../out.jpg", "/etc/out.jpg", "a/../../out.jpg", "..\\out.jpg", "C:\\out.jpg", "x\n/é\0.jpg"]
)
def test_names_never_leave_the_folder(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(JPEG)
        tar.addfile(member, io.BytesIO(JPEG))
        member = tarfile.TarInfo(f"{name.removesuffix('.jpg')}.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"a"))
    try:
        dataset = open_dataset(f"webdataset:{tmp_path}")
    except DataError:
        dataset = None  # a key that begins with a dot is passed over, and nothing is left
    for record in dataset.records if dataset else ():
        assert record.image.parent.parent == cache_folder() / "shards"
        assert ".." not in record.image.parts
        assert record.image.read_bytes() == JPEG
    assert not list(tmp_path.parent.glob("out.jpg"))
    assert [file.name for file in tmp_path.iterdir()] == ["0.tar"]


def test_links_and_devices_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        for name, content in (
            ("._4.jpg", b"x"),
            ("__info__.json", b"no JSON"),
            ("4.jpg", JPEG),
            ("4.txt", b"a"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    assert [record.metadata["name"] for record in open_dataset(f"webdataset:{tmp_path}").records] == ["4.jpg"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("0.txt", b"a")], "sample '0': one picture was expected, got 'txt'"),
        ([("0.jpg", JPEG), ("0.png", JPEG)], "sample '0': one picture was expected, got 'jpg, png'"),
        ([("0.jpg", JPEG), ("0.jpg", JPEG)], "'0.jpg' stands twice in the archive"),
        ([("0.jpg", JPEG), ("1.jpg", JPEG), ("0.txt", b"a")], "sample '0': this key stands twice"),
        ([("0.jpg", JPEG), ("0.json", b"{")], "sample '0': JSON was expected"),
        ([("0.jpg", JPEG), ("0.json", b"[]")], "sample '0': an object was expected, got []"),
        ([("0.jpg", JPEG), ("0.txt", b"\xff")], "sample '0': UTF-8 text was expected in .txt, got byte 0xff"),
        ([("0.jpg", JPEG)], "a column of captions was expected"),
        ([("0.jpg", JPEG), ("0.json", b'{"caption": 1}')], "sample '0': 'caption' must be a string"),
        (
            [("0.jpg", JPEG), ("0.json", b'{"caption": "a", "split": "x"}')],
            "sample '0': 'split' must be one of",
        ),
        ([("notes", b"a")], "no picture was found in 1 shards"),
    ],
)
def test_what_cannot_be_read_is_one_line(members: list[tuple[str, bytes]], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, *members)
    assert says in str(error.value)
    assert str(error.value).startswith(str(tmp_path))
    assert "\n" not in str(error.value)


def test_an_archive_that_is_cut_off_or_damaged_is_refused(tmp_path: Path) -> None:
    members = [(f"{n}.{kind}", content) for n in range(3) for kind, content in (("jpg", JPEG), ("txt", b"a"))]
    file = write_tar(tmp_path / "0.tar", members)
    whole = file.read_bytes()
    starts = [at for at in range(0, len(whole), 512) if whole[at + 257 : at + 262] == b"ustar"]
    assert len(starts) == 6
    for end in (*starts[1:], starts[2] + 100, starts[4] + 700, 0, 512):
        file.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"0\.tar: a tar archive was expected, it cannot be read"):
            open_dataset(f"webdataset:{tmp_path}")
    # tarfile takes a header with a wrong check sum for the end of the archive.
    file.write_bytes(whole[: starts[3]] + b"x" + whole[starts[3] + 1 :])
    with pytest.raises(DataError, match=r"0\.tar: a tar archive was expected, it cannot be read"):
        open_dataset(f"webdataset:{tmp_path}")
    file.write_bytes(whole)
    assert len(open_dataset(f"webdataset:{tmp_path}").records) == 3


def test_a_file_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    member = tarfile.TarInfo("0.txt")
    member.size = 2**40
    (tmp_path / "0.tar").write_bytes(member.tobuf() + bytes(2048))
    with pytest.raises(DataError, match="a text of at most 16 MiB was expected, got 1048576"):
        open_dataset(f"webdataset:{tmp_path}")


def test_an_empty_picture_and_one_that_stands_twice_are_found(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "train.tar", [("0.jpg", JPEG), ("0.txt", b"a dog"), ("1.jpg", b""), ("1.txt", b"a cat")]
    )
    write_tar(tmp_path / "val.tar", [("2.jpg", JPEG), ("2.txt", b"a cow")])
    report = check_dataset(open_dataset(f"webdataset:{tmp_path}"))
    kinds = {problem.kind for problem in report.problems}
    assert kinds == {"duplicate-across-splits", "unreadable-picture", "split-missing"}


def test_any_archive_is_a_dataset_or_one_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("fuzz")
    whole = write_tar(root / "0.tar", [("0.jpg", JPEG), ("0.txt", b"a")]).read_bytes()

    lines: list[int] = []

    @settings(max_examples=100)
    @given(st.integers(0, 3 * 512 + len(JPEG)), st.binary(min_size=1, max_size=8))
    def check(place: int, content: bytes) -> None:
        (root / "0.tar").write_bytes(whole[:place] + content + whole[place + len(content) :])
        try:
            dataset = open_dataset(f"webdataset:{root}")
        except DataError as error:
            lines.append(len(str(error).splitlines()))
            return
        assert all(record.image.is_file() for record in dataset.records)

    check()
    assert set(lines) == {1}
