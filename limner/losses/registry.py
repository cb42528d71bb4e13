"""The losses by kind; a loss of another package that is registered here works wherever a recipe does.

Kinds are resolved when a recipe is read and not when its classes are made, so that it does not matter how late a loss
is registered, and a loss is imported only when it is used.
"""

import difflib
from functools import cache, reduce
from importlib import import_module
from operator import or_
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, SerializeAsAny, Tag, TypeAdapter
from pydantic_core import PydanticCustomError

from limner.errors import SettingsError
from limner.losses.loss import LossSettings

LOSSES: dict[str, str | type[LossSettings]] = {
    "instance": "limner.losses.instance:Instance",
    "ranking": "limner.losses.ranking:Ranking",
    "cmce": "limner.losses.cmce:CMCE",
    "sextuple": "limner.losses.sextuple:Sextuple",
    "pair": "limner.losses.pair:Pair",
    "levels": "limner.losses.levels:Levels",
}
"""Where the settings class of each kind is, "module:class" as entry points have it, or the class itself."""


def register_loss(kind: str, place: str | type[LossSettings]) -> None:
    """Make a loss known by its kind; `place` is its settings class, or where that is, "module:class".

    Raises `SettingsError` for a kind that another loss has.
    """
    if LOSSES.setdefault(kind, place) != place:
        raise SettingsError(f"there are two losses of kind '{kind}': {LOSSES[kind]} and {place}; rename one")
    _parser.cache_clear()


def loss_settings(kind: str) -> type[LossSettings]:
    """The settings class of a kind. Raises `SettingsError` with the nearest kind, or for a place that has none."""
    if kind not in LOSSES:
        raise SettingsError(f"unknown loss '{kind}'{_hint(kind)}")
    place = LOSSES[kind]
    if isinstance(place, str):
        module, _, name = place.partition(":")
        try:
            place = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise SettingsError(f"loss '{kind}' cannot be imported from {LOSSES[kind]} ({error})") from None
        assert isinstance(place, type)
    if not issubclass(place, LossSettings) or place.model_fields["kind"].default != kind:
        raise SettingsError(f"loss '{kind}': {place.__name__} is no LossSettings whose kind is '{kind}'")
    return place


def _hint(kind: str) -> str:
    close = difflib.get_close_matches(kind, LOSSES, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; there are: {', '.join(LOSSES)}"


def _kind(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


@cache
def _parser() -> Any:
    """A union of all kinds, whose tags tell `limner.settings` which class a refused value was meant for."""
    tagged = (Annotated[loss_settings(kind), Tag(f"<{kind}>")] for kind in LOSSES)
    return TypeAdapter(Annotated[reduce(or_, tagged), Discriminator(lambda value: f"<{_kind(value)}>")])  # type: ignore[arg-type]


def _parse(value: Any) -> LossSettings:
    if isinstance(value, LossSettings):
        return value
    if not isinstance(value, dict) or "kind" not in value:
        raise PydanticCustomError("loss", 'expected a loss, e.g. {{"kind": "ranking"}}')
    if value["kind"] not in LOSSES:
        raise PydanticCustomError("loss", "{why}", {"why": f"unknown loss{_hint(str(value['kind']))}"})
    parsed: LossSettings = _parser().validate_python(value)
    return parsed


AnyLoss = Annotated[SerializeAsAny[LossSettings], BeforeValidator(_parse)]
"""A field that holds the settings of any registered loss."""
