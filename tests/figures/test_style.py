from pathlib import Path

import pytest

from limner.errors import SettingsError
from limner.figures.style import labels_of, panels, styled, write_figure


@styled
def drawn():  # type: ignore[no-untyped-def]
    figure, (axes,) = panels()
    axes.plot([1, 2], [3, 4])
    return figure


def test_a_figure_is_written_as_its_ending_says_and_always_the_same(tmp_path: Path) -> None:
    for suffix in (".png", ".svg", ".pdf"):
        for name in ("one", "two"):
            assert write_figure(drawn(), tmp_path / f"{name}{suffix}") == [tmp_path / f"{name}{suffix}"]
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    assert write_figure(drawn(), tmp_path / "both") == [tmp_path / "both.png", tmp_path / "both.svg"]


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such folder"):
        write_figure(drawn(), tmp_path / "none" / "a.png")
    with pytest.raises(SettingsError, match=r"a\.jpg: a figure ends in \.png, \.svg, \.pdf"):
        write_figure(drawn(), tmp_path / "a.jpg")


def test_names_are_as_short_as_tells_them_apart() -> None:
    assert labels_of([Path("a/run/x.json"), Path("b/run/y.json")]) == ["x", "y"]
    assert labels_of([Path("a/run/x.json"), Path("b/run/x.json")]) == ["a/run/x", "b/run/x"]
