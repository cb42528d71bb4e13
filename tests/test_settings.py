import pytest

from limner.errors import SettingsError
from limner.losses import Instance
from limner.settings import Settings
from limner.training.recipe import Recipe, StageSettings


class Inner(Settings):
    depth: int = 1
    """Levels."""


class Outer(Settings):
    inner: Inner = Inner()
    """The inside."""
    many: tuple[Inner, ...] = ()
    """More of it."""


def test_an_unknown_name_gets_the_nearest_known_one() -> None:
    with pytest.raises(SettingsError, match=r"unknown setting 'inner\.dept'; did you mean 'depth'\?"):
        Outer.parse({"inner": {"dept": 2}})
    with pytest.raises(SettingsError, match=r"unknown setting 'many\.0\.dpth'; did you mean 'depth'\?"):
        Outer.parse({"many": [{"dpth": 2}]})
    with pytest.raises(SettingsError, match="known here: inner, many"):
        Outer.parse({"zzz": 2})


def test_a_bad_value_is_named_with_the_value() -> None:
    with pytest.raises(SettingsError, match=r"setting 'inner\.depth': .*got 'deep'"):
        Outer.parse({"inner": {"depth": "deep"}})


def test_replace_validates_and_keeps_the_original() -> None:
    stage = StageSettings(name="one")
    assert stage.replace(epochs=3).epochs == 3
    assert stage.epochs == 60
    with pytest.raises(SettingsError, match="epochs"):
        stage.replace(epochs=0)


def test_contradictions_are_refused() -> None:
    with pytest.raises(SettingsError, match="visual, textual and joint are all 0"):
        Instance.parse({"visual": 0, "textual": 0})
    with pytest.raises(SettingsError, match="stage names must differ"):
        Recipe.parse({"name": "x", "stages": [{"name": "a"}, {"name": "a"}]})
