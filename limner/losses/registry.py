"""The losses by kind: limner's own, and those of other packages (docs/extend.md).

Another package's loss is found through its entry point among `limner.losses`, or registered by a program that uses it.
Kinds are resolved when a recipe is read and not when its classes are made, so that it does not matter how late a loss
is registered, and a loss is imported only when it is used.
"""

from functools import cache
from importlib import import_module
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, SerializeAsAny, Tag, TypeAdapter
from pydantic_core import PydanticCustomError

from limner.errors import SettingsError
from limner.losses.loss import LossSettings
from limner.plugins import find_plugin, nearest, plugins

LOSSES: dict[str, str | type[LossSettings]] = {
    "instance": "limner.losses.instance:Instance",
    "ranking": "limner.losses.ranking:Ranking",
    "cmce": "limner.losses.cmce:CMCE",
    "sextuple": "limner.losses.sextuple:Sextuple",
    "pair": "limner.losses.pair:Pair",
    "levels": "limner.losses.levels:Levels",
    "sdm": "limner.losses.sdm:SDM",
    "contrastive": "limner.losses.contrastive:Contrastive",
    "siglip": "limner.losses.siglip:SigLIP",
    "tal": "limner.losses.tal:TAL",
    "circle": "limner.losses.circle:Circle",
    "maxsim": "limner.losses.maxsim:MaxSim",
}
"""Where the settings class of each kind is, "module:class" as entry points have it, or the class itself."""


def register_loss(kind: str, place: str | type[LossSettings]) -> None:
    """Make a loss known by its kind; `place` is its settings class, or where that is, "module:class".

    Raises `SettingsError` for a kind that another loss has.
    """
    if LOSSES.setdefault(kind, place) != place:
        raise SettingsError(f"there are two losses of kind '{kind}': {LOSSES[kind]} and {place}; rename one")


def all_kinds() -> list[str]:
    """Every kind of loss that a recipe may name; those of other packages, not imported, behind limner's own."""
    return [*LOSSES, *(kind for kind in plugins("limner.losses") if kind not in LOSSES)]


def loss_settings(kind: str) -> type[LossSettings]:
    """The settings class of a kind. Raises `SettingsError` with the nearest kind, or for a place that has none."""
    plugin = None if kind in LOSSES else find_plugin("limner.losses", kind)
    if plugin is None and kind not in LOSSES:
        raise SettingsError(f"unknown loss '{kind}'; {nearest('limner.losses', kind, LOSSES)}")
    place: Any = LOSSES[kind] if plugin is None else plugin.load()
    if isinstance(place, str):
        module, _, name = place.partition(":")
        try:
            place = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise SettingsError(f"loss '{kind}' cannot be imported from {LOSSES[kind]} ({error})") from None
    # an entry point may name anything: another package's mistake gets a message and no traceback
    fits = isinstance(place, type) and issubclass(place, LossSettings)
    if not fits or place.model_fields["kind"].default != kind:
        of = "" if plugin is None else f" of {plugin.package}"
        named = getattr(place, "__name__", type(place).__name__)
        raise SettingsError(f"loss '{kind}'{of}: {named} is no LossSettings whose kind is '{kind}'")
    found: type[LossSettings] = place
    return found


# a TypeAdapter compiles a validator, which takes far longer than to validate one loss
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
    # objects come from recipes in Python, plain values from JSON and the command line
    if isinstance(value, LossSettings):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise PydanticCustomError("loss", 'expected a loss, e.g. {"kind": "ranking"}')
    try:
        # not when classes are made: a loss may be registered after this module was imported
        settings = loss_settings(value["kind"])
    except SettingsError as error:
        raise PydanticCustomError("loss", "{why}", {"why": str(error)}) from None
    parsed: LossSettings = _parser(settings).validate_python(value)
    return parsed


# SerializeAsAny: pydantic writes the fields of the declared type otherwise, and a loss's own would be lost
AnyLoss = Annotated[SerializeAsAny[LossSettings], BeforeValidator(_parse)]
"""A field that holds the settings of any registered loss."""
