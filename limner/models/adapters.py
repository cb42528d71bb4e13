"""LoRA: adapters of low rank beside the attention of transformers' towers, which learn in place of its weights.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022. The adapters are peft's.
"""

import importlib
from collections.abc import Iterable
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from limner.errors import SettingsError, install_hint
from limner.models.transformer_layers import transformer_layers
from limner.settings import Settings

ATTENTION = (
    "q_proj",
    "k_proj",
    "v_proj",
    "out_proj",
    "o_proj",
    "query",
    "key",
    "value",
    "attention.output.dense",
)
"""The projections of attention, as the towers of transformers call them."""

_ADAPTER = "default"
"""peft's name of a network's only adapter."""


class LoRASettings(Settings):
    """The adapters of a stage."""

    rank: int = Field(default=8, ge=1)
    """r, the rank of the change of each weight matrix."""
    alpha: float = Field(default=16.0, gt=0, allow_inf_nan=False)
    """α; the change is multiplied by α / r."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout before the adapters."""
    targets: tuple[str, ...] = Field(default=ATTENTION, min_length=1)
    """Ends of the names of the linear layers that have adapters, e.g. "q_proj"; by default the projections of
    attention. Add "fc1" and "fc2" for CLIP's and SigLIP's perceptrons."""


def peft_library() -> Any:
    """The library. Raises `SettingsError` that names the extra where it is not installed."""
    try:
        return importlib.import_module("peft")
    except ImportError:
        raise SettingsError(f"lora needs the peft library; install it with: {install_hint('lora')}") from None


def add_adapters(path: nn.Module, settings: LoRASettings) -> None:
    """Give the layers of a tower adapters, which change nothing before their first step, and hold its own weights.

    Linear layers outside of the row of layers have none: SigLIP's pooling head reads its matrices past any adapter.
    Raises `SettingsError` if none of the targets is there.
    """
    peft = peft_library()
    # a list of their own, so that what peft notes of a network is noted of it
    layers = nn.ModuleList(transformer_layers(path))
    chosen = [
        name
        for name, module in layers.named_modules()
        if isinstance(module, nn.Linear) and any(f".{name}".endswith(f".{end}") for end in settings.targets)
    ]
    if not chosen:
        linear = {
            name.split(".", 1)[1] for name, module in layers.named_modules() if isinstance(module, nn.Linear)
        }
        raise SettingsError(
            f"setting 'lora.targets': a tower has no linear layer called {' or '.join(settings.targets)}; there are: "
            f"{', '.join(sorted(linear))}"
        )
    config = peft.LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, target_modules=chosen
    )
    peft.inject_adapter_in_model(config, layers)


def hold_adapted(path: nn.Module) -> None:
    """Let nothing of a tower with adapters learn but these."""
    adapters = {weight for _, adapter in _adapters(path) for weight in _own_weights(adapter)}
    for weight in _tower(path).parameters():
        weight.requires_grad_(weight in adapters)


def remove_adapters(network: nn.Module) -> None:
    """Put the layers themselves back, as they were before their adapters."""
    for name, adapter in list(_adapters(network)):
        parent, _, child = name.rpartition(".")
        setattr(network.get_submodule(parent), child, adapter.base_layer)


def merged_state(network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network by the names that they have without adapters, whose changes are added to the weights.

    The network keeps its adapters: merging and taking apart again would round its weights.
    """
    state: dict[str, Tensor] = network.state_dict()
    for name, adapter in _adapters(network):
        own = {key: state.pop(key) for key in list(state) if key.startswith(f"{name}.")}
        for key, tensor in own.items():
            if key.startswith(f"{name}.base_layer."):
                state[key.replace(".base_layer.", ".")] = tensor
        state[f"{name}.weight"] = state[f"{name}.weight"] + adapter.get_delta_weight(_ADAPTER).detach()
    return state


def _adapters(network: nn.Module) -> Iterable[tuple[str, Any]]:
    # by name, since peft is an optional extra
    return (
        (name, module)
        for name, module in network.named_modules()
        if any(kind.__name__ == "LoraLayer" for kind in type(module).__mro__)
    )


def _own_weights(adapter: Any) -> Iterable[nn.Parameter]:
    base = set(adapter.base_layer.parameters())
    return (weight for weight in adapter.parameters() if weight not in base)


def _tower(path: nn.Module) -> nn.Module:
    """The network of transformers within an image or text path, without what is above it."""
    return next(
        module
        for module in path.modules()
        if any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__)
    )
