import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from limner.errors import StoreError
from limner.search.image_files import open_unchanged
from limner.search.image_look import Seen, Task, look_at
from limner.search.index import index_pictures, reindex
from limner.search.places import plan, stats_of
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store_export import export_store
from limner.store.entry import Place, StoredImage, key_of
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.uploads import MARK
from limner.store.verify import verify
from limner.store.writer import StoreWriter
from limner.store_reports import IndexReport
from tests.search.fake import DIM, FakeEncoder, draw

PATHS = [f"{folder}/{name}.png" for folder in ("a", "b") for name in ("x", "y", "z")]


def bytes_of(tmp_path: Path, number: int) -> bytes:
    """Contents of a picture; those of one to three have as many bytes as each other."""
    file = tmp_path / f"content-{number}.png"
    content = (file if file.exists() else draw(file, number)).read_bytes()
    return content.ljust(400, b"\0") if number <= 3 else content


def made(folder: Path) -> StoreFiles:
    return StoreFiles.create(folder, fingerprint="a" * 64, dim=DIM, run="run")


def put(path: Path, content: bytes, before: bytes | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # a time of its own, as files have that were not written in one tick of the clock
    put.clock += 1_000_000_000  # type: ignore[attr-defined]
    path.write_bytes(content)
    os.utime(path, ns=(put.clock, put.clock))  # type: ignore[attr-defined]
    return path


put.clock = 10**18  # type: ignore[attr-defined]


def indexed(
    store: StoreFiles, folder: Path, told: Mapping[str, Any] | None = None
) -> tuple[IndexReport, int]:
    """The report, and how many pictures were encoded."""
    encoder = FakeEncoder()
    metadata = {str(folder / path): {"identity": name} for path, name in (told or {}).items()}
    return index_pictures(encoder, store, [folder], metadata=metadata, workers=1), encoder.encoded


def change(folder: Path, step: tuple[str, str, str], tmp_path: Path) -> None:
    """Do to files what people do; a step on a file that is not there does nothing."""
    what, first, second = step
    one, two = folder / first, folder / second
    if what.startswith("write"):
        put(one, bytes_of(tmp_path, int(what[-1])))
    elif not one.exists() or one == two:
        return
    elif what == "copy":
        put(two, one.read_bytes())
    elif what == "move":
        two.parent.mkdir(exist_ok=True)
        one.rename(two)
    elif what == "swap" and two.exists():
        one.rename(folder / "between")
        two.rename(one)
        (folder / "between").rename(two)
    elif what == "delete":
        one.unlink()
    elif what == "touch":
        put(one, one.read_bytes())
    elif what == "rename folder" and one.parent != two.parent:
        shutil.rmtree(two.parent, ignore_errors=True)
        one.parent.rename(two.parent)
    # one that holds nothing may be a disk that is away (test_places_away.py)
    for place in {one.parent, two.parent}:
        if place.is_dir():
            (place / ".other").touch()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write 1",
                "write 2",
                "write 3",
                "write 4",
                "copy",
                "move",
                "swap",
                "delete",
                "touch",
                "rename folder",
            ]
        ),
        st.sampled_from(PATHS),
        st.sampled_from(PATHS),
    ),
    min_size=1,
    max_size=6,
)


def contents(folder: Path) -> dict[str, list[str]]:
    """Paths of the pictures in a folder by the digest of their bytes."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.png")):
        found[sha256(path.read_bytes()).hexdigest()].append(str(path))
    return dict(found)


def alive(store: StoreFiles) -> list[StoredImage]:
    """Images of which a file is there: those of deleted files stay until somebody deletes them."""
    return [image for image in store.images() if any(Path(path).exists() for path in image.paths)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(STEPS, min_size=1, max_size=4))
def test_a_row_follows_its_bytes(rounds: list[list[tuple[str, str, str]]], tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    store = made(tmp_path / "store")
    for steps in rounds:
        put(folder / "always.png", bytes_of(tmp_path, 5))
        for step in steps:
            change(folder, step, tmp_path)
        before = {image.sha256: image.id for image in store.images()}
        report, encoded = indexed(store, folder)
        now = contents(folder)
        # one picture for each contents, at all of its places and at no other
        assert {image.sha256: sorted(image.paths) for image in alive(store)} == now
        # what was known keeps its key, and only what was not is encoded
        kept = {digest: key for digest, key in before.items() if digest in now}
        assert {
            digest: key for digest, key in ((i.sha256, i.id) for i in alive(store)) if digest in kept
        } == kept
        assert encoded == len(now.keys() - before.keys())
        assert report.added + report.updated == encoded
        assert report.moved + report.unchanged == len(kept)
        version = store.snapshot().version
        again, encoded = indexed(store, folder)
        assert (again, encoded, store.snapshot().version) == (IndexReport(unchanged=len(now)), 0, version)
        assert verify(store, hashes=True).sound


class KilledError(StoreError):
    """Ends an index run at a commit."""


def ended_at(commit: int, index: Callable[[], object]) -> None:
    """Index with a commit after each picture, and end it at one of them as a kill does."""
    whole, left = StoreWriter.commit, [commit]

    def counted(writer: StoreWriter) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError("killed")
        whole(writer)

    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        patch.setattr(StoreWriter, "commit", counted)
        patch.setattr("limner.store.writer.IMAGES", 1)
        patch.setattr("limner.search.index._KEPT_BATCH", 1)
        index()


def state_of(store: StoreFiles) -> tuple[list[Any], list[Any]]:
    images = [(image.sha256, image.identity, sorted(image.paths)) for image in store.images()]
    with store.rows.reading() as reading:
        return sorted(images, key=str), sorted((one.text, one.path) for one, _ in reading.sentences())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(
        st.tuples(STEPS, st.sampled_from(["a", "b", "ab"]), st.integers(0, 4)), min_size=1, max_size=2
    )
)
@example(rounds=[([("copy", "a/z.png", "a/x.png"), ("write 6", "b/y.png", "b/y.png")], "ab", 1)])
def test_parts_of_a_folder_and_kills(rounds: list[tuple[Any, str, int]], tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    for used in ("pictures", "store"):
        shutil.rmtree(tmp_path / used, ignore_errors=True)
    store = made(tmp_path / "store")
    for number, path in enumerate(PATHS):
        put(folder / path, bytes_of(tmp_path, number % 4 + 1))
    indexed(store, folder, dict.fromkeys(PATHS, "A"))
    SentenceTable(store).index(FakeEncoder(), [Sentence(path, str(folder / path)) for path in PATHS])
    for steps, parts, commit in rounds:
        for step in steps:
            change(folder, step, tmp_path)
        given_files = [file for part in parts for file in sorted((folder / part).glob("*.png"))]
        if not given_files:
            continue
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        shutil.copytree(tmp_path / "store", tmp_path / "killed")

        def index(store: StoreFiles, files: list[Path] = given_files) -> StoreFiles:
            index_pictures(FakeEncoder(), store, files, workers=1, batch_size=1)
            return store

        ended_at(commit, lambda: index(StoreFiles.open(tmp_path / "killed")))
        killed = index(StoreFiles.open(tmp_path / "killed"))
        assert state_of(killed) == state_of(index(store)) == state_of(index(store))
        held = {path: image for image in store.images() for path in image.paths}
        assert len(held) == sum(len(image.paths) for image in store.images())
        for file in given_files:
            assert held[str(file)].sha256 == sha256(file.read_bytes()).hexdigest()
        assert {path for _, path in state_of(store)[1]} <= held.keys()


def test_a_path_that_is_used_again_and_again_takes_no_key_of_another(tmp_path: Path) -> None:
    store, inbox = made(tmp_path / "store"), tmp_path / "inbox" / "IMG.png"
    for number in range(4, 8):
        # each of another size: rows that are not looked at hold keys, too
        put(inbox, bytes_of(tmp_path, number) + bytes(number))
        indexed(store, inbox.parent, {"IMG.png": str(number)})
        archive = tmp_path / f"{number}"
        archive.mkdir()
        inbox.rename(archive / inbox.name)
        assert indexed(store, archive)[0] == IndexReport(moved=1)
    assert sorted(image.identity or "" for image in store.images()) == ["4", "5", "6", "7"]
    # a key that was made of a path is no reason to take the sentences of what lies there now
    put(inbox, bytes_of(tmp_path, 8))
    indexed(store, inbox.parent)
    SentenceTable(store).index(FakeEncoder(), [Sentence("a red coat", str(inbox))])
    assert erase(store, key_of(str(inbox))).sentences == 0


def test_a_renamed_folder_keeps_all(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    for number in range(4):
        put(folder / "2023" / f"{number}.png", bytes_of(tmp_path, number + 4))
    indexed(store, folder, {"2023/1.png": "anna"})
    sentences = [Sentence("a red coat", str(folder / "2023" / "1.png")), Sentence("no picture")]
    SentenceTable(store).index(FakeEncoder(), sentences)
    keys = {Path(image.path).name: image.id for image in store.images()}
    (folder / "2023").rename(folder / "Holiday")
    report, encoded = indexed(store, folder)
    assert (report, encoded) == (IndexReport(moved=4), 0)
    assert {Path(image.path).name: image.id for image in store.images()} == keys
    assert {Path(image.path).parent.name for image in store.images()} == {"Holiday"}
    assert [image.identity for image in store.images()] == [None, "anna", None, None]
    found = SentenceTable(store).search(FakeEncoder().encode_texts("a red coat")[0], 1)[0]
    assert (found.id, found.path) == (keys["1.png"], folder / "Holiday" / "1.png")
    # the old name is free for another picture, which gets a key of its own
    put(folder / "2023" / "1.png", bytes_of(tmp_path, 9))
    assert indexed(store, folder)[0] == IndexReport(added=1, unchanged=4)
    assert len({image.id for image in store.images()}) == 5


def test_another_model_gets_the_same_keys_and_copies(tmp_path: Path) -> None:
    store, other, folder = made(tmp_path / "store"), made(tmp_path / "other"), tmp_path / "pictures"
    for number, name in enumerate("abc"):
        put(folder / f"{name}.png", bytes_of(tmp_path, number + 4))
    indexed(store, folder, {"a.png": "anna"})
    (folder / "a.png").rename(folder / "z.png")
    put(folder / "b copy.png", (folder / "b.png").read_bytes())
    put(folder / "gone.png", (folder / "b.png").read_bytes())
    indexed(store, folder)
    (folder / "gone.png").unlink()
    assert reindex(store, FakeEncoder(), other) == IndexReport(added=3, copies=1)
    assert [(i.id, i.identity) for i in other.images()] == [(i.id, i.identity) for i in store.images()]


def test_a_copy_is_a_place_of_its_picture(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    one = put(folder / "one" / "x.png", bytes_of(tmp_path, 4))
    two = put(folder / "two" / "y.png", one.read_bytes())
    put(folder / "one" / "z.png", bytes_of(tmp_path, 5))
    store = made(tmp_path / "store")
    assert indexed(store, folder)[0] == IndexReport(added=2, copies=1)
    item = next(item for item in store.snapshot().items(store.snapshot().meeting([])) if item.copies)
    assert (item.path, item.copies) == (one, (two,))
    assert store.snapshot().row_at(str(two)) == store.snapshot().row_at(str(one)) is not None
    assert store.snapshot().row_at(str(tmp_path)) is None
    assert "copies" not in item.model_copy(update={"copies": ()}).model_dump()
    assert verify(store).found == {}
    one.unlink()
    assert verify(store).found["copies"].example == str(one)
    # what is shown comes from the file that is left
    with open_unchanged(store.entries()[str(two)]) as file:
        assert file.read() == two.read_bytes()
    assert store.take_out([str(one)]) == 0
    assert store.entries()[str(two)].paths == [str(two)]
    three = put(folder / "three.png", two.read_bytes())
    assert indexed(store, folder)[0] == IndexReport(unchanged=2, copies=1)
    two.unlink()
    # an empty folder may be a disk that is away
    assert indexed(store, folder)[0] == IndexReport(unchanged=2)
    assert store.entries()[str(three)].paths == [str(two), str(three)]
    two.parent.rmdir()
    assert indexed(store, folder)[0] == IndexReport(unchanged=2)
    assert store.entries()[str(three)].paths == [str(three)]
    two = put(two, three.read_bytes())
    indexed(store, folder)
    report = erase(store, paths=two.parent)
    assert (report.pictures, report.left, report.found) == (1, 1, ())


def test_all_places_of_an_erased_picture_are_searched_for(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    put(folder / "one.png", bytes_of(tmp_path, 4))
    put(folder / "the second place of it.png", bytes_of(tmp_path, 4))
    indexed(store, folder)
    note = b"the second place of it.png"
    assert any(note in file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert erase(store, paths=folder / "one.png").pictures == 1
    assert not any(note in file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())


def test_an_upload_is_a_picture_of_its_own(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    content = bytes_of(tmp_path, 4)
    name = f"{sha256(content).hexdigest()}.png"
    # a file that its owner has named so is none
    own = [put(folder / one, content) for one in ("a.png", name, "z.png")]
    uploads = tmp_path / "uploads"
    put(uploads / MARK, b"")
    upload = put(uploads / name, content)
    assert indexed(store, folder)[0] == IndexReport(added=1, copies=2)
    assert indexed(store, uploads, {name: "bert"})[0] == IndexReport(added=1)
    key = store.entries()[str(upload)].id
    # it stays one where its folder is moved, and where the owner's disk is away
    uploads = uploads.rename(tmp_path / "moved")
    folder.rename(tmp_path / "away")
    assert indexed(store, uploads) == (IndexReport(moved=1), 0)
    (image,) = [image for image in store.images() if image.id == key]
    assert (image.paths, image.identity) == ([str(uploads / name)], "bert")
    other = tmp_path / "other uploads"
    put(other / MARK, b"")
    put(other / name, content)
    assert indexed(store, other)[0] == IndexReport(added=1)
    (tmp_path / "away").rename(folder)
    assert indexed(store, folder)[0] == IndexReport(unchanged=1)
    assert {tuple(image.paths) for image in store.images()} == {
        tuple(map(str, own)),
        (str(uploads / name),),
        (str(other / name),),
    }


def test_no_key_of_another_picture_is_taken_by_a_change_of_model(tmp_path: Path) -> None:
    old, new, folder = made(tmp_path / "old"), made(tmp_path / "new"), tmp_path / "pictures"
    path = put(folder / "a.png", bytes_of(tmp_path, 4))
    indexed(old, folder)
    moved = path.rename(folder / "b.png")
    indexed(old, folder)
    # of another size, so that nothing but its key tells of it
    put(path, bytes_of(tmp_path, 5) + bytes(99))
    index_pictures(FakeEncoder(), new, [path])
    reindex(old, FakeEncoder(), new)
    assert {image.path for image in new.images()} == {str(path), str(moved)}


def test_a_path_that_differs_in_case_alone_is_the_same_where_the_system_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    file = put(folder / "Café.PNG", bytes_of(tmp_path, 4))
    indexed(store, folder)
    key = store.images()[0].id
    new = file.rename(folder / "cafe\u0301.png")
    found, stat = str(file), os.stat
    # as a disk of macOS or Windows answers
    monkeypatch.setattr(os, "stat", lambda path, **how: stat(new if str(path) == found else path, **how))
    with ThreadPoolExecutor(1) as threads:
        paths = [str(new)]
        planned = plan(paths, stats_of(paths, threads), store.images(), {}, threads)
    assert planned.moves == {found: str(new)}
    assert [(seen.entry.id, seen.entry.path, seen.outcome) for seen in planned.kept] == [
        (key, str(new), "moved")
    ]
    # another name of the same file is no rename
    monkeypatch.undo()
    os.link(new, folder / "CAFÉ.png")
    monkeypatch.setattr(os, "stat", lambda path, **how: stat(new if str(path) == found else path, **how))
    with ThreadPoolExecutor(1) as threads:
        planned = plan(paths, stats_of(paths, threads), store.images(), {}, threads)
    assert (planned.moves, planned.copies) == ({}, 1)


def test_sentences_of_all_places_stay_with_an_edited_picture(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one, two = (put(folder / name, bytes_of(tmp_path, 4)) for name in ("one.png", "two.png"))
    indexed(store, folder)
    SentenceTable(store).index(FakeEncoder(), [Sentence("a red coat", str(two))])
    two.unlink()
    put(one, bytes_of(tmp_path, 5))
    assert indexed(store, folder)[0] == IndexReport(updated=1)
    assert erase(store, store.images()[0].id).sentences == 1
    assert not len(SentenceTable(store))


def test_adding_a_picture_that_has_moved_keeps_its_key(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    file = put(folder / "x.png", bytes_of(tmp_path, 4))
    indexed(store, folder)
    moved = file.rename(folder / "y.png")
    report = index_pictures(FakeEncoder(), store, [moved], metadata={str(moved): {"identity": "anna"}})
    assert report == IndexReport(updated=1)
    assert [(image.path, image.identity, image.id) for image in store.images()] == [
        (str(moved), "anna", key_of(str(file)))
    ]
    # of few paths only rows that could be theirs are read, and each file has one picture all the same
    for number in range(4):
        put(folder / f"{number}.png", bytes_of(tmp_path, number))
        index_pictures(FakeEncoder(), store, [folder / f"{number}.png"])
    assert {image.sha256: sorted(image.paths) for image in alive(store)} == contents(folder)


def test_an_edited_picture_keeps_its_key_beside_copies_of_the_edit(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    edited = put(folder / "m.png", bytes_of(tmp_path, 4))
    indexed(store, folder, {"m.png": "anna"})
    key = store.images()[0].id
    for name in ("a.png", "m.png", "z.png"):
        put(folder / name, bytes_of(tmp_path, 5))
    assert indexed(store, folder)[0] == IndexReport(updated=1, copies=2)
    assert [(image.id, image.identity, len(image.paths)) for image in store.images()] == [(key, "anna", 3)]
    # the former bytes kept under another name are the picture, and the edited file a new one
    put(folder / "original.png", edited.read_bytes())
    for name in ("a.png", "m.png", "z.png"):
        put(folder / name, bytes_of(tmp_path, 6))
    assert indexed(store, folder)[0] == IndexReport(added=1, moved=1, copies=2)
    held = store.entries()
    original = held[str(folder / "original.png")]
    assert (original.id, original.identity, held[str(edited)].identity) == (key, "anna", None)


def test_the_picture_of_an_overwritten_file_goes(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one, two = put(folder / "1.png", bytes_of(tmp_path, 4)), put(folder / "2.png", bytes_of(tmp_path, 5))
    indexed(store, folder, {"1.png": "anna"})
    key = store.entries()[str(two)].id
    two.rename(one)
    assert indexed(store, folder)[0] == IndexReport(updated=1, replaced=1)
    # what was told of the file is told of what lies there now, of which nothing was
    assert [(image.id, image.path, image.identity) for image in store.images()] == [(key, str(one), "anna")]
    assert verify(store, hashes=True).found == {}


def test_a_sentence_of_a_copy_that_is_gone_is_one_of_the_picture(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one, two = (put(folder / f"{name}.png", bytes_of(tmp_path, 4)) for name in "ab")
    indexed(store, folder)
    sentences = [Sentence(text, str(path)) for text, path in (("red", one), ("red", two), ("blue", two))]
    SentenceTable(store).index(FakeEncoder(), sentences)
    two.unlink()
    indexed(store, folder)
    found = SentenceTable(store).search(FakeEncoder().encode_texts("red")[0], 9)
    assert sorted((sentence.text, sentence.path) for sentence in found) == [("blue", one), ("red", one)]


def test_two_pictures_that_become_one(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    paths = [put(folder / f"{number}.png", bytes_of(tmp_path, number + 4)) for number in range(2)]
    indexed(store, folder)
    for path in paths:
        put(path, bytes_of(tmp_path, 9))
    assert indexed(store, folder)[0] == IndexReport(updated=1, replaced=1, copies=1)
    assert [image.paths for image in store.images()] == [list(map(str, paths))]


def test_bytes_that_replace_a_copy_and_a_picture_are_the_edited_picture(tmp_path: Path) -> None:
    """Whichever comes first: of the copy's picture another file is left."""
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    for name in "ab":
        put(folder / f"{name}.png", bytes_of(tmp_path, 4))
    put(folder / "c.png", bytes_of(tmp_path, 5))
    indexed(store, folder, {"c.png": "carl"})
    key = store.entries()[str(folder / "c.png")].id
    for name in "bc":
        put(folder / f"{name}.png", bytes_of(tmp_path, 9))
    assert indexed(store, folder)[0] == IndexReport(unchanged=1, updated=1, copies=1)
    edited = store.entries()[str(folder / "b.png")]
    assert (edited.id, edited.identity, len(edited.paths)) == (key, "carl", 2)


def test_a_path_through_a_linked_folder_is_another_place(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    path = put(folder / "x.png", bytes_of(tmp_path, 4))
    indexed(store, folder)
    (tmp_path / "link").symlink_to(folder)
    report = index_pictures(FakeEncoder(), store, [tmp_path / "link" / "x.png"])
    assert report == IndexReport(unchanged=1, copies=1)
    assert store.images()[0].paths == [str(path), str(tmp_path / "link" / "x.png")]


def test_copies_of_what_is_no_picture_are_listed_too(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    paths = [put(folder / f"{name}.jpg", b"no picture") for name in "ab"]
    put(folder / "c.png", bytes_of(tmp_path, 4))
    report, _ = indexed(store, folder)
    assert [path for path, _ in report.skipped] == list(map(str, paths))


def test_a_file_that_changes_before_it_is_read_is_no_copy(tmp_path: Path) -> None:
    path = put(tmp_path / "a.png", bytes_of(tmp_path, 4))
    others = (Place("/b.png", 1),)
    for digest, found in ((sha256(path.read_bytes()).hexdigest(), others), ("0" * 64, ())):
        seen = look_at(Task(str(path), others=others, sha256=digest), FakeEncoder().prepare_image)
        assert isinstance(seen, Seen)
        assert seen.entry.others == found


def test_a_deleted_picture_takes_the_sentences_of_all_its_places(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one, two = (put(folder / f"{name}.png", bytes_of(tmp_path, 4)) for name in "ab")
    indexed(store, folder)
    table = SentenceTable(store)
    table.index(FakeEncoder(), [Sentence("red", str(one)), Sentence("blue", str(two)), Sentence("green")])
    store.delete([store.images()[0].id])
    assert len(table) == 1


def test_an_export_has_the_sentences_of_all_places(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one, two = (put(folder / f"{name}.png", bytes_of(tmp_path, 4)) for name in "ab")
    indexed(store, folder)
    SentenceTable(store).index(FakeEncoder(), [Sentence("red", str(one)), Sentence("blue", str(two))])
    export_store(store.folder, tmp_path / "out.parquet", to="parquet")
    assert pq.read_table(tmp_path / "out.parquet")["sentences"].to_pylist() == [["blue", "red"]]


def test_a_sentence_follows_to_the_place_of_a_picture_that_had_the_same(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one, two = (put(folder / f"{number}.png", bytes_of(tmp_path, number + 4)) for number in (1, 2))
    indexed(store, folder)
    SentenceTable(store).index(
        FakeEncoder(), [Sentence(text, str(path)) for text in ("red", "blue") for path in (one, two)]
    )
    two.rename(one)
    assert indexed(store, folder)[0] == IndexReport(moved=1, replaced=1)
    found = SentenceTable(store).search(FakeEncoder().encode_texts("red")[0], 9)
    assert sorted((sentence.text, sentence.path) for sentence in found) == [("blue", one), ("red", one)]
