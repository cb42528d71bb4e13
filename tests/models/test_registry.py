"""Systems by name: limner's own, and those that a program adds."""

from collections.abc import Callable
from typing import Literal

import pytest

from limner.errors import SettingsError
from limner.models import registry
from limner.models.dual_path import DualPath, DualPathSettings
from limner.models.registry import System, add_system, build_network, find_system
from limner.training.recipe import Recipe
from tests.toy import toy_hgan, toy_identity_aware, toy_mnil, toy_recipe


class OursSettings(DualPathSettings):
    system: Literal["ours"] = "ours"  # type: ignore[assignment]


class Ours(DualPath):
    pass


@pytest.fixture(autouse=True)
def systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SYSTEMS", dict(registry._SYSTEMS))


def test_a_system_that_is_added_is_found() -> None:
    with pytest.raises(SettingsError, match=r"unknown system 'ours'; there are: .*hgan"):
        find_system("ours")
    add_system("ours", OursSettings, Ours)
    assert find_system("ours") == System(OursSettings, Ours)
    # as when a notebook's cell is run again
    add_system("ours", OursSettings, Ours)
    assert find_system("dual-path") == System(DualPathSettings, DualPath)


def test_a_name_is_not_taken_twice() -> None:
    with pytest.raises(SettingsError, match="system 'dual-path': there is one of this name already"):
        add_system("dual-path", DualPathSettings, Ours)
    assert find_system("dual-path").network is DualPath


def test_the_settings_say_the_name() -> None:
    with pytest.raises(
        SettingsError, match="system 'theirs': the field `system` of OursSettings should say so"
    ):
        add_system("theirs", OursSettings, Ours)
    with pytest.raises(SettingsError, match="unknown system 'theirs'"):
        find_system("theirs")


@pytest.mark.parametrize("made", [toy_recipe, toy_identity_aware, toy_mnil, toy_hgan])
def test_every_parameter_of_a_system_is_in_exactly_one_part(made: Callable[[], Recipe]) -> None:
    network = build_network(made().model, 30)
    listed = [id(parameter) for part in network.parts().values() for parameter in part]
    assert sorted(listed) == sorted(id(parameter) for parameter in network.parameters())
