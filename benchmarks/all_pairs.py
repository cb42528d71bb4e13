"""HGAN's words and phrases of all pairs of a gallery, against a forward a pair.

The claim (docs/hgan.md): the first layers of both perceptrons are computed once a region and once a word, and pairs are
scored in blocks, so that 1,000 pictures × 2,000 sentences score at least 20 times as fast as one pair after the
other does, in memory that the block bounds. Sizes are the paper's: 15 regions, 512 numbers a feature and in each
hidden layer; sentences of 12 to 28 words with a phrase every four. The reference has words and regions given; it
computes Eq. 2 to 8 of a pair at once, as Algorithm 1 has them.

python -m benchmarks.all_pairs [--pictures N] [--sentences M]
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measuring import memory_above, publish, sized
from limner.data.tokenizers import WordTokenizer
from limner.data.transforms import ImageSettings
from limner.inference.rerank_levels import LevelsReranker
from limner.models.hgan import HGAN, HGANSettings
from limner.models.image import BackboneSettings
from limner.models.levels import Level
from limner.models.local_matching import LocalMatching, attention_weights, select_top_k
from limner.models.text_hgan import HierarchicalTextSettings
from limner.types import TokenBatch

VOCABULARY, SAMPLE = 5_000, 300
PLAIN = "a forward a pair"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=sized(1_000, 50))
    parser.add_argument("--sentences", type=int, default=sized(2_000, 100))
    given = parser.parse_args()
    torch.manual_seed(0)
    model = HGAN(
        HGANSettings(
            backbone=BackboneSettings(name="resnet-18", width=0.125, last_stride=1),
            text=HierarchicalTextSettings(bert=None),
        ),
        VOCABULARY,
    ).eval()
    words = WordTokenizer(tuple(f"word{number}" for number in range(VOCABULARY)))
    reranker = LevelsReranker(model, words, ImageSettings(), "fp32")
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((given.pictures, *reranker.region_shape)).astype(np.float16)
    read = _sentences(given.sentences, rng)
    few = rng.integers(given.pictures, size=SAMPLE), rng.integers(given.sentences, size=SAMPLE)
    apart, seconds_a_pair = _apart(reranker, maps, read, few)
    found: list[np.ndarray] = []
    began = time.perf_counter()
    memory = memory_above(lambda: found.append(reranker.similarities(maps, read)))
    seconds = time.perf_counter() - began
    (whole,) = found
    np.testing.assert_allclose(whole[few], apart, rtol=1e-3, atol=1e-4)
    pairs = given.pictures * given.sentences
    rates = {PLAIN: 1 / seconds_a_pair, "limner": pairs / seconds}
    publish(
        "all_pairs",
        unit="pairs",
        groups={
            f"{given.pictures:,} pictures × {given.sentences:,} sentences": {
                name: {"per_second": rate, "ratio": rate / rates[PLAIN]} for name, rate in rates.items()
            }
        },
        about={
            "reference": f"{PLAIN}, {SAMPLE} of them",
            "seconds": seconds,
            "memory_mb": memory / 1e6,
            "scores_mb": whole.nbytes / 1e6,
        },
    )


def _sentences(count: int, rng: np.random.Generator) -> TokenBatch:
    """Random words, a phrase every four of them."""
    lengths = rng.integers(12, 29, size=(count, 1))
    present = np.arange(64) < lengths
    token_ids = np.where(present, rng.integers(1, VOCABULARY, size=(count, 64)), 0)
    phrases = np.where(present & (np.arange(64) % 4 > 0), np.arange(64) // 4 + 1, 0)
    return TokenBatch(token_ids, np.zeros(count, np.bool_), phrases)


@torch.inference_mode()
def _apart(
    reranker: LevelsReranker, maps: np.ndarray, read: TokenBatch, pairs: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, float]:
    """Similarities of single pairs, both levels added, and seconds a pair."""
    model = reranker.model
    token_ids, phrases = (torch.from_numpy(part) for part in (read.token_ids, read.phrases))
    found, seconds = [], 0.0
    for image, sentence in zip(*pairs, strict=True):
        parts = model.sentence_parts(token_ids[sentence][None], phrases[sentence][None])
        of_level: dict[Level, Tensor] = {
            "word": parts.words[0][parts.words_present[0]],
            "phrase": parts.phrases[0][parts.phrases_present[0]],
        }
        regions = torch.from_numpy(maps[image]).float().flatten(0, 1).chunk(2, dim=1)
        began = time.perf_counter()
        levels = [
            _of_pair(model.local[level], own, of_level[level])  # type: ignore[arg-type]
            for level, own in zip(model.levels, regions, strict=True)
        ]
        found.append(sum(levels))
        seconds += time.perf_counter() - began
    return np.array(found), seconds / len(found)


def _of_pair(level: LocalMatching, regions: Tensor, items: Tensor) -> float:
    """Algorithm 1 without noise and Eq. 6 to 8, of one pair."""
    joined = torch.cat(
        [regions[:, None].expand(-1, len(items), -1), items[None].expand(len(regions), -1, -1)], dim=2
    )
    first = torch.cat([level.score_of_region.weight, level.score_of_item.weight], dim=1)
    gamma = level.score(F.relu(F.linear(joined, first, level.score_of_region.bias))).squeeze(2)

    def one_way(scores: Tensor, own: Tensor, others: Tensor, k: int) -> Tensor:
        chosen = select_top_k(scores, torch.ones_like(scores, dtype=torch.bool), k)
        fused = own + attention_weights(scores, chosen) @ others
        return torch.sigmoid(level.relevance(F.relu(level.relevance_of_sum(fused)))).mean()

    settings = level.settings
    sides = (gamma, regions, items, settings.k_of_region), (gamma.T, items, regions, settings.k_of_item)
    found = [one_way(scores, own, others, k) for scores, own, others, k in sides if k is not None]
    return float(torch.stack(found).mean())


if __name__ == "__main__":
    main()
