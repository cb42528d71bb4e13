"""A damaged store after `repair`: what is left is right, and what is lost is said."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from limner.errors import LimnerError, SettingsError, StoreError
from limner.search.commits import Commits, Record
from limner.store.entry import key_of
from limner.search.index import index_pictures
from limner.search.repair import repair
from limner.search.segments import Segments
from limner.search.sentences import Sentence, SentenceTable
from limner.store.files import StoreFiles
from limner.store.verify import verify
from tests.search.fake import DIM, FakeEncoder, draw
from tests.search.repairing import (
    COUNT,
    can_be_read,
    check,
    drawn,
    flip,
    newest,
    opened,
    refuses,
    shared_reader,
    store_of,
    vector_bytes,
)


@pytest.fixture(autouse=True, scope="module")
def _one_reader() -> Iterator[None]:
    with shared_reader():
        yield


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return drawn(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, pictures: list[Path]) -> Path:
    return store_of(tmp_path, pictures)


def test_a_whole_store_stays_as_it_is(folder: Path, pictures: list[Path]) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    report = repair(opened(folder), lambda: pytest.fail("nothing to encode"))
    assert (report.pictures, report.sentences, report.loses) == (COUNT, 2, False)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_one_bit_of_a_vector(folder: Path, pictures: list[Path]) -> None:
    flip(*vector_bytes(folder, pictures[4]))
    with pytest.raises(StoreError, match=r"has changed.*limner store repair"):
        StoreFiles.open(folder)
    assert not verify(opened(folder)).sound
    encoder = FakeEncoder()
    report = repair(opened(folder), lambda: encoder)
    assert report.repaired == (str(pictures[4]),)
    assert (report.pictures, report.loses, encoder.encoded) == (COUNT, False, 1)
    check(folder, pictures)
    assert SentenceTable(StoreFiles.open(folder)).search(encoder.encode_texts("red")[0], 1)[0].text == "red"


@pytest.mark.parametrize("kept", [0, 6])
def test_one_bit_of_a_vector_whose_commit_was_killed(
    tmp_path: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Its file has no checksum yet, and after a first commit no file has one."""
    encoder = FakeEncoder()
    folder = tmp_path / "store"
    files = StoreFiles.create(folder, fingerprint=encoder.fingerprint, dim=DIM, run="run")
    if kept:
        index_pictures(encoder, files, pictures[:kept])
    write = Commits.write

    def killed(self: Commits, record: Record) -> None:
        if record.pending is None:
            raise KeyboardInterrupt
        write(self, record)

    with monkeypatch.context() as patched:
        patched.setattr(Commits, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            index_pictures(encoder, files, pictures[kept:])
    assert verify(opened(folder)).sound
    flip(*vector_bytes(folder, pictures[7]))
    with pytest.raises(StoreError, match=r"the row of .* has changed.*limner store repair"):
        StoreFiles.open(folder)
    with pytest.raises(StoreError, match="has changed"):
        index_pictures(encoder, opened(folder), pictures)
    report = repair(opened(folder), FakeEncoder)
    assert report.repaired == (str(pictures[7]),)
    assert (report.pictures, report.loses) == (COUNT, False)
    assert verify(opened(folder)).sound
    assert len(StoreFiles.open(folder).entries()) == COUNT


def test_a_picture_that_is_gone_is_lost_and_said(folder: Path, pictures: list[Path]) -> None:
    flip(*vector_bytes(folder, pictures[4]))
    pictures[4].unlink()
    refused = refuses(folder)
    [(path, reason)] = refused.lost
    assert (path, "No such file" in reason) == (str(pictures[4]), True)
    report = repair(opened(folder), FakeEncoder, accept_loss=True)
    assert report == refused.model_copy(update={"applied": True})
    assert (report.pictures, report.sentences, report.repaired, report.missing) == (COUNT - 1, 2, (), ())
    check(folder, [path for path in pictures if path != pictures[4]])


def test_a_thumbnail(folder: Path, pictures: list[Path]) -> None:
    name = max(Segments(folder).sizes())
    flip(folder / "segments" / name, 30)
    assert not verify(opened(folder)).sound
    report = repair(opened(folder), FakeEncoder)
    assert (len(report.repaired), report.loses) == (1, False)
    check(folder, pictures)
    (folder / "segments" / min(Segments(folder).sizes())).unlink()
    assert repair(opened(folder), FakeEncoder).repaired
    check(folder, pictures)


@pytest.mark.parametrize("damage", ["removed", "nonsense", "cut off"])
def test_a_lost_commit(folder: Path, pictures: list[Path], damage: str) -> None:
    """The newest version of the table is lost, and with it three pictures whose names nobody knows."""
    file = newest(folder)
    if damage == "removed":
        file.unlink()
    else:
        file.write_bytes(b"nonsense" if damage == "nonsense" else file.read_bytes()[:-40])
    with pytest.raises(StoreError, match="damaged"):
        StoreFiles.open(folder)
    assert not verify(opened(folder)).sound
    # the data file is still there, and could be read with its manifest from a copy
    assert refuses(folder).missing == can_be_read(6)
    report = repair(opened(folder), FakeEncoder, accept_loss=True)
    assert (report.pictures, report.earlier) == (COUNT - 3, COUNT - 3)
    check(folder, pictures[:-3])
    metadata = {str(path): {"camera": 7} for path in pictures}
    assert index_pictures(FakeEncoder(), StoreFiles.open(folder), pictures, metadata=metadata).added == 3
    check(folder, pictures)


def test_a_data_file_that_cannot_be_read(folder: Path, pictures: list[Path]) -> None:
    file, _ = vector_bytes(folder, pictures[0])
    file.write_bytes(file.read_bytes()[:-20])
    assert refuses(folder).missing == can_be_read(6)
    report = repair(opened(folder), FakeEncoder, accept_loss=True)
    # the sentence of a picture that is lost goes with it: the next file of this name may show somebody else
    assert (report.pictures, report.lost_sentences, report.sentences) == (COUNT - 3, ("red",), 1)
    check(folder, pictures[3:])


def test_an_older_version_under_the_newest_name(folder: Path, pictures: list[Path]) -> None:
    """LanceDB takes it for the newest; the record knows better."""
    file = newest(folder)
    oldest = max(file.parent.glob("*.manifest"))
    shutil.copy(oldest, file.with_name(f"{int(file.stem) - 1}.manifest"))
    assert not verify(opened(folder)).sound
    report = repair(opened(folder), lambda: pytest.fail("nothing to encode"))
    assert (report.pictures, report.sentences, report.earlier, report.loses) == (COUNT, 2, 0, False)
    check(folder, pictures)


def test_the_only_manifest(folder: Path, pictures: list[Path]) -> None:
    """No row can be read without it, and the intact data files stay."""
    for file in newest(folder).parent.iterdir():
        file.unlink()
    assert refuses(folder).missing == can_be_read(0)


def test_deleted_rows_come_back_from_no_other_version(folder: Path, pictures: list[Path]) -> None:
    """Those of the last commit are found in older data files, if a compaction's cannot be read."""
    files = StoreFiles.open(folder)
    files.delete([key_of(str(pictures[4]))])
    data = folder / "pictures-1.lance" / "data"
    before = set(data.iterdir())
    files.compact()
    [joined] = set(data.iterdir()) - before
    whole = joined.read_bytes()
    joined.write_bytes(whole[:-20])
    report = repair(opened(folder), FakeEncoder)
    # only the version with the deletion has the rows of the last commit
    assert (report.pictures, report.earlier, report.loses) == (COUNT - 1, 0, False)
    check(folder, [path for path in pictures if path != pictures[4]])


def test_a_file_that_has_changed_since(folder: Path, pictures: list[Path]) -> None:
    """Its identity and metadata may be of another picture."""
    flip(*vector_bytes(folder, pictures[4]))
    draw(pictures[4], 99)
    report = repair(opened(folder), FakeEncoder, accept_loss=True)
    assert (report.pictures, report.repaired) == (COUNT - 1, ())
    assert report.lost == ((str(pictures[4]), "its file has changed since; index it again"),)
    check(folder, [path for path in pictures if path != pictures[4]])


def test_an_earlier_manifest_that_cannot_be_read(folder: Path, pictures: list[Path]) -> None:
    """No search needs it, and every compaction does."""
    file = max((folder / "pictures-1.lance" / "_versions").glob("*.manifest"))
    file.write_bytes(file.read_bytes()[:100])
    found = verify(StoreFiles.open(folder)).found
    assert (set(found), "pictures-1.lance" in found["version"].example) == ({"version"}, True)
    with pytest.raises(StoreError, match="cannot be written"):
        StoreFiles.open(folder).compact()
    assert not repair(opened(folder), lambda: pytest.fail("nothing to encode")).loses
    check(folder, pictures)
    StoreFiles.open(folder).compact()


@pytest.mark.parametrize("emptied", ["*", "*.lance"])
@pytest.mark.parametrize("first", [False, True])
def test_a_commit_of_whose_files_a_power_cut_left_the_names(
    tmp_path: Path,
    folder: Path,
    pictures: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    first: bool,
    emptied: str,
) -> None:
    """A compaction and a first commit make two versions, which are ahead of the record; nothing else is lost."""
    files = opened(folder)
    if first:
        fingerprint = FakeEncoder().fingerprint
        files = StoreFiles.create(tmp_path / "new", fingerprint=fingerprint, dim=DIM, run="run")
    table = Path(str(files.folder)) / "pictures-1.lance"
    before = set(table.rglob("*"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("limner.search.table.files_of", killed)
        with pytest.raises(KeyboardInterrupt):
            index_pictures(FakeEncoder(), files, pictures) if first else files.compact()
    new = [path for path in table.rglob("*") if path.is_file() and path not in before]
    assert sum(path.suffix == ".manifest" for path in new) == 2
    for path in new:
        if path.match(emptied):
            path.write_bytes(b"")
    assert not verify(opened(table.parent)).sound
    report = repair(opened(table.parent), lambda: pytest.fail("nothing to encode"))
    assert (report.applied, report.loses, report.pictures) == (True, False, 0 if first else COUNT)
    metadata = {str(path): {"camera": 7} for path in pictures}
    added = index_pictures(FakeEncoder(), opened(table.parent), pictures, metadata=metadata).added
    assert added == (COUNT if first else 0)
    check(table.parent, pictures)


def test_a_lost_record(folder: Path, pictures: list[Path]) -> None:
    (folder / "pictures-1.commits.json").unlink()
    with pytest.raises(StoreError, match=r"pictures-1\.commits\.json is gone"):
        StoreFiles.open(folder)
    # nobody can tell whether these are all
    assert refuses(folder).missing == (f"pictures-1.lance: {COUNT} rows can be read",)
    report = repair(opened(folder), FakeEncoder, accept_loss=True)
    assert (report.pictures, report.sentences, report.lost, report.earlier) == (COUNT, 2, (), COUNT)
    check(folder, pictures)


def test_a_folder_in_place_of_a_manifest(folder: Path) -> None:
    file = newest(folder)
    file.unlink()
    file.mkdir()
    (file / "a file").touch()
    assert refuses(folder).missing == can_be_read(6)


def test_a_sentence(folder: Path) -> None:
    vector = FakeEncoder().encode_texts("blue")[0].tobytes()
    for file in (folder / "sentences-1.lance" / "data").iterdir():
        if (place := file.read_bytes().find(vector)) >= 0:
            flip(file, place)
            break
    assert not verify(opened(folder)).sound
    with pytest.raises(StoreError, match="table of sentences"):
        len(SentenceTable(StoreFiles.open(folder)))
    report = repair(opened(folder), FakeEncoder)
    assert (report.sentences, report.loses) == (2, False)
    assert verify(StoreFiles.open(folder)).sound


def of_another_store(folder: Path, tmp_path: Path) -> Path:
    """Another store of the same model, with one picture more than the table of the first."""
    encoder = FakeEncoder()
    files = StoreFiles.create(tmp_path / "other", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(
        encoder, files, [draw(tmp_path / "others" / f"{number}.png", 40 + number) for number in range(3)]
    )
    SentenceTable(files).index(encoder, [Sentence("green")])
    return tmp_path / "other"


# each takes seconds: repair reads a table in processes of its own
@pytest.mark.parametrize(
    ("record", "table"),
    [
        ("its own", "pictures-1"),
        ("its own", "sentences-1"),
        ("that of the other store", "pictures-1"),
        ("none", "sentences-1"),
    ],
)
def test_a_table_of_another_store(
    folder: Path, pictures: list[Path], tmp_path: Path, table: str, record: str
) -> None:
    """Its rows are sound and its pictures are there; still nothing of them comes into this store."""
    other = of_another_store(folder, tmp_path)
    shutil.rmtree(folder / f"{table}.lance")
    shutil.copytree(other / f"{table}.lance", folder / f"{table}.lance")
    commits = f"{table}.commits.json"
    if record == "none":
        (folder / commits).unlink()
    elif record == "that of the other store":
        shutil.copy(other / commits, folder / commits)
    refuses(folder)
    report = repair(opened(folder), FakeEncoder, accept_loss=True)
    assert report.foreign == (table,)
    of_pictures = table == "pictures-1"
    assert (report.repaired, report.lost, report.lost_sentences) == ((), (), ("red",) if of_pictures else ())
    files = StoreFiles.open(folder)
    assert verify(files).sound
    expected = (0, 1) if of_pictures else (COUNT, 0)
    assert (len(files), len(SentenceTable(files))) == (report.pictures, report.sentences) == expected


def test_the_record_of_another_store(folder: Path, pictures: list[Path], tmp_path: Path) -> None:
    other = of_another_store(folder, tmp_path)
    shutil.copy(other / "pictures-1.commits.json", folder)
    report = repair(opened(folder), FakeEncoder, accept_loss=True)
    # the table says itself that it is the store's own; whether it is that of the last commit nobody knows
    assert (report.pictures, report.foreign, len(report.missing)) == (COUNT, (), 1)
    check(folder, pictures)


def test_a_repair_that_is_killed_changes_nothing(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(*vector_bytes(folder, pictures[4]))

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("limner.search.repair.write_manifest", kill)
    with pytest.raises(KeyboardInterrupt):
        repair(opened(folder), FakeEncoder)
    monkeypatch.undo()
    assert (folder / "pictures-2.lance").exists()
    with pytest.raises(StoreError, match="has changed"):
        StoreFiles.open(folder)
    assert repair(opened(folder), FakeEncoder).repaired == (str(pictures[4]),)
    check(folder, pictures)


def test_what_cannot_be_repaired(tmp_path: Path, folder: Path, pictures: list[Path]) -> None:
    upath = pytest.importorskip("upath")
    files = opened(folder)
    files.folder = upath.UPath("memory://store")
    with pytest.raises(SettingsError, match="repaired on a disk"):
        repair(files, FakeEncoder)
    flip(*vector_bytes(folder, pictures[4]))

    def none() -> FakeEncoder:
        raise StoreError("no such run")

    with pytest.raises(StoreError, match="no such run"):
        repair(opened(folder), none)
    with opened(folder).lock.held(), pytest.raises(StoreError, match="is being written"):
        repair(opened(folder), FakeEncoder)
    assert not repair(opened(folder), FakeEncoder).loses


def test_a_reader_goes_on_after_a_repair(folder: Path, pictures: list[Path]) -> None:
    reader = StoreFiles.open(folder)
    assert len(reader.snapshot().keys) == COUNT
    shutil.copytree(folder, folder.with_name("copy"))
    flip(*vector_bytes(folder, pictures[4]))
    repair(opened(folder), FakeEncoder)
    assert len(reader.snapshot().keys) == COUNT
    np.testing.assert_array_equal(
        reader.vectors([key_of(str(pictures[4]))]), FakeEncoder().encode_images([pictures[4]])
    )


Read = Callable[[StoreFiles], object]
READS: list[Read] = [
    lambda files: files.search(np.ones(DIM, np.float32)),
    lambda files: files.entries(),
    lambda files: len(files),
]


@pytest.mark.parametrize("read", READS)
def test_an_open_reader_finds_damage_with_the_next_commit(
    folder: Path, pictures: list[Path], read: Read
) -> None:
    reader = StoreFiles.open(folder)
    read(reader)
    index_pictures(FakeEncoder(), StoreFiles.open(folder), [draw(pictures[0].parent / "new.png", 77)])
    newest(folder).unlink()
    with pytest.raises(LimnerError, match="damaged"):
        read(reader)
