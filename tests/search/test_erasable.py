"""Which pictures and sentences an erasure is about."""

import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limner.search import erasable as module
from limner.search.erasable import erasable
from tests.search.test_erase import made, store_of


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
