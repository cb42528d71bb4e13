"""Rows that are equal bit for bit, found so that they can be given equal scores.

A matrix product may round equal rows differently: its kernels treat the last columns of a tile in another
order than the others. A tie is then decided by rounding, for or against the model. Ranking and search
therefore copy the score of the first of equal rows to the rest.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_CHUNK = 1 << 20  # values hashed at once: 8 MiB of integers
_SPREAD = 0x1E3779B97F4A7C15  # odd, with its bits well mixed


def twin_rows(
    rows: Float[Tensor, "items dim"],
) -> tuple[Int[Tensor, " twins"], Int[Tensor, " twins"]]:
    """The rows that repeat an earlier one, and for each the first row that it equals.

    0.0 and -0.0 count as equal. One pass over float32 or float64 rows on their device, with 30 MiB beside
    them and a few integers a row.

    >>> later, first = twin_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    >>> later.tolist(), first.tolist()
    ([2], [0])
    """
    count, dim = rows.shape
    step = max(1, _CHUNK // max(1, dim))
    generator = torch.Generator().manual_seed(1)
    # Odd factors keep every bit of a word in the wrapping sum, which is exact in any order.
    factors = torch.randint(-(2**62), 2**62, (dim,), generator=generator).mul_(2).add_(1).to(rows.device)
    keys = torch.empty(count, dtype=torch.int64, device=rows.device)
    word = torch.int64 if rows.dtype == torch.float64 else torch.int32
    for start in range(0, count, step):
        bits = (rows[start : start + step] + 0.0).view(word).long()
        # Round numbers end in zero bits, which a wrapping product would push out at the top: fold them down.
        bits.mul_(_SPREAD).bitwise_xor_(bits >> 32)
        keys[start : start + step] = bits.mul_(factors).sum(1)
    unique, inverse = torch.unique(keys, return_inverse=True)
    positions = torch.arange(count, device=rows.device)
    first = torch.full_like(unique, count).scatter_reduce_(0, inverse, positions, "amin")[inverse]
    later = (first != positions).nonzero().flatten()
    # Equal keys of different rows are next to impossible, but a wrong tie would be a wrong rank.
    parts = torch.split(later, step)  # at least one, be it empty
    same = [(rows[part] == rows[first[part]]).all(1) for part in parts]
    later = later[torch.cat(same)]
    return later, first[later]
