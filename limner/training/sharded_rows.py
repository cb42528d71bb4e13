"""Parameters of which each process holds some rows alone: their place in files, and their share of the norm.

A file holds all rows, whoever held them, so that it is read by any number of processes. No process has all in memory:
the first one puts them together in a file that is mapped (`limner.losses.sharded_classes`).
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn

from limner.errors import CheckpointError
from limner.losses.loss import Loss
from limner.losses.sharded_classes import Shard, processes, shard_of, this_process
from limner.training.sparse_rows import with_dense_gradients

_SENT = 1 << 22
"""Numbers that are sent at once: 16 MB."""


def shards_in(module: nn.Module) -> dict[str, Shard]:
    """The rows that this process holds of parameters of a module, by their names; none that it holds as a whole."""
    return {
        f"{prefix}.{name}" if prefix else name: loss.shard
        for prefix, loss in module.named_modules()
        if isinstance(loss, Loss) and loss.shard is not None
        for name, _ in loss.named_parameters()
    }


def sharded_parameters(module: nn.Module) -> list[nn.Parameter]:
    """These parameters."""
    return [module.get_parameter(name) for name in shards_in(module)]


def rows_in(module: nn.Module) -> Callable[[str], slice | None]:
    """The same rows, as `read_checkpoint` asks for them."""
    shards = shards_in(module)
    return lambda name: shards[name].rows if name in shards else None


def whole_rows(tensors: Mapping[str, Tensor], shards: Mapping[str, Shard], folder: Path) -> dict[str, Tensor]:
    """The tensors, and in the first process all rows of those of which each process holds some.

    They lie in a file in `folder` which has no name, and goes with the tensor or the process. To be called by all
    processes, with the same names. Raises `CheckpointError` when the disk refuses.
    """
    return {
        name: _whole(tensor, shards[name], folder) if name in shards else tensor
        for name, tensor in tensors.items()
    }


def _whole(part: Tensor, shard: Shard, folder: Path) -> Tensor:
    part = part.detach()
    step = max(1, _SENT // max(1, part[:1].numel()))
    if this_process() != 0:
        for sent in torch.split(part, step):
            dist.send(sent.contiguous(), dst=0)
        return part
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for process in range(processes()):
                for rows in _rows_of(process, part, shard, step):
                    file.write(rows.cpu().contiguous().numpy().data)
            file.flush()
            shape = (shard.classes, *part.shape[1:])
            # "c" = changes would stay in memory; torch warns of arrays that must not be written to
            return torch.from_numpy(
                np.memmap(file, dtype=part[:0].cpu().numpy().dtype, mode="c", shape=shape)
            )
    except OSError as error:
        raise CheckpointError(
            f"{folder}: cannot be written ({error.strerror}); check the disk's space and rights"
        ) from None


def _rows_of(process: int, part: Tensor, shard: Shard, step: int) -> Iterator[Tensor]:
    """The rows of a process, in the first one."""
    if process == 0:
        yield from torch.split(part, step)
        return
    left = shard_of(process, shard.classes).held
    while left:
        received = part.new_empty((min(step, left), *part.shape[1:]))
        dist.recv(received, src=process)
        left -= len(received)
        yield received


def clip_gradients(module: nn.Module, largest: float, accelerator: Accelerator) -> None:
    """Scale all gradients so that the norm of the whole is at most `largest`, rows of other processes included."""
    parameters = [*module.parameters()]
    sharded = [parameter for parameter in sharded_parameters(module) if parameter.requires_grad]
    if not sharded:
        accelerator.clip_grad_norm_(with_dense_gradients(parameters), largest)
        return
    held = {id(parameter) for parameter in sharded}
    common = _norm(parameter for parameter in parameters if id(parameter) not in held)
    squares = _norm(sharded).square()
    dist.all_reduce(squares)
    norm = (common.square() + squares).sqrt()
    nn.utils.clip_grads_with_norm_([*with_dense_gradients(parameters)], largest, norm)


def _norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    gradients = [one.grad for one in with_dense_gradients(parameters) if one.grad is not None]
    return nn.utils.get_total_norm(gradients)
