"""The losses by kind; a loss of another package that is registered here works wherever a recipe does.

Kinds are resolved when a recipe is read and not when its classes are made, so that it does not matter how late a loss
is registered, and a loss is imported only when it is used.
"""

import difflib
from functools import cache
from importlib import import_module
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
    "sdm": "limner.losses.sdm:SDM",
}
"""Where the settings class of each kind is, "module:class" as entry points have it, or the class itself."""


def register_loss(kind: str, place: str | type[LossSettings]) -> None:
    """Make a loss known by its kind; `place` is its settings class, or where that is, "module:class".

    Raises `SettingsError` for a kind that another loss has.
    """
    if LOSSES.setdefault(kind, place) != place:
        raise SettingsError(f"there are two losses of kind '{kind}': {LOSSES[kind]} and {place}; rename one")


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


@cache
def _parser(settings: type[LossSettings]) -> Any:
    """A parser whose errors say by a tag which kind of loss a value was meant for, as `limner.settings` reads it.

    Each kind has its own: a recipe imports only the losses that it uses, and one that is broken breaks no other.
    """
    tag = f"<{settings.model_fields['kind'].default}>"
    # pydantic tags the members of a union, so that there has to be a second one
    union = Annotated[settings, Tag(tag)] | Annotated[None, Tag("<none>")]  # type: ignore[valid-type]
    return TypeAdapter(Annotated[union, Discriminator(lambda value: tag)])


def _parse(value: Any) -> LossSettings:
    if isinstance(value, LossSettings):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise PydanticCustomError("loss", 'expected a loss, e.g. {{"kind": "ranking"}}')
    try:
        settings = loss_settings(value["kind"])
    except SettingsError as error:
        raise PydanticCustomError("loss", "{why}", {"why": str(error)}) from None
    parsed: LossSettings = _parser(settings).validate_python(value)
    return parsed


AnyLoss = Annotated[SerializeAsAny[LossSettings], BeforeValidator(_parse)]
"""A field that holds the settings of any registered loss."""
