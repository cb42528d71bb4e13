"""Parameters of which a step learns some rows alone: their optimiser, their share of the norm, several processes.

Their gradients are sparse and hold the rows that a loss drew (`limner.losses.sampled_classes`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn


class RowOptimiser(torch.optim.Optimizer):
    """An optimiser of torch that takes its step on the rows that a sparse gradient holds, and on their moments.

    Other rows and their moments stand still, weight decay included. That is what Partial FC's own code does (An et al.,
    CVPR 2022, arXiv 2203.15565): it hands the optimiser the drawn rows with their moments and puts both back. As there,
    Adam corrects its moments by the number of all steps, not of those in which a row was drawn.

    The moments have the names and shapes of `optimiser`'s own, so a state file holds them in the same way.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        """`optimiser`: SGD, Adam or AdamW as it would be for all rows; its groups are taken over."""
        super().__init__(optimiser.param_groups, optimiser.defaults)
        self._inner = optimiser

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows that the gradients hold."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad.coalesce(), group)

    def _step(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        places, state = gradient.indices()[0], self.state[parameter]
        rows = nn.Parameter(parameter.index_select(0, places))
        rows.grad = gradient.values()
        # torch's own arithmetic, by its optimiser with these rows for its only parameter
        self._inner.param_groups = [{**group, "params": [rows]}]
        # what has another shape, the number of steps, is of all rows
        own = {
            name: value.index_select(0, places) if value.shape == parameter.shape else value
            for name, value in state.items()
        }
        self._inner.state = defaultdict(dict, {rows: own})
        self._inner.step()
        parameter.index_copy_(0, places, rows)
        # Taken out: kept until the next step, it would be memory for the drawn rows and their moments.
        for name, value in self._inner.state.pop(rows).items():
            if value.shape != rows.shape:
                state[name] = value
                continue
            if name not in state:
                state[name] = torch.zeros_like(parameter)
            state[name].index_copy_(0, places, value)
        self._inner.param_groups = []


def with_dense_gradients(parameters: Iterable[Tensor]) -> Iterator[Tensor]:
    """The parameters, and in place of each with a sparse gradient a tensor whose gradient is the rows of that.

    Norms are taken of it and changed in place, which torch does not do for sparse gradients.
    """
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values = parameter.grad.values()
            parameter = values.detach()
            parameter.grad = values
        yield parameter


def keep_apart(
    module: nn.Module, parameters: Sequence[nn.Parameter], sharded: Sequence[nn.Parameter] = ()
) -> list[nn.Parameter]:
    """Let several processes train a module without these parameters, and return those that `join_rows` has to join.

    These are all but the `sharded` ones, whose rows are each process's own.
    DistributedDataParallel takes sparse gradients of `nn.Embedding` alone, and NCCL of none. As it does for the others,
    the values of what is returned become those of the first process.
    """
    names = [
        name
        for name, found in module.named_parameters()
        if any(found is parameter for parameter in (*parameters, *sharded))
    ]
    # What DistributedDataParallel reads; its own function for it also marks the parameters, for later stages, too.
    module._ddp_params_and_buffers_to_ignore = names  # type: ignore[assignment]
    joined = [parameter for parameter in parameters if not any(parameter is one for one in sharded)]
    for parameter in joined:
        broadcast(parameter.data)
    return joined


def join_rows(parameters: Iterable[nn.Parameter], accelerator: Accelerator) -> None:
    """Give each sparse gradient the mean over all processes, of the rows that any of them drew, and coalesce it."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        gradient = gradient.coalesce()
        if accelerator.num_processes > 1:
            places = gradient.indices()[0]
            # Not always as many rows: the shorter ones are filled up with zeros for the last row.
            places = accelerator.pad_across_processes(places, pad_index=int(places[-1]))
            values = accelerator.pad_across_processes(gradient.values()) / accelerator.num_processes
            gradient = torch.sparse_coo_tensor(
                accelerator.gather(places)[None],
                accelerator.gather(values),
                gradient.shape,
                check_invariants=False,
            ).coalesce()
        parameter.grad = gradient
