"""A store in the files of other programs, and back: the same keys, vectors bit for bit, facts and first hits."""

import json
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.conditions import wrong_name
from limner.errors import DataError, SettingsError, StoreError
from limner.search import store_export
from limner.search.foreign_vectors import index_vectors, read_vectors, store_of_vectors
from limner.search.image_files import small_bytes
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store_export import export_store
from limner.store.entry import StoredImage
from limner.store.erase import erase
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, draw, nearest, unit, vectors_of

NAMES = {"parquet": "out.parquet", "lance": "out.lance", "faiss": "out", "qdrant-jsonl": "out.jsonl"}
COUNT = 10

EXPORTED = Path(__file__).parent / "exported_stores"

every_format = pytest.mark.parametrize("to", NAMES)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    names = ["a", "ärger", "c c", "d'e", "列", *map(str, range(COUNT - 5))]
    return [draw(folder / f"{name}.png", number) for number, name in enumerate(names)]


def made(
    folder: Path, pictures: list[Path], vectors: np.ndarray, facts: list[dict[str, Any]] | None = None
) -> StoreFiles:
    """A store of the fake model with vectors and facts that are given."""
    files = StoreFiles.create(folder, fingerprint="a" * 64, dim=vectors.shape[1], run="run")
    entries = []
    for number, path in enumerate(pictures):
        given_facts = facts[number] if facts else {"identity": f"p{number // 2}", "metadata": {"n": number}}
        state = path.stat()
        digest = f"{number:064x}"
        entries.append(StoredImage(str(path), digest, state.st_size, state.st_mtime_ns, **given_facts))
    files.add(entries, vectors, None, [small_bytes(entry) for entry in entries])
    return files


def drawn(count: int = COUNT, dim: int = DIM, seed: int = 0) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(count, dim)))


def back(exported: Path, folder: Path) -> StoreFiles:
    given_vectors = read_vectors(exported)
    files = store_of_vectors("theirs", given_vectors.vectors.shape[1], folder)
    report = index_vectors(files, given_vectors)
    assert not report.skipped
    return files


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(-1e9, 1e9)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
facts_of_a_picture = st.fixed_dictionaries(
    {
        # an empty identity is none, and names of facts have no blanks at their ends: others are refused
        "identity": st.none() | st.text(max_size=6).filter(str.strip),
        "taken_told": st.none() | st.datetimes(datetime(1901, 1, 1), datetime(2100, 1, 1)),
        # these two names are facts of their own, which `--metadata` takes out of the others
        "metadata": st.dictionaries(
            st.text(max_size=6).filter(
                lambda name: not wrong_name(name) and name not in ("identity", "taken")
            ),
            # there is no fact that is null
            values.filter(lambda value: value is not None),
            max_size=3,
        ),
    }
)


@every_format
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_a_store_comes_back_as_it_was(
    data: st.DataObject, to: str, pictures: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("stores")
    dim = data.draw(st.integers(1, 9))
    chosen = data.draw(st.lists(st.sampled_from(pictures), min_size=1, unique=True))
    facts = [data.draw(facts_of_a_picture) for _ in chosen]
    vectors = drawn(len(chosen), dim, data.draw(st.integers(0, 2**32)))
    if data.draw(st.booleans()):
        vectors[-1] = vectors[0]
    files = made(tmp_path / "store", chosen, vectors, facts)
    report = export_store(files.folder, tmp_path / NAMES[to], to)
    assert (report.pictures, report.dim, report.fingerprint) == (len(chosen), dim, "a" * 64)
    new = back(tmp_path / NAMES[to], tmp_path / "new")
    before, after = files.snapshot(), new.snapshot()
    assert after.keys == before.keys
    assert after.matrix.tobytes() == before.matrix.tobytes()
    entries, found = files.entries(), new.entries()
    for path, entry in entries.items():
        assert (found[path].identity, found[path].taken_told) == (entry.identity, entry.taken_told)
        assert found[path].metadata == entry.metadata
    query = drawn(1, dim, 7)[0]
    hits = [
        [(hit.id, hit.score, hit.identity) for hit in nearest(one, query, len(chosen))]
        for one in (files, new)
    ]
    assert hits[0] == hits[1]


def test_numbers_are_spelt_so_that_they_read_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix = (rng.normal(size=(300, 16)) * 10.0 ** rng.integers(-45, 38, (300, 16))).astype(np.float32)
    matrix[0, :5] = np.array([0.0, -0.0, 1.0, 1e-45, np.finfo(np.float32).max], np.float32)
    column = pa.chunked_array([pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 16)])
    spelt = [json.loads(f"[{numbers}]") for numbers in store_export._numbers(column.slice(2, 200))]
    assert np.array(spelt, np.float32).tobytes() == matrix[2:202].tobytes()
    first = json.loads(f"[{store_export._numbers(column.slice(0, 1))[0]}]")
    assert np.array(first, np.float32).tobytes() == matrix[0].tobytes()


@every_format
def test_a_picture_that_has_moved_comes_back_with_its_key(to: str, tmp_path: Path) -> None:
    first = draw(tmp_path / "pictures" / "x.png", 1)
    files = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")
    index_pictures(FakeEncoder(), files, [first])
    first.rename(first.with_name("y.png"))
    index_pictures(FakeEncoder(), files, [first.parent, draw(first, 2)])
    export_store(files.folder, tmp_path / NAMES[to], to)
    new = back(tmp_path / NAMES[to], tmp_path / "new")
    for _ in range(2):
        assert {one.path: one.id for one in new.images()} == {one.path: one.id for one in files.images()}
        index_vectors(new, read_vectors(tmp_path / NAMES[to]))


@every_format
def test_deleted_and_erased_rows_stay_out(to: str, pictures: list[Path], tmp_path: Path) -> None:
    files = made(tmp_path / "store", pictures, drawn())
    SentenceTable(files).index(
        FakeEncoder(), [Sentence(f"about {path.stem}", str(path)) for path in pictures]
    )
    keys = {path: entry.id for path, entry in files.entries().items()}
    files.delete([keys[str(pictures[0])]])
    erase(files, [keys[str(pictures[1])]])
    report = export_store(files.folder, tmp_path / NAMES[to], to)
    assert (report.pictures, report.sentences) == (COUNT - 2, COUNT - 2)
    assert read_vectors(tmp_path / NAMES[to]).paths == tuple(sorted(files.entries()))
    assert left_in(tmp_path) == sorted(
        ["store", NAMES[to], *(["out.jsonl.about.json"] if to == "qdrant-jsonl" else [])]
    )
    for path in (tmp_path / NAMES[to], *(tmp_path / NAMES[to]).rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            assert str(pictures[0]).encode() not in content
            assert keys[str(pictures[1])].encode() not in content


def test_each_format_says_what_its_rows_are(pictures: list[Path], tmp_path: Path) -> None:
    files = made(tmp_path / "store", pictures, drawn())
    texts = ["a red one", "another", "zwei"]
    sentences = [Sentence(text, str(pictures[3])) for text in texts]
    SentenceTable(files).index(FakeEncoder(), [*sentences, Sentence("of no picture")])
    for to, name in NAMES.items():
        assert export_store(files.folder, tmp_path / name, to).sentences == len(texts)
    table = pq.read_table(tmp_path / "out.parquet")
    about = json.loads(table.schema.metadata[b"limner"])
    assert about == {"format": 1, "rows": COUNT, "dim": DIM, "fingerprint": "a" * 64, "run": "run"}
    lance = lancedb.connect(str(tmp_path)).open_table("out")
    assert json.loads(lance.schema.metadata[b"limner"]) == about
    assert json.loads((tmp_path / "out" / "about.json").read_text()) == about
    assert json.loads((tmp_path / "out.jsonl.about.json").read_text()) == about
    rows = {row["path"]: row for row in table.to_pylist()}
    assert rows[str(pictures[3])]["sentences"] == texts
    assert rows[str(pictures[0])]["sentences"] == []
    assert lance.to_arrow().sort_by("path").to_pylist() == table.sort_by("path").to_pylist()
    no_vectors = table.drop_columns(["vector"]).to_pylist()
    assert pq.read_table(tmp_path / "out" / "rows.parquet").to_pylist() == no_vectors
    points = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [point["id"].replace("-", "") for point in points] == table["id"].to_pylist()
    assert {point["payload"]["metadata"]["n"] for point in points} == set(range(COUNT))
    np.testing.assert_array_equal(
        np.array([one["vector"] for one in points], np.float32), table["vector"].to_pylist()
    )


def test_faiss_reads_the_index(pictures: list[Path], tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    files = made(tmp_path / "store", pictures, drawn())
    export_store(files.folder, tmp_path / "out", "faiss")
    index = faiss.read_index(str(tmp_path / "out" / "vectors.faiss"))
    assert isinstance(index, faiss.IndexFlatIP)
    assert (index.ntotal, index.d, index.metric_type) == (COUNT, DIM, faiss.METRIC_INNER_PRODUCT)
    keys = pq.read_table(tmp_path / "out" / "rows.parquet")["id"].to_pylist()
    query = drawn(1, DIM, 3)
    scores, places = index.search(query, 4)
    hits = nearest(files, query[0], 4)
    assert [keys[place] for place in places[0]] == [hit.id for hit in hits]
    np.testing.assert_allclose(scores[0], [hit.score for hit in hits], atol=1e-6)
    # and one that faiss has written is read
    again = faiss.IndexFlatIP(DIM)
    again.add(index.reconstruct_n(0, COUNT))
    faiss.write_index(again, str(tmp_path / "out" / "vectors.faiss"))
    np.testing.assert_array_equal(read_vectors(tmp_path / "out").vectors, index.reconstruct_n(0, COUNT))


@every_format
def test_an_export_is_of_one_moment(
    to: str, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_export, "_BLOCK", 3)
    files = made(tmp_path / "store", pictures, drawn())
    keys = [entry.id for entry in files.entries().values()]
    seen: list[tuple[int, int]] = []

    def deleting(done: int, total: int) -> None:
        if not seen:
            StoreFiles.open(files.folder).delete(keys[-2:])
        seen.append((done, total))

    assert export_store(files.folder, tmp_path / NAMES[to], to, progress=deleting).pictures == COUNT
    assert seen == [(3, COUNT), (6, COUNT), (9, COUNT), (COUNT, COUNT)]
    assert len(read_vectors(tmp_path / NAMES[to]).paths) == COUNT
    assert len(files) == COUNT - 2

    # SQLite's file cannot be cut off while the export reads it, so that erasure has to be called again
    monkeypatch.setattr("limner.store.sqlite_file.WAIT", 0.1)

    def erasing(done: int, total: int) -> None:
        if done == 3:
            with pytest.raises(StoreError, match="call it again"):
                erase(StoreFiles.open(files.folder), keys[:1])

    with pytest.raises(StoreError, match="was erased from meanwhile"):
        export_store(files.folder, tmp_path / f"again{Path(NAMES[to]).suffix}", to, progress=erasing)
    assert not [name for name in left_in(tmp_path) if "again" in name]

    def erasing_at_the_end(done: int, total: int) -> None:
        if done == total:
            with pytest.raises(StoreError, match="call it again"):
                erase(StoreFiles.open(files.folder), keys[1:2])

    with pytest.raises(StoreError, match="was erased from meanwhile"):
        export_store(
            files.folder, tmp_path / f"late{Path(NAMES[to]).suffix}", to, progress=erasing_at_the_end
        )
    assert not [name for name in left_in(tmp_path) if "late" in name]


@every_format
def test_an_interrupted_export_leaves_nothing(
    to: str, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_export, "_BLOCK", 3)
    files = made(tmp_path / "store", pictures, drawn())

    def stopping(done: int, total: int) -> None:
        assert not (tmp_path / NAMES[to]).exists()
        if done > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_store(files.folder, tmp_path / NAMES[to], to, progress=stopping)
    assert left_in(tmp_path) == ["store"]


@every_format
def test_a_damaged_row_is_refused(to: str, pictures: list[Path], tmp_path: Path) -> None:
    files = made(tmp_path / "store", pictures, drawn())
    row = vectors_of(files, [next(iter(files.entries().values())).id])[0].tobytes()
    database = sqlite3.connect(tmp_path / "store" / "store.sqlite")
    content = bytearray(row)
    content[5] ^= 0x20
    database.execute("UPDATE vectors SET vector=? WHERE vector=?", (content, row))
    database.commit()
    database.close()
    with pytest.raises(StoreError, match="damaged"):
        export_store(files.folder, tmp_path / NAMES[to], to)
    assert left_in(tmp_path) == ["store"]


@every_format
def test_a_store_without_pictures(to: str, tmp_path: Path) -> None:
    files = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run")
    assert export_store(files.folder, tmp_path / NAMES[to], to).pictures == 0
    with pytest.raises(DataError, match="holds no"):
        read_vectors(tmp_path / NAMES[to])


def test_names_that_cannot_be_are_refused(pictures: list[Path], tmp_path: Path) -> None:
    folder = made(tmp_path / "store", pictures, drawn()).folder
    (tmp_path / "there.parquet").touch()
    for out, to, message in (
        ("out.csv", "csv", "--to: expected parquet, lance, faiss, qdrant-jsonl, got 'csv'"),
        ("out.pq", "parquet", r"ends in \.parquet"),
        ("out.index", "faiss", "without a dot"),
        ("there.parquet", "parquet", "is there already"),
        ("store/out.parquet", "parquet", "lies in the store"),
    ):
        with pytest.raises(SettingsError, match=message):
            export_store(folder, tmp_path / out, to)
    with pytest.raises(StoreError, match="no such store"):
        export_store(tmp_path / "nowhere", tmp_path / "out.parquet", "parquet")


def test_each_format_has_stores() -> None:
    assert sorted(path.name for path in EXPORTED.iterdir()) == [
        f"format-{n}" for n in range(1, store_export.FORMAT + 1)
    ]


@pytest.mark.parametrize(
    "file", sorted(EXPORTED.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_what_was_written_once_is_read_for_ever(file: Path) -> None:
    """All formats were written of one store; its rows as Parquet are what the others must be."""
    found, own = read_vectors(file), read_vectors(file.parent / "store.parquet")
    assert sorted(found.paths) == sorted(own.paths)
    rows = {path: place for place, path in enumerate(own.paths)}
    assert own.facts is not None
    assert found.facts is not None
    for path, vector, facts in zip(found.paths, found.vectors, found.facts, strict=True):
        np.testing.assert_array_equal(vector, own.vectors[rows[path]])
        assert facts.get("identity") == own.facts[rows[path]].get("identity")
