"""Training throughput of the text path's blocks, forward and backward, against the same blocks as `nn.Conv1d` in fp32.

The aim, in bf16: at least 3.5 times with AMX and 2.5 times without. Batch 128, 32 words. A turn is several steps one
after the other, as in training: the first after another's turn ask the system for memory anew. A processor without
bf16 products is measured in fp32 only: it would compute them number by number, 30 times slower, and training would
not choose them there either.
"""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from benchmarks.measuring import publish, repeats, sized, speeds, taking_turns
from limner.inference.precision import pick_precision
from limner.models.text_cnn import TextCNN, TextCNNSettings
from tests.reference.text_path import plain_blocks

BATCH = 128
STEPS = sized(6, 1)
REFERENCE = "nn.Conv1d, fp32"


def main() -> None:
    torch.manual_seed(0)
    encoder = TextCNN(TextCNNSettings(), vocabulary_size=1)
    plain = plain_blocks(encoder)
    by_words = torch.randn(BATCH, encoder.settings.words, encoder.settings.word_dim)
    by_channels = by_words.transpose(1, 2).contiguous()
    with torch.no_grad():
        apart = (plain(by_channels).mean(2) - encoder.blocks(by_words).mean(1)).abs().max().item()
    contestants = {
        REFERENCE: _steps(plain, by_channels, 2, bf16=False),
        "limner, fp32": _steps(encoder.blocks, by_words, 1, bf16=False),
    }
    if pick_precision("auto", torch.device("cpu")) == "bf16":
        contestants["limner, bf16"] = _steps(encoder.blocks, by_words, 1, bf16=True)
    turns = repeats(5)
    measured = speeds(taking_turns(contestants, turns), STEPS * BATCH, reference=REFERENCE)
    publish(
        "text_path",
        unit="sentences",
        groups={f"forward and backward, batch {BATCH}, {encoder.settings.words} words": measured},
        about={
            "reference": REFERENCE,
            "repeats": turns,
            "steps": STEPS,
            "largest_difference_fp32": apart,
        },
    )


def _steps(blocks: nn.Module, inputs: Tensor, words_axis: int, *, bf16: bool) -> Callable[[], None]:
    leaf = inputs.clone().requires_grad_()

    def run() -> None:
        for _ in range(STEPS):
            blocks.zero_grad()
            leaf.grad = None
            with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
                pooled = blocks(leaf).mean(words_axis)
            pooled.float().square().sum().backward()

    return run


if __name__ == "__main__":
    main()
