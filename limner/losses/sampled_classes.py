"""Classes drawn for a step of a classifier over very many of them, with a gradient that holds their rows alone.

Source: An et al., "Partial FC: Training 10 Million Identities on a Single Machine", ICCVW 2021, arXiv 2010.05222; An et
al., "Killing Two Birds with One Stone", CVPR 2022, arXiv 2203.15565.
"""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def draw_classes(own: Int64[Tensor, " batch"], classes: int, share: float) -> Int64[Tensor, " drawn"]:
    """The classes of a batch, `own`, and others drawn uniformly without replacement: `share` of all `classes`.

    They are in ascending order, `round(share × classes)` of them, or more if the batch alone has more. Drawn from
    torch's global generator of the device of `own`.
    """
    own = torch.unique(own)
    free = torch.ones(classes, dtype=torch.bool, device=own.device)
    free[own] = False
    others = free.nonzero()[:, 0]
    # randperm and not the highest of random numbers: a million numbers of float32 are not all different
    order = torch.randperm(len(others), device=own.device)
    more = max(round(share * classes) - len(own), 0)
    return torch.cat([own, others[order[:more]]]).sort().values


def rows_of(
    table: Float[Tensor, "classes *dim"], places: Int64[Tensor, " drawn"]
) -> Float[Tensor, "drawn *dim"]:
    """Rows of `table` at `places`, each of which stands there once; the gradient of `table` is sparse and has them
    alone."""
    rows: Tensor = _Rows.apply(table, places)  # type: ignore[no-untyped-call]
    return rows


class _Rows(torch.autograd.Function):
    # not F.embedding, which takes no vector of biases
    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.shape = table.shape
        return table.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        # each place is one of `table`, which torch would check again
        found = torch.sparse_coo_tensor(places[None], gradients[0], ctx.shape, check_invariants=False)
        return found, None
