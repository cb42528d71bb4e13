"""The embedding networks of all systems: which settings build which."""

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from limner.models.dual_path import DualPath, DualPathSettings
from limner.models.hgan import HGAN, HGANSettings
from limner.models.identity_aware import IdentityAware, IdentityAwareSettings
from limner.models.mnil import MNiL, MNiLSettings

OLDEST = "dual-path"
"""The system of settings that name none: those of checkpoints from before there was a second one."""


def _system(settings: Any) -> str:
    named = settings.get("system") if isinstance(settings, dict) else getattr(settings, "system", None)
    return f"<{named or OLDEST}>"


ModelSettings = Annotated[
    Annotated[DualPathSettings, Tag("<dual-path>")]
    | Annotated[IdentityAwareSettings, Tag("<identity-aware>")]
    | Annotated[MNiLSettings, Tag("<mnil>")]
    | Annotated[HGANSettings, Tag("<hgan>")],
    Discriminator(
        _system,
        custom_error_type="system",
        custom_error_message="its system should be 'dual-path', 'identity-aware', 'mnil' or 'hgan'",
    ),
]
"""The settings of any system's embedding network, told apart by their `system`."""


DEFAULT_SETTINGS = DualPathSettings()
"""The network of a recipe that names none."""


def systems_offering(need: str) -> list[str]:
    """The systems whose networks offer what a loss needs, by name."""
    every = (DualPathSettings, IdentityAwareSettings, MNiLSettings, HGANSettings)
    return [settings.model_fields["system"].default for settings in every if need in settings.offers]


Network = DualPath | IdentityAware | MNiL | HGAN


def build_network(
    settings: DualPathSettings | IdentityAwareSettings | MNiLSettings | HGANSettings,
    vocabulary_size: int,
    *,
    load_weights: bool = True,
) -> Network:
    """The network of some settings; `load_weights=False` leaves the backbone random, for a checkpoint to fill."""
    if isinstance(settings, DualPathSettings):
        return DualPath(settings, vocabulary_size, load_weights=load_weights)
    if isinstance(settings, MNiLSettings):
        return MNiL(settings, vocabulary_size, load_weights=load_weights)
    if isinstance(settings, HGANSettings):
        return HGAN(settings, vocabulary_size, load_weights=load_weights)
    return IdentityAware(settings, vocabulary_size, load_weights=load_weights)
