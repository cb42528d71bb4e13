"""The systems by name: the settings of a name, and the network that they build.

A system of another package is found through its entry point among `limner.encoders` (docs/extend.md), or added with
`add_system` by a program that uses it.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from limner.errors import SettingsError
from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.dual_path import DualPath, DualPathSettings
from limner.models.hgan import HGAN, HGANSettings
from limner.models.identity_aware import IdentityAware, IdentityAwareSettings
from limner.models.mnil import MNiL, MNiLSettings
from limner.models.pretrained import Pretrained, PretrainedSettings
from limner.plugins import find_plugin, plugins

DEFAULT = "dual-path"
"""The system of settings that name none."""
DEFAULT_SETTINGS = DualPathSettings()
"""The network of a recipe that names none."""


@dataclass(frozen=True)
class System:
    """A published system: `network` is called as `network(settings, vocabulary_size, load_weights=…)`."""

    settings: type[DualEncoderSettings]
    network: type[DualEncoder]


_SYSTEMS: dict[str, System] = {
    "dual-path": System(DualPathSettings, DualPath),
    "identity-aware": System(IdentityAwareSettings, IdentityAware),
    "mnil": System(MNiLSettings, MNiL),
    "hgan": System(HGANSettings, HGAN),
    "pretrained": System(PretrainedSettings, Pretrained),
}


def add_system(name: str, settings: type[DualEncoderSettings], network: type[DualEncoder]) -> None:
    """Make a system known by its name, which is the default of its settings' field `system`.

    Raises `SettingsError` for a name that another system has.
    """
    system = System(settings, network)
    # recipes are written with the field and read by it: with another default, what was written would not open again
    if settings.model_fields["system"].default != name:
        raise SettingsError(f"system '{name}': the field `system` of {settings.__name__} should say so")
    # adding the same system twice is no error: an import may be run again in a notebook
    if _SYSTEMS.setdefault(name, system) != system:
        raise SettingsError(f"system '{name}': there is one of this name already; choose another")


def find_system(name: str) -> System:
    """The system of a name, ours or another package's. Raises `SettingsError` that lists the names there are."""
    if name in _SYSTEMS:
        return _SYSTEMS[name]
    # limner's own come first, so no package can replace one; another package is imported only when it is asked for
    plugin = find_plugin("limner.encoders", name)
    if plugin is None:
        raise SettingsError(f"unknown system '{name}'; there are: {', '.join(_names())}")
    system = plugin.load()
    if not isinstance(system, System) or system.settings.model_fields["system"].default != name:
        raise SettingsError(
            f"limner.encoders: '{name}' of {plugin.package} is no limner.models.registry.System whose settings have "
            f"system='{name}'; mend it"
        )
    return system


def _names() -> list[str]:
    return [*_SYSTEMS, *(name for name in plugins("limner.encoders") if name not in _SYSTEMS)]


def systems_offering(need: str) -> list[str]:
    """The systems whose networks offer what a loss needs, by name."""
    return [name for name, system in _SYSTEMS.items() if need in system.settings.offers]


def _of_its_system(values: Any) -> Any:
    """Plain values as the settings of the system that they name."""
    if not isinstance(values, dict):
        return values
    name = values.get("system", DEFAULT)
    # `_names` looks at every installed package's entry points: only if the name is not limner's own
    if not isinstance(name, str) or not (name in _SYSTEMS or name in _names()):
        *first, last = (f"'{one}'" for one in _names())
        known = f"{', '.join(first)} or {last}"
        raise PydanticCustomError("system", "its system should be {known}", {"known": known})
    # an error inside keeps its place: pydantic joins it to the path of the field
    return find_system(name).settings.model_validate(values)


# SerializeAsAny: pydantic writes the fields of the declared type otherwise, and a system's own would be lost
ModelSettings = Annotated[SerializeAsAny[DualEncoderSettings], BeforeValidator(_of_its_system)]
"""The settings of any system's dual encoder, told apart by their `system`.

A union of the known classes would be simpler, but is fixed when it is imported; here a system may be added later.
"""


def network_class(settings: DualEncoderSettings) -> type[DualEncoder]:
    """The class of the network that some settings build."""
    return find_system(settings.system).network


def build_network(
    settings: DualEncoderSettings, vocabulary_size: int, *, load_weights: bool = True
) -> DualEncoder:
    """The network of some settings; `load_weights=False` leaves the backbone random, for a checkpoint to fill."""
    build: Any = network_class(settings)
    # through Any: systems take settings and a vocabulary, where `DualEncoder.__init__` takes modules
    network: DualEncoder = build(settings, vocabulary_size, load_weights=load_weights)
    network.grow(settings)
    return network
