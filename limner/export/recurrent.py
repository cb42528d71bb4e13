"""LSTMs as one operation of a recorded network: traced as they are, each word would become operations of its own."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ORDER = (0, 3, 1, 2)
"""ONNX's gates i, o, f, c among torch's i, f, g, o."""


def with_recorded_lstms(network: nn.Module) -> nn.Module:
    """The network in eval mode with each `nn.LSTM` as a `RecordedLSTM`; weights are shared, and it stays as it is."""
    # a copy of the modules alone: a table of 256,000 pieces would be in memory twice
    shared: dict[int, Any] = {id(weight): weight for weight in (*network.parameters(), *network.buffers())}
    copied = copy.deepcopy(network, shared).eval()
    for module in list(copied.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LSTM):
                setattr(module, name, RecordedLSTM(child))
    return copied


class RecordedLSTM(nn.Module):
    """The states of an `nn.LSTM` of one direction over padded rows, from a state of zeros."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        assert lstm.batch_first, "rows come first"
        assert not lstm.bidirectional, "of one direction"
        self.layers = lstm.num_layers
        for layer in range(lstm.num_layers):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                weight = lstm.get_parameter(f"{name}_l{layer}").detach()
                gates = weight.chunk(4)
                self.register_buffer(f"{name}_{layer}", torch.cat([gates[place] for place in _ORDER])[None])
        self.hidden = lstm.hidden_size

    def forward(self, rows: Tensor) -> tuple[Tensor, None]:
        """States (batch, words, hidden); nothing stands for the last ones."""
        for layer in range(self.layers):
            into, again, first, second = (
                self.get_buffer(f"{name}_{layer}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            rows = torch.ops.limner.lstm(rows, into, again, torch.cat([first, second], dim=1), self.hidden)
        return rows, None


@torch.library.custom_op("limner::lstm", mutates_args=())
def _lstm(rows: Tensor, into: Tensor, again: Tensor, bias: Tensor, hidden: int) -> Tensor:
    """ONNX's LSTM of one layer, its weights in ONNX's order; slow, for comparison."""
    entering = F.linear(rows, into[0], bias[0, : 4 * hidden] + bias[0, 4 * hidden :])
    state = cell = rows.new_zeros(rows.shape[0], hidden)
    found = []
    for gates in entering.unbind(1):
        i, o, f, c = (gates + F.linear(state, again[0])).chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * c.tanh()
        state = o.sigmoid() * cell.tanh()
        found.append(state)
    return torch.stack(found, dim=1)


@_lstm.register_fake
def _(rows: Tensor, into: Tensor, again: Tensor, bias: Tensor, hidden: int) -> Tensor:
    return rows.new_empty(rows.shape[0], rows.shape[1], hidden)


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """ONNX for the operation above, as `torch.onnx.export` takes it."""
    from onnxscript import opset18

    # Any: its types are of tensors' contents, which a translation does not know
    op: Any = opset18

    def lstm(rows: Any, into: Any, again: Any, bias: Any, hidden: int) -> Any:
        words_first = op.Transpose(rows, perm=[1, 0, 2])
        states, _, _ = op.LSTM(words_first, into, again, bias, hidden_size=hidden)
        return op.Transpose(op.Squeeze(states, op.Constant(value_ints=[1])), perm=[1, 0, 2])

    return {torch.ops.limner.lstm.default: lstm}
