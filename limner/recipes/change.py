"""Changes to a recipe from the command line: `--set key=value`."""

import difflib
import json
from collections.abc import Iterable
from typing import Any

from limner.errors import SettingsError
from limner.training.settings import Recipe


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
