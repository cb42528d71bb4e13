"""Recipes by name, and changes to them from the command line."""

import difflib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from limner.data.readers.parsing import parse_json, read_text, shown
from limner.errors import DataError, SettingsError
from limner.recipes import dual_path, hgan, identity_aware, mnil
from limner.training.settings import Recipe

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


def change(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Apply `key=value` settings such as `seed=1`, `stages.stage-1.epochs=5`, `model.backbone.weights=FILE`.

    Stages are addressed by name or by number from 0. Values are read as JSON where they are JSON, else as text. Raises
    `SettingsError` for unknown keys and values out of range.
    """
    values: dict[str, Any] = json.loads(recipe.model_dump_json())
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise SettingsError(f"setting '{setting}': expected key=value, e.g. seed=1")
        _put(values, key.split("."), _value(setting, text), key)
    return Recipe.parse(values)


def _value(setting: str, text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        value = json.loads(text)
    # nested too deeply to be anybody's setting: refused as text when the recipe is parsed
    except (ValueError, RecursionError):
        value = text
    try:
        # half characters come from broken terminals and from "\\ud800"; pydantic overlooks them, a checkpoint cannot
        (setting + json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        raise SettingsError(f"setting {setting!a}: expected Unicode text") from None
    return value


def _put(values: Any, path: list[str], value: Any, key: str) -> None:
    *outer, last = path
    for part in outer:
        values = _into(values, part, key)
    if isinstance(values, list):
        values[_index(values, last, key)] = value
    elif isinstance(values, dict):
        # an unknown name is refused, with the nearest known one, when the recipe is parsed
        values[last] = value
    else:
        raise SettingsError(f"setting '{key}': '{path[-2]}' is a single value and has no '{last}'")


def _into(values: Any, part: str, key: str) -> Any:
    if isinstance(values, list):
        return values[_index(values, part, key)]
    if isinstance(values, dict) and part in values:
        return values[part]
    known = list(values) if isinstance(values, dict) else []
    close = difflib.get_close_matches(part, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else f"; known here: {', '.join(known) or 'none'}"
    raise SettingsError(f"setting '{key}': unknown part '{part}'{hint}")


def _index(values: list[Any], part: str, key: str) -> int:
    names = [str(entry.get("name", "")) if isinstance(entry, dict) else "" for entry in values]
    if part in names:
        return names.index(part)
    if part.isdecimal() and int(part) < len(values):
        return int(part)
    named = ", ".join(name for name in names if name) or "no names"
    raise SettingsError(f"setting '{key}': no entry '{part}' among {len(values)} ({named})")
