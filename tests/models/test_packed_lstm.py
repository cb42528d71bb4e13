import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from limner.models.text_lstm import run_packed


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_states_and_gradients_are_those_of_nn_lstm(layers: int) -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 5, layers, batch_first=True).double()
    sentences = torch.randn(6, 7, 4, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([7, 5, 5, 3, 1, 1])
    packed = pack_padded_sequence(sentences, lengths, batch_first=True)
    expected = lstm(packed)[0].data
    found = run_packed(lstm, packed.data, packed.batch_sizes.tolist())
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    learnt = [sentences, *lstm.parameters()]
    ours, theirs = (
        torch.autograd.grad((out * weights).sum(), learnt, retain_graph=True) for out in (found, expected)
    )
    torch.testing.assert_close(ours, theirs)


def test_cells_are_in_float32_under_autocast() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        found = run_packed(lstm, torch.randn(5, 4), [3, 2])
    assert found.dtype == torch.float32
