"""An LSTM over sentences of several lengths, for CPUs: only the words that are there are computed.

`nn.LSTM` gives the same, padded or packed, and takes 2.1 and 1.4 times as long to learn on one core
(`benchmarks/text_lstm.py`).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def run_packed(
    lstm: nn.LSTM, rows: Float[Tensor, "words inputs"], counts: Sequence[int]
) -> Float[Tensor, "words hidden"]:
    """The last layer's hidden state at each word, from a state of zeros.

    The first words of all sentences come first, that of the longest one at the head, then the second words of those
    that have one, and so on; `counts` says how many there are of each. `lstm` has one direction, biases, and neither
    projections nor dropout. The cells are in float32 also under autocast.
    """
    for layer in range(lstm.num_layers):
        into, again, first_bias, second_bias = (
            lstm.get_parameter(f"{name}_l{layer}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        entering = F.linear(rows, into, first_bias + second_bias)
        hidden = cell = rows.new_zeros(counts[0], lstm.hidden_size)
        states = []
        for step, gates in enumerate(torch.split(entering, list(counts))):
            if step:
                gates = gates + F.linear(hidden[: len(gates)], again)
            i, f, g, o = gates.to(torch.promote_types(gates.dtype, torch.float32)).chunk(4, dim=1)
            cell = torch.addcmul(f.sigmoid() * cell[: len(gates)], i.sigmoid(), g.tanh())
            hidden = o.sigmoid() * cell.tanh()
            states.append(hidden)
        rows = torch.cat(states)
    return rows
