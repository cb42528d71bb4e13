"""`limner.search.sync`: a store is what its folders are, whatever happens to the files, and when in doubt it waits."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.errors import SettingsError, StoreError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.search.sync import SyncSettings, sync
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.folders import TEXT, Folder, folders_of, follow_folders
from limner.store.verify import verify
from limner.store_reports import SyncReport
from tests.search.fake import FakeEncoder, draw
from tests.search.test_places import STEPS, bytes_of, change, contents, made, put

DAY = 86400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    for number in range(30):
        draw(folder / f"{number // 10}" / f"{number}.png", number)
    return folder


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> StoreFiles:
    store = made(tmp_path / "store")
    facts = {str(folder / "0" / "3.png"): {"identity": "ann", "note": "hers"}}
    index_pictures(FakeEncoder(), store, [folder], metadata=facts)
    return store


def synced(store: StoreFiles, **how: Any) -> tuple[SyncReport, int]:
    encoder = FakeEncoder()
    given = {name: how.pop(name) for name in ("only", "progress") if name in how}
    return sync(encoder, store, SyncSettings(**how), **given), encoder.encoded


def found(store: StoreFiles) -> set[str]:
    """Paths that a search for everything finds."""
    answer = Engine(store, FakeEncoder()).answer(SearchRequest(text="a coat", k=1000))
    assert answer.total == len(answer.hits)
    return {str(path) for hit in answer.hits for path in (hit.path, *hit.copies)}


def files_in(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.png")}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.tuples(STEPS, st.booleans()), min_size=1, max_size=4))
def test_a_search_finds_what_is_there(rounds: list[tuple[Any, bool]], tmp_path: Path) -> None:
    """And what comes back is not encoded again, has its key, and what was told of it."""
    folder = tmp_path / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    store = made(tmp_path / "store")
    put(folder / "a" / "always.png", bytes_of(tmp_path, 5))
    index_pictures(FakeEncoder(), store, [folder], workers=1)
    for steps, some in rounds:
        before = {image.sha256: image.id for image in store.images()}
        seen = {str(folder / path) for step in steps for path in step[1:]}
        for step in steps:
            change(folder, step, tmp_path)
        # a system tells of files, of folders, or of nothing
        only = seen | {str(folder / "a"), str(folder / "b")} if some else None
        report, encoded = synced(store, only=only, yes=True)
        now = contents(folder)
        assert found(store) == files_in(folder)
        assert encoded == len(now.keys() - before.keys())
        assert report.waiting == sum(image.gone is not None for image in store.images())
        assert {i.sha256 for i in store.images() if i.gone is None} == now.keys()
        kept = {image.sha256: image.id for image in store.images()}
        # an edited picture keeps its key, and so its old bytes are no more
        assert {digest: kept[digest] for digest in before if digest in kept}.items() <= before.items()
    assert verify(store).sound


def test_a_deleted_file_leaves_the_search_and_its_picture_waits(store: StoreFiles, folder: Path) -> None:
    path = folder / "0" / "3.png"
    content, key = path.read_bytes(), store.entries([str(path)])[str(path)].id
    table = SentenceTable(store)
    table.index(
        FakeEncoder(), [Sentence("her coat", str(path)), Sentence("another", str(folder / "0" / "4.png"))]
    )
    path.unlink()
    report, _ = synced(store)
    assert (report.gone, report.waiting, report.doubt) == ((str(path),), 1, None)
    opened = Store(Engine(store, FakeEncoder()))
    assert str(path) not in found(store)
    assert opened.items().total == 29
    assert opened.items(where=["identity=ann"]).total == 0
    assert [one.text for one in opened.sentences("coat")] == ["another"]
    assert len(list(opened)) == opened.info().pictures == 29
    # the same bytes somewhere else
    put(folder / "2" / "back.png", content)
    report, encoded = synced(store)
    assert (report.moved, report.waiting, encoded) == (1, 0, 0)
    (hit,) = opened.items(where=["identity=ann"]).items
    assert (hit.id, hit.path, hit.metadata) == (key, folder / "2" / "back.png", {"note": "hers"})
    assert [one.id for one in opened.sentences("her coat") if one.text == "her coat"] == [key]
    assert verify(store).sound


@pytest.mark.parametrize("away", ["gone", "empty", "a part"])
def test_a_folder_that_is_away_changes_nothing(store: StoreFiles, folder: Path, away: str) -> None:
    shutil.rmtree(folder if away != "a part" else folder / "1")
    if away != "gone":
        (folder if away == "empty" else folder / "1").mkdir()
    before = store.images()
    for only in (None, [str(folder)], [str(folder / "1"), str(folder / "1" / "11.png")]):
        report, _ = synced(store, only=only, kept_days=0.0)
        assert (report.gone, report.erased, report.waiting) == ((), 0, 0)
        reason = "is not there" if away == "gone" else "is empty"
        assert report.away == ((str(folder / "1" if away == "a part" else folder), reason),)
        assert not report.sound
    assert store.images() == before
    report, _ = synced(store, yes=True)
    assert len(report.gone) == (10 if away == "a part" else 30)
    # it is remembered
    assert report.sound
    assert synced(store)[0].sound


@pytest.mark.parametrize("how", ["given up", "renamed"])
def test_a_folder_that_is_gone_for_good_is_told_no_more(
    how: str, store: StoreFiles, folder: Path, tmp_path: Path
) -> None:
    """Nor one whose pictures lie in another one by now. If it comes back, it is looked through."""
    other, aside = tmp_path / "other", tmp_path / ("elsewhere" if how == "given up" else "renamed")
    draw(other / "1.png", 70)
    index_pictures(FakeEncoder(), store, [other])
    folder.rename(aside)
    if how == "renamed":
        index_pictures(FakeEncoder(), store, [aside])
    else:
        assert not synced(store)[0].sound
        assert len(synced(store, yes=True)[0].gone) == 30
    for only in (None, [str(folder)]):
        report, _ = synced(store, only=only)
        assert (report.away, report.sound, report.waiting) == ((), True, 0 if how == "renamed" else 30)
    aside.rename(folder)
    report, encoded = synced(store)
    assert (report.moved + report.returned, report.waiting, encoded) == (30, 0, 0)
    assert files_in(folder) <= found(store)


def test_a_name_that_begins_alike_is_another_folder(tmp_path: Path) -> None:
    store = made(tmp_path / "store")
    for name in ("photos", "photos 2"):
        for number in range(20):
            draw(tmp_path / name / f"{number}.png", number + 100 * len(name))
        index_pictures(FakeEncoder(), store, [tmp_path / name])
    # that of a disk which is away
    shutil.rmtree(tmp_path / "photos 2")
    (tmp_path / "photos" / "0.png").unlink()
    report, _ = synced(store)
    assert report.gone == (str(tmp_path / "photos" / "0.png"),)
    assert len(found(store)) == 39


def test_many_deleted_files_are_asked_about(store: StoreFiles, folder: Path) -> None:
    for number in range(4):
        (folder / "0" / f"{number}.png").unlink()
    for only in (None, [str(folder / "0" / f"{number}.png") for number in range(10)]):
        report, _ = synced(store, only=only)
        assert "4 of 30 pictures are gone" in str(report.doubt)
        assert repr(report).endswith("4 gone, which stay)")
        assert len(found(store)) == 30
        assert not report.is_news
    assert len(synced(store, yes=True)[0].gone) == 4
    assert len(found(store)) == 26


def test_it_is_erased_after_its_time(
    store: StoreFiles, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "0" / "3.png").unlink()
    synced(store)
    now = time.time()

    def on_day(day: float) -> SyncReport:
        monkeypatch.setattr("time.time", lambda: now + day * DAY)
        return synced(store)[0]

    assert on_day(29).erased == 0
    # a look at some files alone erases nothing
    monkeypatch.setattr("time.time", lambda: now + 31 * DAY)
    assert synced(store, only=[str(folder)])[0].erased == 0
    assert on_day(31).erased == 1
    assert len(store.images()) == 29
    assert b"3.png" not in b"".join(
        path.read_bytes().replace(b"13.png", b"").replace(b"23.png", b"")
        for path in (tmp_path / "store").iterdir()
    )


def test_a_time_from_a_wrong_clock_begins_anew(store: StoreFiles, folder: Path) -> None:
    (folder / "0" / "3.png").unlink()
    synced(store)
    (image,) = [image for image in store.images() if image.gone is not None]
    with store.changing() as writer:
        writer.update([replace(image, gone=int(time.time() + 1000 * DAY))])
    assert synced(store)[0].erased == 0
    (image,) = [image for image in store.images() if image.gone is not None]
    assert abs((image.gone or 0) - time.time()) < 60


def test_a_folder_is_followed_on_when_all_of_it_was_deleted(store: StoreFiles, folder: Path) -> None:
    """An inbox that somebody empties; its pictures are erased after their time."""
    (folder / "notes.txt").write_text("nothing")
    for number in range(3):
        shutil.rmtree(folder / str(number))
    report, _ = synced(store, kept_days=0.0, yes=True)
    assert (report.erased, len(store.images())) == (30, 0)
    draw(folder / "new.png", 99)
    assert synced(store)[0].added == 1


def test_a_copy_elsewhere_keeps_the_picture(store: StoreFiles, folder: Path, tmp_path: Path) -> None:
    """In no folder that is followed, so that nothing but the lost place tells of it."""
    first, other = folder / "0" / "3.png", tmp_path / "elsewhere" / "3.png"
    other.parent.mkdir()
    shutil.copy(first, other)
    index_pictures(FakeEncoder(), store, [other])
    first.unlink()
    report, _ = synced(store)
    assert (report.gone, report.copies_gone, report.waiting) == ((), 1, 0)
    (image,) = [image for image in store.images() if str(other) in image.paths]
    assert (image.paths, image.identity) == ([str(other)], "ann")


def test_sentences_of_a_copy_that_is_deleted_stay_with_the_picture(store: StoreFiles, folder: Path) -> None:
    first, copy = folder / "0" / "3.png", folder / "2" / "copy.png"
    shutil.copy(first, copy)
    synced(store)
    table = SentenceTable(store)
    table.index(FakeEncoder(), [Sentence("her coat", str(first)), Sentence("a hat", str(copy))])
    first.unlink()
    report, _ = synced(store, only={str(first)})
    assert (report.gone, report.copies_gone) == ((), 1)
    assert {one.path for one, _ in zip(*table.describing(), strict=True)} == {str(copy)}
    assert erase(store, identity="ann").sentences == 2


def test_what_came_back_is_told(store: StoreFiles, folder: Path) -> None:
    path = folder / "0" / "3.png"
    content, times = path.read_bytes(), path.stat()
    path.unlink()
    assert (synced(store)[0].returned, synced(store)[0].is_news) == (0, False)
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    report, encoded = synced(store)
    assert (report.returned, report.is_news, report.waiting, encoded) == (1, True, 0, 0)


def test_a_deletion_and_an_erasure_count_the_files_that_come_back(store: StoreFiles, folder: Path) -> None:
    opened = Store(Engine(store, FakeEncoder()))
    assert opened.delete(store.entries()[str(folder / "0" / "5.png")].id) == 1
    assert opened.erase(identity="ann").returning == 1
    (folder / "0" / "4.png").unlink()
    assert opened.erase(paths=folder / "0" / "4.png").returning == 0
    assert synced(store)[0].added == 2


def test_at_once_by_choice(store: StoreFiles, folder: Path) -> None:
    (folder / "0" / "3.png").unlink()
    report, _ = synced(store, kept_days=0.0)
    assert (len(report.gone), report.erased, report.waiting) == (1, 1, 0)


def test_a_dry_run_says_what_would_change_and_changes_nothing(store: StoreFiles, folder: Path) -> None:
    draw(folder / "new.png", 99)
    draw(folder / "0" / "0.png", 98)
    (folder / "0" / "1.png").rename(folder / "moved.png")
    shutil.copy(folder / "2" / "20.png", folder / "copy.png")
    (folder / "0" / "2.png").unlink()
    before = store.images(), store.rows.identity()
    report, encoded = synced(store, dry_run=True)
    assert (store.images(), store.rows.identity(), encoded) == (*before, 0)
    told = {
        name: getattr(report, name) for name in ("added", "updated", "moved", "copies", "gone", "unchanged")
    }
    real, _ = synced(store)
    assert told == {name: getattr(real, name) for name in told}
    assert told["gone"] == (str(folder / "0" / "2.png"),)


@pytest.mark.parametrize("part", [1, 7, 1000])
def test_in_parts_it_is_the_same(store: StoreFiles, folder: Path, part: int) -> None:
    for number in range(100, 120):
        draw(folder / "new" / f"{number}.png", number)
    (folder / "0").rename(folder / "nought")
    (folder / "new" / "broken.png").write_bytes(b"no picture")
    seen: list[tuple[int, int]] = []
    report, encoded = synced(store, part=part, progress=lambda done, total: seen.append((done, total)))
    assert (report.added, report.moved, report.unchanged, encoded) == (20, 10, 20, 20)
    assert len(report.skipped) == 1
    assert seen[-1] == (51, 51)
    assert found(store) == files_in(folder) - {str(folder / "new" / "broken.png")}


def test_in_parts_files_that_change_places_keep_all(store: StoreFiles, folder: Path) -> None:
    paths = sorted(files_in(folder))
    for path in paths:
        put(Path(path), Path(path).read_bytes())
    synced(store)
    known = {image.sha256: (image.id, image.identity) for image in store.images()}
    # each gets the name of the one before
    one = Path(paths[0]).rename(folder / "between")
    for path, before in zip(paths[1:], paths, strict=False):
        Path(path).rename(before)
    one.rename(paths[-1])
    report, encoded = synced(store, part=1)
    assert (report.moved, report.replaced, encoded) == (30, 0, 0)
    assert {image.sha256: (image.id, image.identity) for image in store.images()} == known
    (folder / "z.png").hardlink_to(paths[0])
    synced(store)
    key = store.entries([paths[0]])[paths[0]].id
    Path(paths[0]).write_bytes(draw(folder.parent / "edit.png", 98).read_bytes())
    report, _ = synced(store, part=1)
    assert (report.updated, report.replaced, store.entries([paths[0]])[paths[0]].id) == (1, 0, key)


def test_only_some_files_are_looked_at(store: StoreFiles, folder: Path) -> None:
    draw(folder / "0" / "in.png", 50)
    draw(folder / "1" / "out.png", 51)
    (folder / "1" / "10.png").unlink()
    report, _ = synced(
        store, only=[str(folder / "0" / "in.png"), str(folder / "not there.png"), "/elsewhere"]
    )
    assert (report.added, report.unchanged, report.gone) == (1, 0, ())
    # names that begin alike are no folder of it
    draw(folder / "1b" / "b.png", 52)
    report, _ = synced(store, only=[str(folder / "1")])
    assert (report.added, len(report.gone)) == (1, 1)
    assert synced(store)[0].added == 1


def test_what_is_left_out_stays_out(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    for name in ("a.png", "no/b.png", ".hidden/c.png", "@eaDir/d.png", "in/e.png", "in/raw/f.png"):
        draw(folder / name, len(name))
    (folder / "in" / ".limnerignore").write_text("raw\n")
    store = made(tmp_path / "store")
    from limner.search.find_pictures import find_pictures

    index_pictures(FakeEncoder(), store, find_pictures([folder], ["no"]))
    assert folders_of(store) == [Folder(str(folder), ("no",))]
    every = [str(path) for path in folder.rglob("*")]
    for only in (None, every, [str(folder)], *([one] for one in every)):
        assert synced(store, only=only)[0].added == 0
    assert found(store) == {str(folder / "a.png"), str(folder / "in" / "e.png")}


def test_a_store_without_folders(tmp_path: Path) -> None:
    store = made(tmp_path / "store")
    index_pictures(FakeEncoder(), store, [draw(tmp_path / "one.png", 1)])
    with pytest.raises(SettingsError, match="follows no folder"):
        synced(store)


def test_folders_are_forgotten_with_what_was_in_them(store: StoreFiles, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "pictures of ann"
    draw(other / "1.png", 70)
    index_pictures(FakeEncoder(), store, [other])
    assert [one.path for one in folders_of(store)] == sorted([str(folder), str(other)])
    report = erase(store, paths=[other / "1.png"])
    assert not report.found
    assert [one.path for one in folders_of(store)] == [str(folder)]
    # by keys alone nobody says that it is a person's
    (other / "1.png").unlink()
    draw(other / "2.png", 71)
    index_pictures(FakeEncoder(), store, [other], metadata={str(other / "2.png"): {"identity": "ann b"}})
    erase(store, store.entries([str(other / "2.png")])[str(other / "2.png")].id)
    assert [one.path for one in folders_of(store)] == sorted([str(folder), str(other)])
    index_pictures(FakeEncoder(), store, [other], metadata={str(other / "2.png"): {"identity": "ann b"}})
    erase(store, identity="ann b")
    assert [one.path for one in folders_of(store)] == [str(folder)]
    follow_folders(store, [Folder(str(other))])
    report = erase(store, paths=[other])
    assert not report.found
    assert [one.path for one in folders_of(store)] == [str(folder)]
    assert b"of ann" not in b"".join(path.read_bytes() for path in (tmp_path / "store").iterdir())


@pytest.mark.parametrize("step", ["leave_folders", "secrets.token_hex"])
def test_an_erasure_that_was_killed_forgets_the_folder_when_it_is_called_again(
    step: str, store: StoreFiles, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = draw(tmp_path / "pictures of ann" / "1.png", 70)
    index_pictures(FakeEncoder(), store, [file.parent], metadata={str(file): {"identity": "ann b"}})

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"limner.store.erase.{step}", killed)
        with pytest.raises(KeyboardInterrupt):
            erase(store, identity="ann b")
    erase(store, identity="ann b")
    assert [one.path for one in folders_of(store)] == [str(folder)]
    assert str(file) not in store.entries()


def test_a_damaged_list_is_told(store: StoreFiles) -> None:
    text = str(store.rows.text(TEXT))
    for damaged in (text.replace("pictures", "picturez"), "{}", "no JSON", "[1]"):
        store.rows.set_text(TEXT, damaged)
        with pytest.raises(Exception, match="list of folders is damaged"):
            folders_of(store)


def test_a_folder_without_rights_says_nothing(
    store: StoreFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system answers those who may not read it: root, as whom tests run in containers, may read all."""

    def ask(asked: Callable[..., Any], path: Any = ".", *given: Any, **how: Any) -> Any:
        # the folder itself may be asked for, and not what is in it
        top = folder / "1"
        if not isinstance(path, int) and top in (Path(path), *Path(path).parents)[asked is stat :]:
            raise PermissionError(13, "Permission denied")
        return asked(path, *given, **how)

    stat = os.stat
    for name in ("stat", "scandir", "listdir"):
        monkeypatch.setattr(os, name, partial(ask, getattr(os, name)))
    assert synced(store)[0].gone == ()


def test_no_other_process_brings_back_what_is_being_erased(
    store: StoreFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = next(iter(store.entries().values()))
    content = Path(before.path).read_bytes()
    Path(before.path).unlink()
    other = StoreFiles.open(store.folder)

    def late(files: StoreFiles, keys: list[str]) -> None:
        put(Path(before.path), content)
        with pytest.raises(StoreError, match="another process"):
            index_pictures(FakeEncoder(), other, [folder])
        erase(files, keys)

    monkeypatch.setattr("limner.search.sync.erase", late)
    assert sync(FakeEncoder(), store, SyncSettings(yes=True, kept_days=0)).erased == 1
    assert before.path not in store.entries()
