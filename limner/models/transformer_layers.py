"""The layers of transformers' towers: where each parameter stands among them, and which are computed twice."""

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def transformer_layers(network: nn.Module) -> list[nn.Module]:
    """The layers of a network of transformers, from the input on; [] if it has none, or several rows of them."""
    # a Swin has a row of layers for each of its scales, and no one order for all of them
    found = [
        list(module)
        for module in network.modules()
        if isinstance(module, nn.ModuleList) and len(module) and all(map(_is_layer, module))
    ]
    return found[0] if len(found) == 1 else []


def layers_above(networks: Iterable[nn.Module]) -> dict[nn.Parameter, int]:
    """How many layers stand above each parameter of a transformer; networks that are none have no entries.

    0 for what comes after the layers, such as a last norm; 1 for the last layer; for what comes before the first, such
    as embeddings of tokens and positions, one more than for that.
    """
    found: dict[nn.Parameter, int] = {}
    for network in networks:
        layers = transformer_layers(network)
        of_layer = {weight: place for place, layer in enumerate(layers) for weight in layer.parameters()}
        above = len(layers) + 1
        # transformers registers modules in the order in which they are applied
        for weight in network.parameters() if layers else ():
            if weight in of_layer:
                above = len(layers) - of_layer[weight]
            elif above <= len(layers):
                above = 0
            found[weight] = above
    return found


def set_checkpointing(network: nn.Module, on: bool) -> None:
    """Let each transformer layer keep its input alone, and compute the rest again in the backward pass.

    Dropout drops the same both times. A layer in eval mode does not do so: what is frozen has no backward pass.
    """
    for layer in filter(_is_layer, network.modules()):
        # the attributes that transformers sets, whose method for it has another name in each version
        layer.gradient_checkpointing = on  # type: ignore[assignment]
        # not the reentrant kind, with which several processes do not see the graph
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)  # type: ignore[assignment]


def _is_layer(module: nn.Module) -> bool:
    # by name, since transformers is an optional extra
    return any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(module).__mro__)
