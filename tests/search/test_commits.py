"""The record of commits: kills at any moment are no damage, lost commits and foreign rows are."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from limner.errors import StoreError
from limner.search.commits import Commits, Record, State, column_sum, digest_sum, files_of
from limner.store.entry import StoredImage, key_of
from limner.store.erase import erase
from limner.search.repair import repair
from limner.search.row_digests import DIGEST, VECTOR_DIGEST, damaged, with_digests
from limner.search.segments import sync_folder
from limner.store.files import StoreFiles
from limner.store.verify import verify


def entry(name: str, **changes: object) -> StoredImage:
    return StoredImage(**{"path": f"/{name}", "sha256": "0" * 64, "size": 1, "mtime": 2, **changes})  # type: ignore[arg-type]


@pytest.fixture
def files(tmp_path: Path) -> StoreFiles:
    made = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=3, run="run")
    made.add([entry("a"), entry("b")], np.eye(3, dtype=np.float32)[:2])
    return made


def record_of(files: StoreFiles) -> Record:
    record = Commits(files.folder, "pictures-1").read()
    assert record is not None
    return record


def test_it_says_what_the_table_holds(files: StoreFiles) -> None:
    record = record_of(files)
    digests = files.table.all([DIGEST])[DIGEST]
    assert (record.done.rows, record.pending, record.done.version) == (2, None, files.table.version)
    assert record.done.holds(2, column_sum(digests))
    # LanceDB writes the names of its files as plain text; of another version that does not, this would fail
    folders = sorted(name.split("/")[0] for name in record.done.files)
    assert folders == ["_versions", "data"]
    files.delete([key_of("/a")])
    folders = sorted(name.split("/")[0] for name in record_of(files).done.files)
    assert folders == ["_deletions", "_versions", "data"]
    files.add([entry("c")], np.ones((1, 3), np.float32))
    files.compact()
    files.add([entry("d")], np.ones((1, 3), np.float32))
    # the joined file and the new one: what compacting has replaced is not read again
    assert sum(name.startswith("data/") for name in record_of(files).done.files) == 2
    chains = [state.chain for state in record_of(files).states]
    assert len(set(chains)) == len(chains)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", ["add", "delete", "compact"])
def test_a_kill_around_a_commit_is_no_damage(
    files: StoreFiles, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    write, written = Commits.write, list[Record]()

    class KilledError(Exception):
        pass

    def killed(self: Commits, record: Record) -> None:
        if "pictures" in self.path.name and (record.pending is None) == (moment == "after"):
            if moment == "before":
                write(self, record)
            written.append(record)
            raise KilledError
        write(self, record)

    monkeypatch.setattr(Commits, "write", killed)
    changes: dict[str, Callable[[], object]] = {
        "add": lambda: files.add([entry("c")], np.ones((1, 3), np.float32)),
        "delete": lambda: files.delete([key_of("/a")]),
        "compact": files.compact,
    }
    with pytest.raises(KilledError):
        changes[change]()
    monkeypatch.undo()
    assert len(written) == 1
    done = moment == "after"
    expected = {"add": 2 + done, "delete": 2 - done, "compact": 2}[change]
    reader = StoreFiles.open(files.folder)
    assert (len(reader), len(reader.search(np.ones(3, np.float32), 9))) == (expected, expected)
    assert verify(reader).sound
    assert record_of(reader).pending is not None
    # the next writer finds out which of both it is
    reader.add([entry("d")], np.ones((1, 3), np.float32))
    assert record_of(reader).pending is None
    assert len(StoreFiles.open(files.folder)) == expected + 1
    assert verify(reader).sound


def test_rows_that_no_commit_left_are_found(files: StoreFiles) -> None:
    table = files.table.opened()
    table.update(where="path = '/a'", values={"identity": "somebody else"})
    for read in (StoreFiles.open, lambda folder: StoreFiles.open(folder, check=False).snapshot()):
        with pytest.raises(StoreError, match="table of pictures is damaged"):
            read(files.folder)


def test_an_old_record_beside_a_new_table_is_found(files: StoreFiles) -> None:
    path = Path(str(files.folder)) / "pictures-1.commits.json"
    before = path.read_bytes()
    files.add([entry("c")], np.ones((1, 3), np.float32))
    path.write_bytes(before)
    with pytest.raises(StoreError, match="damaged"):
        StoreFiles.open(files.folder)


def test_damage_is_told_after_a_second_look(files: StoreFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a writer commits there are more looks: what does not fit may be of a moment between two files."""
    path = Path(str(files.folder)) / "pictures-1.commits.json"
    before = path.read_bytes()
    files.add([entry("c")], np.ones((1, 3), np.float32))
    after = path.read_bytes()
    path.write_bytes(before)
    pauses: list[float] = []
    monkeypatch.setattr("limner.search.table.time.sleep", pauses.append)
    with pytest.raises(StoreError, match="damaged"):
        StoreFiles.open(files.folder, check=False).table.opened()
    assert len(pauses) == 1

    def commit(seconds: float) -> None:
        pauses.append(seconds)
        path.write_bytes(before + b" " * len(pauses) if len(pauses) < 8 else after)

    monkeypatch.setattr("limner.search.table.time.sleep", commit)
    assert StoreFiles.open(files.folder, check=False).table.opened().count_rows() == 3
    assert len(pauses) == 8


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 100_000, "null", '{"done": 1}'])
def test_a_damaged_record_is_one_line(files: StoreFiles, text: str) -> None:
    (Path(str(files.folder)) / "pictures-1.commits.json").write_text(text)
    with pytest.raises(StoreError, match=r"pictures-1\.commits\.json is damaged") as caught:
        StoreFiles.open(files.folder)
    assert "\n" not in str(caught.value)


def test_states_come_and_go_in_any_order() -> None:
    rng = np.random.default_rng(0)
    digests = [rng.bytes(16) for _ in range(20)]
    state = State().after(digests, []).after([], digests[5:]).after(digests[5:9], digests[:2])
    assert state.holds(7, digest_sum(digests[2:9]))
    column = pa.chunked_array([pa.array(digests[:3], pa.binary(16)), pa.array(digests, pa.binary(16))[3:]])
    assert column_sum(column) == digest_sum(digests)
    assert State().after(digests, digests).sum == (0, 0)


def test_another_folder_has_no_files(tmp_path: Path) -> None:
    assert files_of(tmp_path / "nothing", {}) == {}


def test_a_file_that_is_being_written_is_of_no_version(files: StoreFiles) -> None:
    """LanceDB writes deletions under another name first, which is gone a moment later."""
    files.delete([key_of("/a")])
    table = Path(str(files.folder)) / "pictures-1.lance"
    before = files_of(table, {})
    assert any(name.startswith("_deletions/") for name in before)
    (table / "_deletions" / ".tmpABC123").write_bytes(b"a part")
    assert files_of(table, {}) == before


def test_every_column_is_in_a_digest(files: StoreFiles) -> None:
    schema = files.table.schema
    rows = files.table.all(schema.names).slice(0, 1)
    assert not any(wrong.any() for wrong in damaged(rows, schema))
    values = rows.to_pylist()[0]
    numbers = {"size": 9, "mtime": 9, "offset": 9, "thumbnail_size": 9}
    others = {"vector": [9.0, 0.0, 0.0], "taken": datetime(2026, 11, 24), **numbers}
    for name in schema.names:
        other = others.get(name, b"1" * 16 if name.endswith(DIGEST) else "x")
        changed = pa.Table.from_pylist([{**values, name: other}], schema=schema)
        facts, vectors = damaged(changed, schema)
        assert facts[0] or vectors[0], name
        assert (facts[0], vectors[0]) == (
            (False, True) if name == "vector" else (True, name == VECTOR_DIGEST)
        ), name
    again = with_digests(pa.Table.from_pylist([{**values, "size": 9}], schema=schema), schema)
    assert not any(wrong.any() for wrong in damaged(again, schema))
    assert again[DIGEST].to_pylist() != [values[DIGEST]]


def test_a_record_does_not_outlive_what_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a power cut: all files of a commit are on the disk, by their names and bytes, before its record is."""
    synced: dict[Path, int] = {}
    sync, write, commits = sync_folder, Commits.write, list[str]()

    def noted(path: Path) -> None:
        synced[path] = path.stat().st_mtime_ns
        sync(path)

    def written(self: Commits, record: Record) -> None:
        assert isinstance(self.path, Path)
        table = self.path.with_name(self.path.name.removesuffix(".commits.json") + ".lance")
        if record.pending is None:
            held = [table / name for name in record.done.files]
            assert held
            for path in [*held, *{file.parent for file in held}, table]:
                assert synced.get(path) == path.stat().st_mtime_ns, path
            # nor may an earlier version be found damaged that this commit or the first one has made
            made = [path for path in (table / "_versions").glob("*.manifest") if path not in synced]
            assert not made
            commits.append(table.name)
        write(self, record)

    monkeypatch.setattr("limner.search.commits.sync_folder", noted)
    monkeypatch.setattr(Commits, "write", written)
    files = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=3, run="run")
    for name in "abcd":
        files.add([entry(name)], np.ones((1, 3), np.float32), thumbnails=[name.encode()])
    files.delete([key_of("/a")])
    files.compact()
    files.add([entry("b", size=2)], np.ones((1, 3), np.float32), thumbnails=[b"other"])
    erase(files, ids=[key_of("/c")])
    files.add([entry("e")], np.ones((1, 3), np.float32))
    manifest = max((tmp_path / "store" / "pictures-2.lance" / "_versions").glob("*.manifest"))
    manifest.write_bytes(manifest.read_bytes()[:-20])
    repair(StoreFiles.open(files.folder, check=False), lambda: pytest.fail("nothing to encode"))
    assert {"pictures-1.lance", "pictures-2.lance", "pictures-3.lance"} <= set(commits)
    assert len(commits) >= 9
