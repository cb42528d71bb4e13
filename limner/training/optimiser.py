"""Parameter groups by part, and the learning rate as a pure function of how far a stage is."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from limner.models.image import ImageEncoder
from limner.training.recipe import OptimiserSettings, ScheduleSettings, StageSettings
from limner.training.sparse_rows import RowOptimiser

NO_LAYERS: Mapping[nn.Parameter, int] = {}
"""The layers above the parameters of networks that are no transformers."""


def make_optimisers(
    parts: Mapping[str, Sequence[nn.Parameter]],
    stage: StageSettings,
    above: Mapping[nn.Parameter, int] = NO_LAYERS,
) -> list[torch.optim.Optimizer]:
    """The stage's optimiser of most parts, and one for each part that has its own, or a sparse gradient.

    All follow the stage's schedule: `set_rate` takes the rate of `stage.optimiser`, and the groups of the others carry
    their share of it. One that has nothing to learn is left out. `above` counts the layers above each parameter
    (`limner.models.transformer_layers`).
    """
    separate = stage.part_optimisers
    # sorted: a state numbers the optimisers' parameters, and a set has another order in every process
    separate = separate | {name: separate.get(name, stage.optimiser) for name in sorted(stage.sparse_parts)}
    common = {name: parameters for name, parameters in parts.items() if name not in separate}
    chosen = [(common, stage.optimiser)]
    chosen += [({name: parts[name]}, settings) for name, settings in separate.items() if name in parts]
    found = []
    for theirs, settings in chosen:
        # torch refuses an optimiser without parameters, and all parameters of a part may be frozen.
        if any(parameter.requires_grad for parameters in theirs.values() for parameter in parameters):
            optimiser = make_optimiser(theirs, settings, above)
            for group in optimiser.param_groups:
                # `set_rate` gives all of them the rate of `stage.optimiser`: the ratio makes it their own
                group["multiplier"] *= settings.rate / stage.optimiser.rate
            found.append(RowOptimiser(optimiser) if theirs.keys() <= stage.sparse_parts else optimiser)
    return found


def make_optimiser(
    parts: Mapping[str, Sequence[nn.Parameter]],
    settings: OptimiserSettings,
    above: Mapping[nn.Parameter, int] = NO_LAYERS,
) -> torch.optim.Optimizer:
    """One group a part and kind: matrices with weight decay, vectors (biases, batch norm) without.

    With `layer_decay` each layer of a tower has groups of its own, and the rate is multiplied by it once for the last
    layer, twice for the one below, and so on (Clark et al., "ELECTRA", ICLR 2020; Bao et al., "BEiT", ICLR 2022). Each
    group carries its `multiplier`; `set_rate` applies it. Parameters that need no gradient are left out.
    """
    groups = []
    for part, parameters in parts.items():
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        for decays, chosen in (
            # Matrices and filters decay; biases and batch norm's scales do not (a scale at 0 would silence its
            # channel).
            (True, [parameter for parameter in learning if parameter.dim() > 1]),
            (False, [parameter for parameter in learning if parameter.dim() <= 1]),
        ):
            # Without `layer_decay` all are of one height, and the groups are those of a state from before it.
            heights = [0 if settings.layer_decay is None else above.get(weight, 0) for weight in chosen]
            for height in sorted(set(heights)):
                groups.append(
                    {
                        "params": [
                            weight for weight, own in zip(chosen, heights, strict=True) if own == height
                        ],
                        "weight_decay": settings.weight_decay if decays else 0.0,
                        "multiplier": settings.multipliers.get(part, 1.0)
                        * (settings.layer_decay or 1.0) ** height,
                    }
                )
    if settings.name == "sgd":
        return torch.optim.SGD(
            groups, lr=settings.rate, momentum=settings.momentum, nesterov=settings.nesterov, fused=True
        )
    # Adam's own weight decay goes into the gradient, AdamW's past the moments: the name chooses.
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    # fused: one kernel for all tensors; AdamW went from 43 to 16 ms a step on a CPU (docs/log/2026-11-21.md).
    return kind(groups, lr=settings.rate, betas=(settings.momentum, 0.999), fused=True)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give each group the rate times its multiplier."""
    for group in optimiser.param_groups:
        # A multiplier of 0 holds a part without freezing its batch norm.
        group["lr"] = rate * group["multiplier"]


def rate_at(epoch: float, epochs: int, base: float, schedule: ScheduleSettings) -> float:
    """The base rate after `epoch` (a fraction counts) of `epochs`."""
    rate = base
    if schedule.kind == "steps":
        # At the drop itself the rate is the lower one already.
        rate *= 0.1 ** sum(epoch >= drop for drop in schedule.drops)
    elif schedule.kind == "cosine":
        # `min`: rounding may take the last step's fraction above 1.
        rate *= 0.5 * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))
    if schedule.warmup and epoch < schedule.warmup:
        # Over the schedule's own rate: the cosine has fallen a little when the warm-up ends.
        rate *= epoch / schedule.warmup
    return rate


def freeze_parts(parts: Mapping[str, Sequence[nn.Parameter]], stage: StageSettings) -> None:
    """Switch gradients off for frozen parts, on for the others."""
    for part, parameters in parts.items():
        for parameter in parameters:
            # On again, too: a part may have been frozen by the stage before.
            parameter.requires_grad_(part not in stage.frozen)


def hold_backbone(backbone: ImageEncoder, stage: StageSettings) -> None:
    """Hold what a stage does not learn of a backbone: all of it, the layers before one, or its statistics."""
    backbone.set_frozen(
        "backbone" in stage.frozen,
        fixed_statistics=stage.backbone_statistics == "fixed",
        until=stage.backbone_from,
    )
