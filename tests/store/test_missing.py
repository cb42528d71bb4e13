import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.store.missing import doubt, is_gone


def test_what_does_not_answer_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jpg").touch()
    (tmp_path / "link.jpg").symlink_to(tmp_path / "nowhere.jpg")
    assert [is_gone(str(tmp_path / name)) for name in ("a.jpg", "b.jpg", "a.jpg/c.jpg", "link.jpg")] == [
        *(False, True, True, True)
    ]

    # rights, a share of a machine that is off, one that was changed there, a disk that fails
    for number in (13, 112, 116, 5):
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", Mock(side_effect=OSError(number, "")))
            assert not is_gone("/pictures/a.jpg")


@given(total=st.integers(2, 60), share=st.floats(0, 1))
def test_more_than_a_tenth_is_asked_for(
    total: int, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "other.txt").touch()
    gone = [str(folder / f"{number}.jpg") for number in range(max(1, round(share * total)))]
    assert (doubt(gone, total) is None) == (len(gone) <= total / 10)


def test_a_folder_that_is_away(tmp_path: Path) -> None:
    """However few of the store's pictures lie there."""
    for folder, away in (("nas", "nas"), ("usb/2023/may", "usb"), ("here/2023", "here/2023")):
        (tmp_path / "here" / "x").mkdir(parents=True, exist_ok=True)
        lost = [str(tmp_path / folder / "a.jpg")]
        assert doubt(lost, 1000) == f"the folder {tmp_path / away} is not there"
        # the place of a disk that is not mounted
        (tmp_path / folder).mkdir(parents=True)
        assert doubt(lost, 1000) == f"the folder {tmp_path / folder} is empty"
        (tmp_path / folder / "b.jpg").touch()
        assert doubt(lost, 1000) is None
    # a file in place of the folder, which cannot be listed
    (tmp_path / "file").touch()
    assert doubt([str(tmp_path / "file" / "a.jpg")], 1000) == (
        f"the folder {tmp_path / 'file'} cannot be listed (Not a directory)"
    )
    assert doubt([], 0) is None
