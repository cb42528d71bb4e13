"""Changes to a recipe as text: `--set key=value` of the command line, and the differences between two recipes.

A key is a path of names. Stages go by their name or by their number from 0, losses by their kind:

    seed=1    stages.stage-1.epochs=5    stages.stage-2.losses.ranking.margin=0.2

A loss as a whole is added with defaults by `{}`, with others by `{"margin": 0.2}`, and left out by `null`:

    stages.stage-1.losses.ranking={}    stages.stage-1.losses.instance=null
"""

import difflib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from limner.durable import from_json
from limner.errors import SettingsError
from limner.inference.checkpoint import CALLED, read_description
from limner.inference.run_file import checkpoint_path
from limner.inference.sentence_transformer import refusal
from limner.losses.registry import LOSSES, all_kinds, loss_settings
from limner.training.recipe import Recipe

_ABSENT = object()


def change(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """Apply `key=value` settings, one after the other; the recipe is checked when all are applied.

    Values are read as JSON where they are JSON, else as text. Raises `SettingsError` for unknown keys, with the nearest
    known one, and for values out of range.
    """
    # Through JSON: dicts and lists can be changed in place, and stand as the user reads and types them.
    values: dict[str, Any] = json.loads(recipe.model_dump_json())
    for setting in settings:
        # Only the first "=" separates: a value may hold others, e.g. a path.
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise SettingsError(f"setting '{setting}': expected key=value, e.g. seed=1")
        _put(values, key.split("."), _value(setting, text), key)
    return Recipe.parse(values)


def start_from(recipe: Recipe, run: str | Path) -> Recipe:
    """The same recipe for the network of a run, imported or trained: its settings, tokenizer and size of images.

    How training crops stays the recipe's. Raises `CheckpointError` for a folder without a run, and `SettingsError`
    where the stages do not fit the network.
    """
    described = read_description(checkpoint_path(Path(run), None))
    if described["system"] == CALLED:
        raise refusal(run)
    values: dict[str, Any] = json.loads(recipe.model_dump_json())
    crops = {name: values["images"][name] for name in ("train_crop", "pad")}
    # late interaction may be added to a pair that has none (`DualEncoder.grow`)
    added = {} if described["model"].get("late") else {"late": values["model"].get("late")}
    values |= {
        "model": {**described["model"], **{name: value for name, value in added.items() if value}},
        "images": {**described["images"], **crops},
        # the tokenizer is the run's
        "vocabulary": {},
        "start": str(run),
    }
    return Recipe.parse(values)


def differences(before: Recipe, after: Recipe) -> tuple[str, ...]:
    """The settings that turn `before` into `after`: `change(before, differences(before, after)) == after`."""
    found = _differing(json.loads(before.model_dump_json()), json.loads(after.model_dump_json()))
    # Text that would be read back as JSON, such as "1" or "null", is quoted.
    return tuple(f"{key}={value if _plain(value) else json.dumps(value)}" for key, value in found)


def _plain(value: Any) -> bool:
    """True if a value is text that is read back as itself."""
    return isinstance(value, str) and _value("", value) == value


def _differing(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values; a value without an address of its own is part of the value that contains it."""
    if before == after:
        return
    # settings of another system share names with those of this one, but not their meaning
    alike = isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys()
    if alike and before.get("system") == after.get("system"):
        for name in after:
            yield from _differing(before[name], after[name], f"{path}.{name}" if path else name)
        return
    for named, parts in ((".losses", _losses), ("stages", _stages)):
        if path.endswith(named) and (found := parts(before, after, path)) is not None:
            yield from found
            return
    yield path, after


def _losses(before: list[Any], after: list[Any], path: str) -> Iterator[tuple[str, Any]] | None:
    """The differences of a stage's losses by kind; None where their order has to be said."""
    old, new = ({loss["kind"]: loss for loss in losses} for losses in (before, after))
    added = [kind for kind in new if kind not in old]
    if list(new) != [kind for kind in old if kind in new] + added:  # one that is added comes last
        return None
    kept = (_differing(old[kind], new[kind], f"{path}.{kind}") for kind in old if kind in new)
    more = ((f"{path}.{kind}", {key: new[kind][key] for key in new[kind] if key != "kind"}) for kind in added)
    return itertools.chain(*kept, more, ((f"{path}.{kind}", None) for kind in old if kind not in new))


def _stages(before: list[Any], after: list[Any], path: str) -> Iterator[tuple[str, Any]] | None:
    """The differences of stages by name; None where these differ."""
    old, new = ([stage["name"] for stage in stages] for stages in (before, after))
    if old != new:
        return None
    pairs = zip(old, before, after, strict=True)
    return itertools.chain(*(_differing(one, other, f"{path}.{name}") for name, one, other in pairs))


def _value(setting: str, text: str) -> Any:
    """The parsed JSON, or the text itself if it is not JSON."""
    try:
        value = from_json(text)
    except ValueError:
        value = text
    try:
        # half characters come from broken terminals and from "\\ud800"; pydantic overlooks them, a checkpoint cannot
        (setting + json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        raise SettingsError(f"setting {setting!a}: expected Unicode text") from None
    return value


def _put(values: Any, path: list[str], value: Any, key: str) -> None:
    *outer, last = path
    within = ""
    for part in outer:
        values = _loss(values, part, key) if within == "losses" else _into(values, part, key)
        within = part
    if within == "losses" and isinstance(values, list) and not last.isdecimal():
        _put_loss(values, last, value, key)
    elif isinstance(values, list):
        values[_index(values, last, key)] = value
    elif isinstance(values, dict):
        if "kind" in values and last not in values:
            _expect_setting(str(values["kind"]), last, key)
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
    # isdecimal refuses "-1", which would silently address the last entry.
    if part.isdecimal() and int(part) < len(values):
        return int(part)
    named = ", ".join(name for name in names if name) or "no names"
    raise SettingsError(f"setting '{key}': no entry '{part}' among {len(values)} ({named})")


def _kinds(losses: list[Any]) -> list[str]:
    return [str(loss.get("kind", "")) if isinstance(loss, dict) else "" for loss in losses]


def _loss(losses: Any, kind: str, key: str) -> Any:
    """The values of a loss that a stage has."""
    if not isinstance(losses, list) or kind.isdecimal():
        return _into(losses, kind, key)
    stage_kinds = _kinds(losses)
    if kind in stage_kinds:
        return losses[stage_kinds.index(kind)]
    _expect_kind(kind, stage_kinds, key)
    stage = key.partition(f".{kind}")[0]
    raise SettingsError(
        f"setting '{key}': the stage has no loss '{kind}', only {', '.join(stage_kinds) or 'none'}; add it with "
        f"{stage}.{kind}={{}}"
    )


def _put_loss(losses: list[Any], kind: str, value: Any, key: str) -> None:
    """Add a loss, replace the loss of its kind, or remove it."""
    stage_kinds = _kinds(losses)
    _expect_kind(kind, stage_kinds, key)
    if value is None:
        # In place: the caller's list is the one inside the recipe's values.
        losses[:] = [loss for loss, other in zip(losses, stage_kinds, strict=True) if other != kind]
    elif not isinstance(value, dict):
        raise SettingsError(
            f"setting '{key}': expected an object of the loss's settings, {{}} for the defaults or null for none"
        )
    elif kind in stage_kinds:
        losses[stage_kinds.index(kind)] = {**value, "kind": kind}
    else:
        losses.append({**value, "kind": kind})


def _expect_kind(kind: str, stage_kinds: list[str], key: str) -> None:
    """Refuse an unknown kind of loss; if it is a setting of a loss, the message says of which."""
    # `all_kinds` reads the installed packages' entry points, so a kind of limner's own does not ask it.
    if kind in LOSSES or kind in (kinds := all_kinds()):
        return
    close = difflib.get_close_matches(kind, kinds, n=1)
    if close:
        hint = f"did you mean '{close[0]}'?"
    elif owner := _owner(kind, [*stage_kinds, *LOSSES]):
        name, setting = owner
        where = key.replace(f".losses.{kind}", f".losses.{name}.{setting}", 1)
        hint = f"did you mean '{where}'?" + (
            "" if name in stage_kinds else f" This stage has no loss '{name}'"
        )
    else:
        hint = f"there are: {', '.join(kinds)}"
    raise SettingsError(f"setting '{key}': unknown loss '{kind}'; {hint}")


def _expect_setting(kind: str, name: str, key: str) -> None:
    """Refuse an unknown setting of a loss, with the nearest name or the loss that has it."""
    # A kind that nobody knows is refused when the recipe is parsed.
    if kind not in all_kinds() or name in (known := loss_settings(kind).model_fields):
        return
    others = [other for other in LOSSES if other != kind]
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        hint = f"did you mean '{close[0]}'?"
    elif owner := _owner(name, others):
        hint = f"it is one of losses.{owner[0]}; known here: {', '.join(known)}"
    else:
        hint = f"known here: {', '.join(known)}"
    raise SettingsError(f"unknown setting '{key}'; {hint}")


def _owner(name: str, kinds: Iterable[str]) -> tuple[str, str] | None:
    """The first loss with a setting of this or nearly this name, and that name."""
    known: dict[str, str] = {}
    for kind in kinds:
        if kind in all_kinds():
            for setting in loss_settings(kind).model_fields:
                known.setdefault(setting, kind)
    close = difflib.get_close_matches(name, known, n=1)
    return (known[close[0]], close[0]) if close else None
