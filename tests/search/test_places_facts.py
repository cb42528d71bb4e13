"""What is told of pictures whose files move, are copied and are edited."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.search.engine import Engine
from limner.search.index import index_pictures, reindex
from limner.search.store import Store
from limner.store_reports import IndexReport
from tests.search.fake import FakeEncoder
from tests.search.test_places import PATHS, STEPS, alive, bytes_of, change, contents, indexed, made, put


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(
        st.tuples(STEPS, st.dictionaries(st.sampled_from(PATHS), st.sampled_from("AB"))), max_size=4
    )
)
def test_what_was_told_is_lost_with_nothing_but_its_bytes(
    rounds: list[tuple[list[tuple[str, str, str]], dict[str, str]]], tmp_path: Path
) -> None:
    folder = tmp_path / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    store = made(tmp_path / "store")
    for steps, told in rounds:
        put(folder / "always.png", bytes_of(tmp_path, 5))
        for step in steps:
            change(folder, step, tmp_path)
        before = store.images()
        indexed(store, folder, told)
        now, images = contents(folder), alive(store)
        held = {path: image for image in images for path in image.paths}
        # each file is a place of one picture, which has its bytes, and what is told last of any of them now
        assert {path: image.sha256 for path, image in held.items()} == {
            p: d for d, some in now.items() for p in some
        }
        assert sum(len(image.paths) for image in images) == len(held)
        last = {held[path].id: name for one, name in told.items() if (path := str(folder / one)) in held}
        assert {image.id: image.identity for image in images if image.id in last} == last
        # and of what is still there, bytes or path, all that was told, unless something else is told now, or the file
        # of another picture was put over the last of one's own
        ids = {one.id for one in before}
        for one in before:
            if any(path in held and held[path].id in ids - {one.id} for path in one.paths):
                continue
            known = {image.identity for image in store.images() if image.sha256 == one.sha256}
            known |= {held[path].identity for path in one.paths if path in held}
            assert told or one.identity is None or one.sha256 not in now or one.identity in known
        report, encoded = indexed(store, folder)
        assert (report, encoded) == (IndexReport(unchanged=len(images)), 0)


def test_of_copies_the_last_word_stands_in_whichever_order_they_are_indexed(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    names = [put(folder / f"{name}.png", bytes_of(tmp_path, 4)).name for name in "abc"]
    said: dict[str, dict[str, Any]] = {
        "a.png": {"camera": 3},
        "b.png": {"identity": "B", "camera": 3},
        "c.png": {"identity": "C", "camera": None},
    }
    for order, told in itertools.product(itertools.permutations(names), itertools.permutations(names)):
        store = made(tmp_path / "".join((*order, *told)).replace(".png", ""))
        facts = {str(folder / name): said[name] for name in told}
        for _ in range(2):
            paths = [folder / name for name in order]
            report = index_pictures(FakeEncoder(), store, paths, metadata=facts)
            (image,) = store.images()
            assert image.identity == ("C" if told.index("b.png") < told.index("c.png") else "B")
            assert image.metadata == ({} if told[-1] == "c.png" else {"camera": 3})
            count = {"abc": 1, "acb": 2, "bac": 1, "bca": 2, "cab": 2, "cba": 1}
            assert len(report.contradicted) == count["".join(name[0] for name in told)]


def test_facts_that_are_not_told_stay_and_none_takes_one_away(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    path = str(put(folder / "a.png", bytes_of(tmp_path, 4)))
    expected = dict[str, Any]()
    for told in (
        {"identity": "anna", "taken": "2026-01-02", "camera": 3},
        {"camera": 4},
        {},
        {"room": {"x": [1, None]}},
        {"identity": None},
        {"taken": None, "camera": None},
        {"identity": "bert", "never": None},
    ):
        index_pictures(FakeEncoder(), store, [path], metadata={path: told})
        expected = {name: fact for name, fact in {**expected, **told}.items() if fact is not None}
        (image,) = store.images()
        taken = image.taken_told and {"taken": image.taken_told.date().isoformat()}
        identity = {} if image.identity is None else {"identity": image.identity}
        assert {**image.metadata, **identity, **(taken or {})} == expected


def test_what_was_told_of_a_file_stays_until_its_new_bytes_are_read(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one = put(folder / "one.png", bytes_of(tmp_path, 4))
    put(folder / "copy.png", one.read_bytes())
    indexed(store, folder, {"one.png": "anna"})
    put(one, bytes_of(tmp_path, 5)[:60])
    assert len(indexed(store, folder)[0].skipped) == 1
    put(one, bytes_of(tmp_path, 5))
    assert indexed(store, folder)[0] == IndexReport(added=1, unchanged=1)
    assert {image.identity for image in store.images()} == {"anna"}


@pytest.mark.parametrize(("one", "two"), ["ab", "ba"])
def test_a_file_with_the_bytes_of_another_picture_brings_no_facts_into_a_new_store(
    one: str, two: str, tmp_path: Path
) -> None:
    store, other, folder = made(tmp_path / "store"), made(tmp_path / "other"), tmp_path / "pictures"
    for number, name in enumerate("ab"):
        put(folder / f"{name}.png", bytes_of(tmp_path, number + 4))
    indexed(store, folder, {f"{name}.png": name for name in "ab"})
    put(folder / f"{two}.png", (folder / f"{one}.png").read_bytes())
    assert reindex(store, FakeEncoder(), other).added == 1
    (image,) = other.images()
    assert (image.identity, image.id) == (one, store.entries()[str(folder / f"{one}.png")].id)


def test_files_that_change_places_keep_their_facts_to_themselves(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    for number, name in enumerate("abc"):
        put(folder / f"{name}.png", bytes_of(tmp_path, number + 4))
    indexed(store, folder, {"a.png": "anna"})
    known = {image.sha256: (image.id, image.identity) for image in store.images()}
    change(folder, ("swap", "a.png", "b.png"), tmp_path)
    assert indexed(store, folder)[0] == IndexReport(moved=2, unchanged=1)
    assert {image.sha256: (image.id, image.identity) for image in store.images()} == known
    # where nothing is left of it, what was told of the file stays
    (folder / "c.png").replace(folder / "b.png")
    assert indexed(store, folder)[0] == IndexReport(updated=1, unchanged=1, replaced=1)
    assert store.entries()[str(folder / "b.png")].identity == "anna"


def test_adding_a_file_that_has_moved_or_is_a_copy_keeps_what_was_told(tmp_path: Path) -> None:
    files, folder = made(tmp_path / "store"), tmp_path / "pictures"
    one = put(folder / "one.png", bytes_of(tmp_path, 4))
    index_pictures(FakeEncoder(), files, [one], metadata={str(one): {"identity": "anna", "camera": 3}})
    store = Store(Engine(files, FakeEncoder()))
    copy = put(folder / "copy.png", one.read_bytes())
    item = store.add(copy)
    assert (item.identity, item.metadata, item.copies) == ("anna", {"camera": 3}, (copy,))
    copy.unlink()
    item = store.add(one.rename(folder / "moved.png"), metadata={"camera": 4})
    assert (item.identity, item.metadata, len(store)) == ("anna", {"camera": 4}, 1)


def test_a_new_picture_where_one_lay_that_has_moved_gets_none_of_its_facts(tmp_path: Path) -> None:
    store, folder = made(tmp_path / "store"), tmp_path / "pictures"
    inbox = put(folder / "inbox" / "IMG_1.png", bytes_of(tmp_path, 4))
    indexed(store, folder, {"inbox/IMG_1.png": "anna"})
    (folder / "archive").mkdir()
    moved = inbox.rename(folder / "archive" / "IMG_1.png")
    put(inbox, bytes_of(tmp_path, 5))
    assert indexed(store, folder)[0] == IndexReport(added=1, moved=1)
    assert {path: image.identity for path, image in store.entries().items()} == {
        str(moved): "anna",
        str(inbox): None,
    }
