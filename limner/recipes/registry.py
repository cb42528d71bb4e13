"""Recipes by name."""

import difflib
from collections.abc import Callable
from pathlib import Path

from limner.data.readers.annotations import parse_json, read_text, shown
from limner.errors import DataError, SettingsError
from limner.recipes import dual_path, hgan, identity_aware, mnil
from limner.training.recipe import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    "dual-path": dual_path.dual_path,
    "dual-path-released": dual_path.dual_path_released,
    "dual-path-cuhk-pedes": dual_path.dual_path_cuhk_pedes,
    "dual-path-flickr8k": dual_path.dual_path_flickr8k,
    "dual-path-flickr8k-strong": dual_path.dual_path_flickr8k_strong,
    "dual-path-people": dual_path.dual_path_people,
    "identity-aware-cuhk-pedes": identity_aware.identity_aware_cuhk_pedes,
    "identity-aware-cub": identity_aware.identity_aware_cub,
    "identity-aware-birds": identity_aware.identity_aware_birds,
    "identity-aware-people": identity_aware.identity_aware_people,
    "mnil-mscoco": mnil.mnil_mscoco,
    "mnil-flickr30k": mnil.mnil_flickr30k,
    "mnil-flickr8k": mnil.mnil_flickr8k,
    "mnil-birds": mnil.mnil_birds,
    "mnil-people": mnil.mnil_people,
    "hgan-cuhk-pedes": hgan.hgan_cuhk_pedes,
    "hgan-people": hgan.hgan_people,
    "hgan-birds": hgan.hgan_birds,
}
"""Every recipe by the name that `limner train` takes."""


def get_recipe(name: str) -> Recipe:
    """The recipe of a name; of one that ends in ".json", that in the file, as `limner recipes show` prints it.

    Raises `SettingsError` with the nearest name, or with the file and what in it does not fit.
    """
    if name.endswith(".json"):
        return _read(Path(name))
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(RECIPES)}"
        raise SettingsError(f"unknown recipe '{name}'; {hint}")
    return RECIPES[name]()


def _read(file: Path) -> Recipe:
    try:
        if not file.is_file():
            raise SettingsError(
                f"{file}: no such recipe; write one with `limner recipes show RECIPE > {file}`"
            )
        values = parse_json(read_text(file), file)
    except DataError as error:
        raise SettingsError(str(error)) from None
    if not isinstance(values, dict):
        raise SettingsError(f"{file}: an object of settings was expected, got {shown(values)}")
    try:
        return Recipe.parse(values)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from None
