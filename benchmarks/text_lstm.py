"""The recurrent text path against `nn.LSTM` on the same sentences: padded to the longest, and as packed sequences.

The claim (`limner.models.text_lstm`): on a CPU an LSTM over the words that are there learns faster than either. Two
layers of 512, word vectors of 300, 384 sentences of 4 to 24 words, 11 on average, forward and backward, in bf16 where
the processor has it.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.measuring import publish, repeats, speeds, taking_turns
from limner.inference.precision import autocast, pick_precision
from limner.models.text_lstm import TextLSTM, TextLSTMSettings

SENTENCES, LONGEST, VOCABULARY = 384, 24, 8_000
PADDED, PACKED = "nn.LSTM, padded", "nn.LSTM, packed"


def main() -> None:
    turns = repeats(5)
    torch.manual_seed(0)
    path = TextLSTM(TextLSTMSettings(words=LONGEST, word_dim=300, layers=2, feature="mean"), VOCABULARY)
    rng = np.random.default_rng(0)
    counts = np.clip(rng.poisson(7, SENTENCES) + 4, None, LONGEST)
    counts[0] = LONGEST
    numbers = torch.from_numpy(rng.integers(1, VOCABULARY, (SENTENCES, LONGEST)))
    numbers[torch.arange(LONGEST) >= torch.from_numpy(counts)[:, None]] = 0
    ends = torch.from_numpy(counts)
    contestants = {
        PADDED: partial(padded, path, numbers, ends),
        PACKED: partial(packed, path, numbers, ends),
        "limner": partial(path, numbers),
    }
    with torch.no_grad():
        reference = contestants[PADDED]()
        for mean in contestants.values():
            torch.testing.assert_close(mean(), reference, rtol=1e-4, atol=1e-5)
    precision = pick_precision("auto", torch.device("cpu"))

    def learn(mean: partial[Tensor]) -> None:
        for parameter in path.parameters():
            parameter.grad = None
        with autocast(precision, torch.device("cpu")):
            loss = mean().float().sum()
        torch.autograd.backward(loss)

    seconds = taking_turns({name: partial(learn, mean) for name, mean in contestants.items()}, turns)
    publish(
        "text_lstm",
        unit="sentences",
        groups={
            f"{counts.mean():.1f} words on average, {precision}": speeds(seconds, SENTENCES, reference=PADDED)
        },
        about={"reference": PADDED, "repeats": turns},
    )


def padded(path: TextLSTM, numbers: Tensor, ends: Tensor) -> Tensor:
    """The mean over the words of one run over all positions."""
    states, _ = path.lstm(path.table(numbers))
    return _mean(states, ends)


def packed(path: TextLSTM, numbers: Tensor, ends: Tensor) -> Tensor:
    """The same of a packed sequence."""
    rows = pack_padded_sequence(path.table(numbers), ends, batch_first=True, enforce_sorted=False)
    return _mean(pad_packed_sequence(path.lstm(rows)[0], batch_first=True)[0], ends)


def _mean(states: Tensor, ends: Tensor) -> Tensor:
    present = torch.arange(states.shape[1]) < ends[:, None]
    return torch.where(present[:, :, None], states, 0).sum(dim=1) / ends[:, None]


if __name__ == "__main__":
    main()
