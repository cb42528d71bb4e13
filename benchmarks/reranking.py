"""Re-ranking twenty candidates of a query in one batched forward, against a forward a pair.

The claim (identity-aware, docs/identity-aware.md): a query's candidates are matched together, its sentence is encoded
once, and nothing loops over pairs or words but the steps of the LSTM. The network has the paper's widths: maps of
7 × 7 × 512 as VGG-16's pool5 has them, 512 for words and decoder, M = 5.
"""

from functools import partial

import numpy as np
import torch

from benchmarks.measuring import publish, speeds, taking_turns
from limner.data.tokenizers import WordTokenizer
from limner.data.transforms import ImageSettings
from limner.inference.rerank_co_attention import CoAttentionReranker
from limner.models.co_attention import CoAttentionSettings
from limner.models.identity_aware import IdentityAware, IdentityAwareSettings
from limner.models.image import BackboneSettings

CANDIDATES, WORDS, VOCABULARY, TURNS = 20, 24, 9_000, 10
PLAIN = "a forward a pair"


def main() -> None:
    torch.manual_seed(0)
    # a narrow backbone, since none runs here; the co-attention above it has the paper's widths
    settings = IdentityAwareSettings(backbone=BackboneSettings(name="vgg-16", width=0.125))
    model = IdentityAware(settings, VOCABULARY)
    cross_encoder = model.add_cross_encoder(CoAttentionSettings())
    cross_encoder.co_attention = type(cross_encoder.co_attention)(
        CoAttentionSettings(), 512, model.text.channels
    )
    words = WordTokenizer(tuple(f"word{number}" for number in range(VOCABULARY)))
    reranker = CoAttentionReranker(model, words, ImageSettings(), "fp32")
    rng = np.random.default_rng(0)
    maps = rng.random((CANDIDATES, 7, 7, 512)).astype(np.float16)
    numbers = np.zeros((1, 50), np.int64)
    numbers[0, :WORDS] = rng.integers(1, VOCABULARY, WORDS)
    together, apart = _together(reranker, maps, numbers), _apart(reranker, maps, numbers)
    np.testing.assert_allclose(together, apart, rtol=1e-3, atol=1e-4)
    seconds = taking_turns(
        {
            PLAIN: partial(_apart, reranker, maps, numbers),
            "limner": partial(_together, reranker, maps, numbers),
        },
        TURNS,
    )
    publish(
        "reranking",
        unit="pairs",
        groups={
            f"{CANDIDATES} pictures of 7 × 7 × 512, a sentence of {WORDS} words": speeds(
                seconds, CANDIDATES, reference=PLAIN
            )
        },
        about={"reference": PLAIN, "seconds": seconds, "repeats": TURNS},
    )


def _together(reranker: CoAttentionReranker, maps: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return reranker.logits(maps, numbers, np.arange(len(maps)), np.zeros(len(maps), np.int64))


def _apart(reranker: CoAttentionReranker, maps: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    pairs = [
        reranker.logits(maps, numbers, np.array([place]), np.zeros(1, np.int64)) for place in range(len(maps))
    ]
    return np.concatenate(pairs)


if __name__ == "__main__":
    main()
