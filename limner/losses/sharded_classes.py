"""A table of classes of which each of the processes that train together holds some rows, and none holds all.

Source: the parallel classifier of Deng et al., "ArcFace", CVPR 2019, arXiv 1801.07698 (appendix, "Parallel
Acceleration"), of which Partial FC draws a part (`limner.losses.sampled_classes`).
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from jaxtyping import Int64
from torch import Tensor

from limner.errors import SettingsError
from limner.losses.sampled_classes import draw_classes

_DRAWN = 1 << 14
"""Rows that are drawn at once where a table starts; another number gives others."""


@dataclass(frozen=True)
class Shard:
    """The rows of this process: `held` of them from `first` on, of `classes` in all processes together."""

    first: int
    held: int
    classes: int

    @property
    def rows(self) -> slice:
        """Where they lie in the whole table."""
        return slice(self.first, self.first + self.held)


def own_shard(classes: int) -> Shard | None:
    """The rows of this process, of about as many as every other's; None if it trains alone and holds all of them.

    Raises `SettingsError` for fewer classes than processes.
    """
    if processes() == 1:
        return None
    if classes < processes():
        raise SettingsError(
            f"setting 'sharded': {classes} classes cannot be held by {processes()} processes; leave it out"
        )
    return shard_of(this_process(), classes)


def shard_of(process: int, classes: int) -> Shard:
    """The rows of a process."""
    first, end = (classes * one // processes() for one in (process, process + 1))
    return Shard(first, end - first, classes)


def processes() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def this_process() -> int:
    """Its number among them, from 0."""
    return dist.get_rank()


def random_rows(dim: int, shard: Shard) -> Tensor:
    """The rows of a shard, standard normal; whatever the number of processes, the whole table is the same."""
    rows = torch.empty(shard.held, dim)
    for start in range(0, shard.classes, _DRAWN):
        end = min(start + _DRAWN, shard.classes)
        drawn = torch.randn(end - start, dim)  # of all, so that the generators of all processes go on alike
        here = slice(max(start, shard.first), min(end, shard.rows.stop))
        if here.start < here.stop:
            rows[here.start - shard.first : here.stop - shard.first] = drawn[
                here.start - start : here.stop - start
            ]
    return rows


def of_all(own: Tensor) -> Tensor:
    """The rows of all processes, in their order; each has as many. Without gradient."""
    found = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(processes())]
    dist.all_gather(found, own.contiguous())
    return torch.cat(found)


def of_this_process(rows: Tensor) -> Tensor:
    """The rows that are this process's among those of all."""
    return rows.chunk(processes())[this_process()]


def summed(part: Tensor) -> Tensor:
    """The sum over all processes, in the place of a tensor. Without gradient."""
    dist.all_reduce(part)
    return part


def draw_of_shards(
    own: Int64[Tensor, " batch"], shard: Shard, share: float
) -> tuple[Int64[Tensor, " drawn"], Int64[Tensor, " batch"], Shard]:
    """The drawn rows of this process: those of all batches that it holds, and others, a `share` of what it holds.

    Then the places of `own` among what all processes drew, and where the drawn rows of this one stand there.
    """
    everyone = of_all(own) - shard.first
    held = (everyone >= 0) & (everyone < shard.held)
    drawn = draw_classes(everyone[held], shard.held, share)
    counts = of_all(torch.tensor([len(drawn)], device=own.device)).tolist()
    first = sum(counts[: this_process()])
    # each class is one process's, so the sum is of one number
    places = summed(torch.where(held, first + torch.searchsorted(drawn, everyone), 0))
    return drawn, of_this_process(places), Shard(first, len(drawn), sum(counts))
