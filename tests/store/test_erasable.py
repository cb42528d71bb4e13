"""Which pictures and sentences an erasure is about."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limner.store import erasable as module
from limner.store.erasable import erasable
from tests.store.erasing import made, store_of


def test_what_is_erased(tmp_path: Path) -> None:
    some = [made(number, 6, False) for number in range(9)]
    files = store_of(tmp_path / "store", some)

    def paths(**given: Any) -> list[str]:
        return [image.path for image in erasable(files, **given).images]

    def those(*numbers: int) -> list[str]:
        return sorted(some[number].entry.path for number in numbers)

    assert paths() == []
    assert paths(ids=some[4].entry.id) == paths(paths=some[4].entry.path) == those(4)
    assert paths(paths="/people/camera 1") == paths(where="camera=1") == those(1, 4, 7)
    assert paths(paths="/people/camera") == []
    assert paths(identity="person 1 of 6") == those(3, 4, 5)
    # conditions must all be met, names are added
    assert paths(identity="person 1 of 6", where={"camera": 1}) == those(4)
    assert paths(ids=[some[0].entry.id], identity="person 1 of 6", where="camera=1") == those(0, 4)
    assert len(erasable(files, where="camera=1").sentences) == 3
    assert paths(ids="0" * 32) == []


@given(
    wanted=st.lists(
        st.sampled_from(["/", "/a", "/a/", "/a/b", "/a/b.jpg", "/c", "/a/b/c.jpg", "/d/e"]), max_size=4
    )
)
def test_what_is_unknown(wanted: list[str]) -> None:
    rows = ["/a/b/c.jpg", "/a/b.jpg", None, "/d/e"]

    def is_held(path: str) -> bool:
        return any(
            row is not None and (row == path or row.startswith(path.rstrip("/") + "/")) for row in rows
        )

    assert module._without_rows(wanted, rows) == [path for path in wanted if not is_held(path)]


def test_a_name_that_is_not_utf_8_is_unknown(tmp_path: Path) -> None:
    files = store_of(tmp_path / "store", [made(number, 6, False) for number in range(2)])
    name = os.fsdecode(b"/people/\xff.jpg")
    found = erasable(files, paths=[name, "/people/camera 1"])
    assert found.unknown == (name,)
    assert len(found.images) == 1


def test_a_name_with_accents_in_either_form(tmp_path: Path) -> None:
    composed, decomposed = "J\u00fcrgen", "Ju\u0308rgen"
    some = [made(number, 6, False) for number in range(5)]
    names = [decomposed, composed, "j\u00dcRGEN", "J\u00fcrgens", None]
    some = [
        replace(one, entry=replace(one.entry, identity=name)) for one, name in zip(some, names, strict=True)
    ]
    files = store_of(tmp_path / "store", some)
    for name in (composed, decomposed):
        for named in ({"identity": name}, {"where": f"identity={name}"}, {"where": {"identity": name}}):
            found = erasable(files, **named)
            assert {image.identity for image in found.images} == {composed, decomposed}
            # another case is another name: it is said, and stays
            assert (found.unmet, found.similar) == ((), ("j\u00dcRGEN",))


_UNSEEN = st.text(" \t\n\u00a0\u200b\u00ad\u2060", max_size=2)


@given(parts=st.lists(st.sampled_from(["Ana", "Maria", "17"]), min_size=1, max_size=3), data=st.data())
def test_names_that_differ_in_what_nobody_sees(parts: list[str], data: st.DataObject) -> None:
    """Blanks around a name, more of them between its words, and signs without width: they stay, and are said."""
    name = " ".join(parts)
    other = data.draw(_UNSEEN) + "".join(f"{part} {data.draw(_UNSEEN)}" for part in parts)
    assert module._similar_identities([name], {other, None, "Anna", name + "x"}) == [other]
    held: set[str | None] = {f"/people/{other}/1.jpg", "/people/x/1.jpg"}
    assert module._similar_paths([f"/people/{name}/1.jpg"], held) == [f"/people/{other}/1.jpg"]


def test_conditions_that_nothing_meets(tmp_path: Path) -> None:
    files = store_of(tmp_path / "store", [made(number, 6, False) for number in range(3)])
    assert erasable(files, identity="nobody").unmet == ("identity=nobody",)
    assert erasable(files, where=["identity=nobody", "camera=1"]).unmet == ("identity=nobody",)
    both = erasable(files, identity="person 0 of 6", where=["camera=0", "camera=1"])
    assert (both.images, both.unmet) == ([], ("identity=person 0 of 6 and camera=0 and camera=1",))
    assert erasable(files, where="camera=1").unmet == ()


def test_paths_that_look_alike(tmp_path: Path) -> None:
    files = store_of(tmp_path / "store", [made(number, 6, False) for number in range(3)])
    found = erasable(files, paths=["/People/camera 1", "/people/camera 2"])
    assert found.unknown == ("/People/camera 1",)
    assert found.similar == ("/people/camera 1",)
    assert len(found.images) == 1
