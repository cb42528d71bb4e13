"""The moving average of the weights over the steps of a stage, which is what validation sees and a checkpoint keeps.

Source: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", SIAM J. Control Optim. 30, 1992;
with weights that decay, as in Tarvainen and Valpola, "Mean teachers are better role models", NIPS 2017.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from limner.errors import CheckpointError


class WeightAverage:
    """`Σ_t d^(T−t) w_t / Σ_t d^(T−t)` of the weights w_t behind each step t = 1 … T, with d = `decay`.

    **Decided**: divided by the sum of the factors, as Adam corrects its moments. The weights that a stage starts from
    have no part in it: undivided, 90 % of an average with d = 0.999 would be the start after 100 steps.

    It covers the parameters that learn, and, by the same factors, the statistics of each batch norm that gathers them:
    they then lag behind as far as the weights do. What is frozen is not in it and costs nothing. Neither is what losses
    remember, such as a queue: that belongs to the weights that training goes on with.
    """

    def __init__(self, trained: nn.Module, decay: float) -> None:
        """`trained`: what learns, in the mode in which it does: which batch norms gather statistics is seen by that."""
        self.decay = decay
        self.steps = 0
        self._live: dict[str, Tensor] = {
            name: weight for name, weight in trained.named_parameters() if weight.requires_grad
        }
        self._live |= {
            f"{name}.{kind}": statistics
            for name, module in trained.named_modules()
            if gathers_statistics(module)
            for kind, statistics in module.named_buffers(recurse=False)
            # the count of batches is none of the statistics
            if statistics.is_floating_point()
        }
        self.values = {name: torch.zeros_like(live) for name, live in self._live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they stand after a step."""
        self.steps += 1
        # 1 at the first step, so the zeros that it starts with do not count; towards 1 − d later
        share = (1 - self.decay) / (1 - self.decay**self.steps)
        torch._foreach_lerp_(list(self.values.values()), list(self._live.values()), share)

    @contextmanager
    def in_place(self, project: Callable[[], None]) -> Iterator[None]:
        """Within it the module has the average for its weights; before the first step it keeps its own.

        `project` brings them back to what the network holds them to: a mean of orthonormal rows is not orthonormal.
        """
        if not self.steps:
            yield
            return
        # copied and not exchanged: what happens to the weights within must not change the average
        own = {name: live.detach().clone() for name, live in self._live.items()}
        self._put(self.values)
        try:
            project()
            yield
        finally:
            self._put(own)

    def restore(self, values: Mapping[str, Tensor], steps: int) -> None:
        """Go on from the values of a state. Raises `CheckpointError` for those of another network."""
        if {name: value.shape for name, value in values.items()} != {
            name: value.shape for name, value in self.values.items()
        }:
            raise CheckpointError("the average of the weights is of another network")
        for name, value in self.values.items():
            value.copy_(values[name])
        self.steps = steps

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, live in self._live.items():
            live.copy_(values[name])


def gathers_statistics(module: nn.Module) -> bool:
    """True for a batch norm that uses and gathers the statistics of each batch, in the mode in which it is."""
    # _BatchNorm is the base of all kinds, also of those in a network of transformers
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
