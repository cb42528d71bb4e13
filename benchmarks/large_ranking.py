"""Evaluating 100,000 pictures × 500,000 sentences × 512, both directions: R@K, ranks and mAP in bounded memory.

The claim: at most 2 GB above the embeddings. The queries × gallery matrix would take 200 GB. Time is reported beside
that of the bare matrix products in float32, which is extrapolated from a share of the blocks. `--pictures N` takes
another number, with five sentences each.
"""

import argparse
import time

import numpy as np
import torch

from benchmarks.measuring import memory_above, publish, sized, speeds
from limner.evaluation.both_directions import evaluate
from limner.evaluation.ranking import first_match_ranks

SENTENCES, DIM, SAMPLE = 5, 512, 20
BLOCK = 1 << 24
REFERENCE = "matrix products alone (extrapolated)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=sized(100_000, 1_000))
    count: int = parser.parse_args().pictures
    rng = np.random.default_rng(0)
    pictures = _unit(rng.standard_normal((count, DIM), dtype=np.float32))
    groups = np.arange(count)
    said = groups.repeat(SENTENCES)
    sentences = np.empty((len(said), DIM), np.float32)
    for start in range(0, len(said), 50_000):
        noise = rng.standard_normal((min(50_000, len(said) - start), DIM), dtype=np.float32)
        sentences[start : start + len(noise)] = _unit(
            pictures[said[start : start + len(noise)]] + 0.2 * noise
        )
    values: dict[str, object] = {}

    def ours() -> None:
        report = evaluate(pictures, sentences, groups, said, protocol="benchmark", split="none")
        values.update(image_to_text=report.image_to_text, text_to_image=report.text_to_image)

    began = time.perf_counter()
    above = memory_above(ours)
    seconds = time.perf_counter() - began
    _check_sample(rng, pictures, sentences, groups, said)
    products = sum(
        _products(torch.from_numpy(queries), torch.from_numpy(gallery))
        for queries, gallery in ((pictures, sentences), (sentences, pictures))
    )
    print(f"{seconds:,.0f} s, {above / 1e6:,.0f} MB above the embeddings")
    publish(
        "large_ranking",
        unit="queries",
        groups={
            f"{count:,} pictures × {len(said):,} sentences × {DIM}, both directions": speeds(
                {REFERENCE: products, "limner, R@K, ranks and mAP": seconds},
                count + len(said),
                reference=REFERENCE,
            )
        },
        about={
            "reference": REFERENCE,
            "seconds": seconds,
            "peak_bytes_above_embeddings": above,
            "values": values,
        },
    )


def _check_sample(
    rng: np.random.Generator,
    pictures: np.ndarray,
    sentences: np.ndarray,
    groups: np.ndarray,
    said: np.ndarray,
) -> None:
    for queries, gallery, own, others in (
        (pictures, sentences, groups, said),
        (sentences, pictures, said, groups),
    ):
        chosen = rng.choice(len(queries), SAMPLE, replace=False)
        expected = []
        for query in chosen:
            scores = gallery @ queries[query]
            order = np.argsort(-scores, kind="stable")
            expected.append(int((others[order] == own[query]).argmax()) + 1)
        if expected != first_match_ranks(queries[chosen], gallery, own[chosen], others).tolist():
            raise SystemExit("the ranks of the sample differ")


def _products(queries: torch.Tensor, gallery: torch.Tensor) -> float:
    """Seconds that all products would take, from a twentieth of the blocks."""
    blocks = torch.split(queries, max(1, BLOCK // len(gallery)))
    some = blocks[: max(1, len(blocks) // 20)]
    began = time.perf_counter()
    for rows in some:
        rows @ gallery.T
    return (time.perf_counter() - began) * len(queries) / sum(map(len, some))


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


if __name__ == "__main__":
    main()
