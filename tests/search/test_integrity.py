"""Damage of values of a table, wherever a writer was killed and whoever reads or writes next, is an error.

A value is found in LanceDB's files by its bytes, and one bit of it is changed, as no structure of a file would notice.
"""

import errno
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.errors import StoreError
from limner.search.commits import Commits, Record, file_digest, files_of
from limner.store.erasable import erasable
from limner.store.erase import erase
from limner.search.index import reindex
from limner.search.row_digests import DIGEST, VECTOR_DIGEST
from limner.search.sentences import Sentence, SentenceTable
from limner.store.files import StoreFiles
from limner.store.path import StorePath
from limner.search.table import Table
from limner.store.verify import verify
from tests.search.erasing import Encoder, add, answers, made, store_of

SOME = [made(number, 1, False) for number in range(8)]
NEW = made(8, 1, False)
HIT, OTHER = SOME[6], SOME[1]
"""The picture whose row is damaged, and one that is changed instead."""

COLUMNS = ("id", "path", "sha256", "identity", "metadata", "vector", DIGEST, VECTOR_DIGEST)


class KilledError(Exception):
    """The end of a process."""


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, table: str = "pictures") -> Iterator[None]:
    """Kill a writer behind LanceDB's commit and before the record's end."""
    write = Commits.write

    def stopped(self: Commits, record: Record) -> None:
        if record.pending is None and self.path.name.startswith(table):
            raise KilledError
        write(self, record)

    with monkeypatch.context() as patched:
        patched.setattr(Commits, "write", stopped)
        try:
            yield
        except KilledError:
            return
    pytest.fail("nothing was committed")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.search.table.time.sleep", lambda seconds: None)
    # what is damaged is so the second time, too
    monkeypatch.setattr("limner.store.files._TRIES", 1)
    # a table of eight rows would not be compacted otherwise
    monkeypatch.setattr("limner.search.table._pays", lambda stats: True)


def make(folder: Path, kill: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose last commit of pictures was killed, or "none" was."""
    if kill == "first":
        with killed(monkeypatch):
            store_of(folder, SOME, sentences=False)
    elif kill == "later":
        files = store_of(folder, SOME[:4], commits=2)
        with killed(monkeypatch):
            add(files, SOME[4:])
    elif kill == "compact":
        files = store_of(folder, SOME, commits=4)
        with killed(monkeypatch):
            files.compact()
    else:
        store_of(folder, SOME, commits=2)
    record = Commits(folder, "pictures-1").read()
    assert record is not None
    assert (record.pending is None) == (kill == "none")
    return folder


def damage(folder: Path, column: str, seed: int = 0, table: str = "pictures") -> list[Path]:
    """Change a bit of a value of one row, in each file that has it. Return the files."""
    files = StoreFiles.open(folder, check=False)
    which = {"pictures": files.table, "sentences": files.sentences}[table]
    rows = which.all(["path", column] if column != "path" else [column]).to_pylist()
    value = next(row[column] for row in rows if row["path"] == HIT.entry.path)
    wanted = np.array(value, np.float32).tobytes() if column == "vector" else value
    wanted = wanted if isinstance(wanted, bytes) else wanted.encode()
    rng = np.random.default_rng(seed)
    place, bit = int(rng.integers(len(wanted))), 1 << int(rng.integers(7 if column != "vector" else 8))
    found = []
    for path in (folder / f"{table}-1.lance" / "data").iterdir():
        content = bytearray(path.read_bytes())
        if (start := content.find(wanted)) >= 0:
            content[start + place] ^= bit
            path.write_bytes(content)
            found.append(path)
    assert found, column
    return found


def entries_of(files: StoreFiles) -> list[Any]:
    return [files.entries()[one.entry.path] for one in SOME]


READINGS: dict[str, Callable[[StoreFiles], Any]] = {
    "search": lambda files: [
        (hit.id, hit.score, hit.identity) for hit in files.search(np.ones(files.dim, np.float32), 99)
    ],
    "list": entries_of,
    "entry": lambda files: [files.entry(one.entry.id) for one in SOME],
    "vectors": lambda files: files.vectors([one.entry.id for one in SOME]).tobytes(),
    "thumbnails": lambda files: files.thumbnails([one.entry.id for one in SOME]),
    "erasable": lambda files: [
        [image.path for image in erasable(files, identity=one.entry.identity).images] for one in SOME
    ],
    "length": len,
}
WRITING: dict[str, Callable[[StoreFiles], Any]] = {
    "nothing": lambda files: enter(files),
    "add": lambda files: add(files, [NEW]),
    "replace": lambda files: add(files, [OTHER]),
    "delete": lambda files: files.delete([OTHER.entry.id]),
    "erase": lambda files: erase(files, [OTHER.entry.id]),
    "erase nothing": erase,
    "compact": lambda files: files.compact(),
    "tidy": lambda files: files.tidy(),
}
COPYING = ("erase", "erase nothing", "compact", "tidy")


def enter(files: StoreFiles) -> None:
    with files.writing():
        pass


def told(read: Callable[[StoreFiles], Any], files: StoreFiles) -> Any:
    try:
        return read(files)
    except StoreError:
        return "error"


def rows_of(files: StoreFiles) -> dict[str, Any]:
    """Facts and vectors of the pictures that no writing here changes, as a search has them in memory."""
    snapshot = files.snapshot()
    items = {str(item.path): item for item in snapshot.items(np.arange(len(snapshot.matrix)))}
    vectors = dict(zip(snapshot.columns["path"].to_pylist(), snapshot.matrix, strict=True))
    paths = [one.entry.path for one in SOME if one is not OTHER]
    # a damaged path is one that is not there
    return {path: (items[path], vectors[path].tobytes()) if path in items else None for path in paths}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Stores by where their writer was killed."""
    folder = tmp_path_factory.mktemp("stores")
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = {
            kill: make(folder / kill, kill, monkeypatch) for kill in ("none", "first", "later", "compact")
        }
    return made.__getitem__


@pytest.fixture
def copied(stores: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(kill: str) -> Path:
        folder = tmp_path / "store"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(stores(kill), folder)
        return folder

    return copy


@pytest.mark.parametrize(
    ("kill", "column"),
    [
        *(("first", column) for column in COLUMNS),
        ("later", "identity"),
        ("later", "vector"),
        ("compact", "vector"),
    ],
)
def test_while_a_commit_is_pending_no_damaged_row_answers(
    copied: Callable[[str], Path], kill: str, column: str
) -> None:
    folder = copied(kill)
    whole = StoreFiles.open(folder)
    right = {name: read(whole) for name, read in READINGS.items()}
    assert verify(whole).sound
    damage(folder, column)
    for name, read in READINGS.items():
        # a new handle each: what one has read is not read again
        assert told(lambda files, read=read: read(StoreFiles.open(folder)), whole) == "error", name  # type: ignore[misc]
        assert told(read, StoreFiles.open(folder, check=False)) in ("error", right[name]), name
    assert not verify(StoreFiles.open(folder, check=False)).sound
    for name, write in WRITING.items():
        assert told(write, StoreFiles.open(folder, check=False)) == "error", name
        record = Commits(folder, "pictures-1").read()
        assert record is not None
        assert record.pending is not None, name


@pytest.mark.parametrize(
    ("kill", "column"),
    [
        *(("none", column) for column in COLUMNS),
        ("first", "path"),
        ("later", "vector"),
        ("compact", "identity"),
    ],
)
def test_damage_under_an_open_handle_is_no_answer_and_no_sound_row(
    copied: Callable[[str], Path], kill: str, column: str
) -> None:
    for name, write in WRITING.items():
        folder = copied(kill)
        files = StoreFiles.open(folder)
        right = rows_of(files)
        if kill == "none":
            # the first writing reads names of segments, which would find the damage before anything is written
            enter(files)
        damage(folder, column)
        outcome = told(write, files)
        if name in COPYING or (kill != "none"):
            assert outcome == "error", name
        assert told(rows_of, files) in ("error", right), name
        assert told(lambda files: files.snapshot(), StoreFiles.open(folder, check=False)) == "error", name
    assert not verify(StoreFiles.open(folder, check=False)).sound


@pytest.mark.parametrize(
    ("kill", "column"), [*(("none", column) for column in COLUMNS), ("later", "path"), ("later", "vector")]
)
def test_what_an_open_handle_reads_again_is_compared(
    copied: Callable[[str], Path], kill: str, column: str
) -> None:
    for name, read in READINGS.items():
        folder = copied(kill)
        files = StoreFiles.open(folder)
        right = read(files)
        damage(folder, column)
        # what is in memory still answers, and rows of other columns are not read
        assert told(read, files) in ("error", right), name
        if name in ("list", "entry", "erasable"):
            assert told(read, files) == "error" or column == "vector", name


@pytest.mark.parametrize("name", [*COPYING, "reindex"])
@pytest.mark.parametrize("column", COLUMNS)
def test_rows_of_a_file_whose_checksum_is_that_of_its_damage_are_not_copied(
    copied: Callable[[str], Path], tmp_path: Path, name: str, column: str
) -> None:
    """As limner itself made such files before it compared rows."""
    folder = copied("none")
    [path] = damage(folder, column)
    commits = Commits(folder, "pictures-1", StoreFiles.open(folder, check=False).manifest.id)
    record = commits.read()
    assert record is not None
    sums = {f"data/{path.name}": file_digest(path)}
    files = {**record.done.files, **sums}
    commits.write(Record(type(record.done)(**{**vars(record.done), "files": files}), None, record.before))

    def reindexed(old: StoreFiles) -> None:
        new = StoreFiles.create(tmp_path / "new", fingerprint="a" * 64, dim=old.dim, run="run")
        reindex(old, Encoder(), new)

    write = {**WRITING, "reindex": reindexed}[name]
    assert told(write, StoreFiles.open(folder, check=False)) == "error"
    assert not verify(StoreFiles.open(folder, check=False)).sound


def test_a_row_that_hides_behind_its_damage_is_not_gone(copied: Callable[[str], Path]) -> None:
    """A damaged key or path looks like one that the store does not hold."""
    names: dict[str, Callable[[StoreFiles], Any]] = {
        "entry": lambda files: files.entry(HIT.entry.id),
        "delete": lambda files: files.delete([HIT.entry.id]),
        "delete rows": lambda files: files.table.delete([HIT.entry.id]),
        "erase": lambda files: erase(files, paths=HIT.entry.path),
        "erase an identity": lambda files: erase(files, identity=HIT.entry.identity),
    }
    for column in ("id", "path", "identity"):
        for name, call in names.items():
            folder = copied("none")
            files = StoreFiles.open(folder)
            damage(folder, column)
            assert told(call, files) == "error", (column, name)
    folder = copied("none")
    files = StoreFiles.open(folder)
    damage(folder, "path", table="sentences")
    assert told(lambda files: files.sentences.delete([HIT.entry.path], "path"), files) == "error"


@pytest.mark.parametrize("column", ["id", "text", "path", "vector", DIGEST])
@pytest.mark.parametrize("opened", [False, True])
def test_sentences_are_compared_alike(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, column: str, opened: bool
) -> None:
    folder = copied("none")
    more = [Sentence("more of the first", SOME[0].entry.path)]
    files = StoreFiles.open(folder)
    told_of = [Sentence(one.sentence, one.entry.path) for one in SOME]
    files.sentences.delete([one.id for one in told_of])
    with killed(monkeypatch, "sentences"):
        SentenceTable(files).index(Encoder(), told_of)
    files = StoreFiles.open(folder)
    if opened:
        SentenceTable(files).describing()
    damage(folder, column, table="sentences")
    for call in (
        lambda files: SentenceTable(files).describing(),
        lambda files: SentenceTable(files).index(Encoder(), more),
        lambda files: erase(files, [OTHER.entry.id]),
    ):
        assert told(call, files if opened else StoreFiles.open(folder, check=False)) == "error"
    assert not verify(StoreFiles.open(folder, check=False)).sound


def test_a_deletion_that_is_refused_has_removed_no_sentence(copied: Callable[[str], Path]) -> None:
    files = StoreFiles.open(folder := copied("none"))
    enter(files)
    before = len(files.sentences)
    damage(folder, "identity")
    with pytest.raises(StoreError, match="damaged"):
        files.delete([OTHER.entry.id])
    assert len(StoreFiles.open(folder, check=False).sentences) == before


@pytest.mark.parametrize("kill", ["first", "later", "compact"])
def test_a_commit_is_ended_by_the_next_writing_that_has_nothing_to_write(
    copied: Callable[[str], Path], kill: str
) -> None:
    folder = copied(kill)
    files = StoreFiles.open(folder)
    right = answers(files, SOME)["items"]
    enter(files)
    record = Commits(folder, "pictures-1").read()
    assert record is not None
    assert record.pending is None
    assert {name.split("/")[0] for name in record.done.files} >= {"_versions", "data"}
    # and from now on its files are compared before LanceDB reads them
    assert answers(StoreFiles.open(folder), SOME)["items"] == right
    damage(folder, "metadata")
    with pytest.raises(StoreError, match=r"its file data/.* has changed"):
        StoreFiles.open(folder)


def test_a_search_reads_nothing_while_nothing_changes(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kill in ("none", "later"):
        files = StoreFiles.open(copied(kill))
        right = READINGS["search"](files)
        touched: list[object] = []
        with monkeypatch.context() as patched:
            patched.setattr("limner.search.integrity.file_digest", touched.append)
            patched.setattr("limner.search.integrity.files_of", touched.append)
            patched.setattr(Table, "_compared", touched.append)
            patched.setattr(Table, "_found", touched.append)
            for _ in range(3):
                assert READINGS["search"](files) == right
        assert not touched


def test_a_reader_looks_again_if_a_writer_removes_a_file_meanwhile(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("later")
    right = READINGS["list"](StoreFiles.open(folder, check=False))
    looks: list[object] = []

    def listed(path: StorePath, known: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
        looks.append(path)
        if len(looks) == 1:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return files_of(path, known)

    monkeypatch.setattr("limner.search.integrity.files_of", listed)
    assert READINGS["list"](StoreFiles.open(folder, check=False)) == right
    assert len(looks) > 1
