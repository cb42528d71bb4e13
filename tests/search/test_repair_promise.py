"""The promise of `repair` over random damage: all is restored, or nothing changes and what would be lost is said."""

import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from limner.errors import ImageError, LimnerError
from limner.search.entry import key_of
from limner.search.index import index_pictures
from limner.search.repair import repair
from limner.search.salvage import Salvage
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store_files import StoreFiles
from limner.search.store_path import StorePath, remove
from limner.search.verify import verify
from limner.store_reports import Repair
from limner.types import ImageSource, Pixels
from tests.search.fake import DIM, FakeEncoder, draw

Rows = tuple[dict[str, tuple[str | None, bytes]], Counter[tuple[str, str | None]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a history: three commits, deletions, a picture that was replaced, sentences, a compaction."""
    folder = tmp_path_factory.mktemp("made")
    pictures = [draw(folder / "pictures" / f"{number}.png", number) for number in range(8)]
    encoder = FakeEncoder()
    files = StoreFiles.create(folder / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")

    def index(some: list[Path]) -> None:
        names = {str(path): {"identity": f"person-{path.stem}"} for path in some}
        index_pictures(encoder, files, some, metadata=names)

    def describe(some: list[Path]) -> None:
        SentenceTable(files).index(encoder, [Sentence(f"red {path.stem}", str(path)) for path in some])

    index(pictures[:3])
    describe(pictures[:3])
    files.delete([key_of(str(pictures[1]))])
    files.compact()
    index(pictures[3:6])
    describe(pictures[3:6])
    files.delete([key_of(str(pictures[4]))])
    draw(pictures[5], 55)
    index(pictures[5:])
    SentenceTable(files).index(encoder, [Sentence("of none")])
    return folder


def content(store: Path) -> Rows:
    files = StoreFiles.open(store)
    assert verify(files).sound
    entries = files.entries()
    vectors = files.vectors([key_of(path) for path in entries])
    texts = files.sentences.all(["text", "path"]).to_pylist()
    rows = {
        path: (entry.identity, np.asarray(vector).tobytes())
        for (path, entry), vector in zip(entries.items(), vectors, strict=True)
    }
    assert len(files) == len(rows)
    return rows, Counter((row["text"], row["path"]) for row in texts)


def damage(store: Path, seed: int) -> str:
    random = np.random.default_rng(seed)
    chosen = sorted(
        path for path in store.rglob("*") if path.is_file() and path.name not in ("store.json", ".lock")
    )
    file = chosen[random.integers(len(chosen))]
    data = bytearray(file.read_bytes())
    kind = ("flip", "flip", "cut", "remove")[random.integers(4)]
    if kind == "remove" or not data:
        file.unlink()
    elif kind == "cut":
        file.write_bytes(data[: random.integers(len(data))])
    else:
        data[random.integers(len(data))] ^= 1 << random.integers(8)
        file.write_bytes(data)
    return f"{kind} {file.relative_to(store)}"


def files_of(store: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}


def repaired(store: Path, *, accept_loss: bool) -> Repair:
    return repair(StoreFiles.open(store, check=False), FakeEncoder, accept_loss=accept_loss)


def check(store: Path, truth: Rows) -> str:
    """One damaged store; returns what became of it."""
    before = files_of(store)
    report = repaired(store, accept_loss=False)
    if not report.loses:
        assert report.applied
        assert content(store) == truth
        return "restored"
    assert not report.applied
    assert files_of(store) == before
    done = repaired(store, accept_loss=True)
    assert done == report.model_copy(update={"applied": True})
    rows, texts = content(store)
    assert (done.pictures, done.sentences) == (len(rows), texts.total())
    assert max(texts.values(), default=1) == 1
    if done.earlier:
        assert done.missing
        return "earlier state"
    # nothing that was deleted or replaced is there again
    assert rows.items() <= truth[0].items()
    assert texts <= truth[1]
    if not done.missing:
        # and all that is gone has its name in the report
        assert len(rows) + len(done.lost) == len(truth[0])
        assert texts.total() + len(done.lost_sentences) == truth[1].total()
    return "lost in part"


@pytest.mark.parametrize("seed", range(12))
def test_all_is_restored_or_what_would_be_lost_is_said(made: Path, tmp_path: Path, seed: int) -> None:
    # the pictures' paths are in the rows
    store = tmp_path / "store"
    truth = content(made / "store")
    shutil.copytree(made / "store", store)
    told = damage(store, seed)
    try:
        outcome = check(store, truth)
    except LimnerError as error:
        pytest.fail(f"{told}: {error}")
    except AssertionError as error:
        raise AssertionError(told) from error
    assert outcome


def flipped(store: Path, files: str, wanted: bytes) -> None:
    """Flip a bit in all of these files that have these bytes: earlier versions may have some of their own."""
    found = [path for path in store.glob(files) if wanted in path.read_bytes()]
    assert found
    for file in found:
        data = bytearray(file.read_bytes())
        data[data.find(wanted)] ^= 1
        file.write_bytes(data)


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "store", tmp_path / "store")
    return tmp_path / "store"


def test_a_sentence_whose_text_is_damaged_is_lost_and_said(made: Path, store: Path) -> None:
    flipped(store, "sentences-1.lance/data/*", b"of none")
    assert check(store, content(made / "store")) == "lost in part"
    assert len(StoreFiles.open(store).sentences) == 4


def test_other_deletions_undo_none(made: Path, store: Path) -> None:
    """One flipped bit of the list of deleted rows deletes a row that is sound, and brings back one that was deleted."""
    truth = content(made / "store")
    for file in sorted(store.glob("pictures-1.lance/_deletions/*")):
        for place in range(0, file.stat().st_size, 40):
            data = bytearray(file.read_bytes())
            data[place] ^= 1
            file.write_bytes(data)
            before = files_of(store)
            report = repaired(store, accept_loss=False)
            # another version may have the very rows of the last commit
            if report.applied:
                assert content(store) == truth
            else:
                assert files_of(store) == before
            shutil.rmtree(store)
            shutil.copytree(made / "store", store)


def test_rows_of_several_versions_do_not_meet(made: Path, store: Path) -> None:
    """The newest data files are gone, so that only earlier versions have some of the rows."""
    truth = content(made / "store")
    for table in ("pictures-1", "sentences-1"):
        max((store / f"{table}.lance" / "data").iterdir(), key=lambda path: path.stat().st_mtime_ns).unlink()
    assert check(store, truth) == "lost in part"
    # once more, and nothing is found to repair
    assert not repaired(store, accept_loss=False).loses


def test_a_sentence_does_not_pass_to_the_picture_that_replaced_its_own(made: Path, store: Path) -> None:
    picture = made / "pictures" / "0.png"
    original = picture.read_bytes()
    vector = FakeEncoder().encode_images([picture])[0].tobytes()
    flipped(store, "pictures-1.lance/data/*", vector)
    draw(picture, 77)
    try:
        report = repaired(store, accept_loss=True)
        names = {str(picture): {"identity": "somebody else"}}
        index_pictures(FakeEncoder(), StoreFiles.open(store), [picture], metadata=names)
    finally:
        picture.write_bytes(original)
    assert ([path for path, _ in report.lost], report.lost_sentences) == ([str(picture)], ("red 0",))
    texts = StoreFiles.open(store).sentences.all(["text"]).to_pylist()
    assert "red 0" not in {row["text"] for row in texts}


@pytest.mark.parametrize("record", ["removed", "cut", "sound"])
def test_what_comes_back_is_counted(made: Path, store: Path, record: str) -> None:
    """Of a version before the last commit; also pictures that are encoded again."""
    (version,) = [min((store / "pictures-1.lance" / "_versions").glob("*.manifest"))]
    version.unlink()
    file = store / "pictures-1.commits.json"
    if record == "removed":
        file.unlink()
    elif record == "cut":
        file.write_bytes(file.read_bytes()[:-30])
    else:
        shutil.rmtree(store / "segments")
        (store / "segments").mkdir()
    report = repaired(store, accept_loss=False)
    assert not report.applied
    assert report.earlier >= report.pictures > 0
    done = repaired(store, accept_loss=True)
    assert done == report.model_copy(update={"applied": True})


@pytest.mark.parametrize("table", ["pictures-1", "sentences-1"])
def test_what_stands_twice_is_kept_once_and_said(
    made: Path, store: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = content(made / "store")
    rows = Salvage.rows

    def twice(self: Salvage) -> Iterator[pa.Table]:
        parts = list(rows(self))
        yield from parts
        if self.table == table:
            yield parts[0].slice(0, 1)

    (store / f"{table}.commits.json").write_bytes(b"{}")
    monkeypatch.setattr(Salvage, "rows", twice)
    report = repaired(store, accept_loss=False)
    assert (report.applied, report.lost) == (False, ())
    assert report.missing[0] == f"{table}.lance: 1 rows stand for what another row stands for"
    assert repaired(store, accept_loss=True).applied
    assert content(store) == truth


class Refusing(FakeEncoder):
    """It cannot read one picture, from its so many-th look at it on."""

    def __init__(self, name: str, looks: int) -> None:
        super().__init__()
        self.name, self.looks = name, looks

    def prepare_image(self, source: ImageSource) -> Pixels:
        if isinstance(source, str | Path) and Path(source).name == self.name:
            self.looks -= 1
            if self.looks <= 0:
                raise ImageError(f"{self.name}: cannot be decoded")
        return super().prepare_image(source)


@pytest.mark.parametrize("looks", [1, 2])
def test_a_picture_that_cannot_be_read_again_goes_with_its_sentence(
    made: Path, store: Path, looks: int
) -> None:
    """Though its file has the bytes that were indexed, or had them until a moment ago."""
    for name in ("0.png", "2.png"):
        vector = FakeEncoder().encode_images([made / "pictures" / name])[0].tobytes()
        flipped(store, "pictures-1.lance/data/*", vector)
    gone = made / "pictures" / "2.png"
    gone.rename(gone.with_suffix(".away"))
    try:
        reports = [
            repair(
                StoreFiles.open(store, check=False),
                partial(Refusing, "0.png", looks),
                accept_loss=accepted,
            )
            for accepted in (False, True)
        ]
    finally:
        gone.with_suffix(".away").rename(gone)
    # found at the first look, it is listed before anything is accepted
    assert len(reports[0].lost) == (2 if looks == 1 else 1)
    assert [Path(path).name for path, _ in reports[1].lost] == ["0.png", "2.png"]
    assert set(reports[1].lost_sentences) == {"red 0", "red 2"}
    assert content(store)[1].keys().isdisjoint({("red 0", str(made / "pictures" / "0.png"))})


def test_a_store_of_which_nothing_is_left_can_be_used(
    made: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the repair was killed while it removed the old tables."""
    for table in ("pictures-1", "sentences-1"):
        for file in (store / f"{table}.lance" / "data").iterdir():
            file.unlink()

    def killed(path: StorePath) -> None:
        if path.name.endswith(".lance"):
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr("limner.search.generations.remove", killed)
    with pytest.raises(KeyboardInterrupt):
        repaired(store, accept_loss=True)
    monkeypatch.undo()
    files = StoreFiles.open(store)
    assert (len(files), len(files.sentences)) == (0, 0)
    assert verify(files).sound
    assert index_pictures(FakeEncoder(), files, [made / "pictures" / "0.png"]).added == 1
    assert not (store / "pictures-1.lance").exists()


def test_of_a_row_that_stands_twice_the_sound_one_is_kept(
    made: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = content(made / "store")
    rows = Salvage.rows

    def damaged_first(self: Salvage) -> Iterator[pa.Table]:
        parts = list(rows(self))
        if self.table == "pictures-1":
            part = parts[0]
            place = part.schema.get_field_index("sha256")
            yield part.set_column(place, part.schema.field(place), pa.array(["0" * 64] * len(part)))
        yield from parts

    (store / "pictures-1.commits.json").write_bytes(b"{}")
    monkeypatch.setattr(Salvage, "rows", damaged_first)
    report = repaired(store, accept_loss=True)
    assert (report.lost, report.lost_sentences) == ((), ())
    assert content(store) == truth
