"""Evaluating MSCOCO's 5K protocol, both directions, against a loop that sorts every row.

5,000 pictures, 25,000 sentences, 1,024 columns. The loop runs on a sample of the queries and its time is extrapolated;
the ranks of the sample must agree. Beside it stand the bare matrix products in float32, in blocks, and the peak of the
memory above the embeddings.
"""

import time

import numpy as np
import torch

from benchmarks.measuring import memory_above, publish, repeats, sized, speeds, taking_turns
from limner.evaluation.both_directions import evaluate
from limner.evaluation.names import parse_measures
from limner.evaluation.ranking import first_match_ranks

PICTURES, SENTENCES, DIM, SAMPLE = sized((5_000, 25_000, 1_024, 100), (200, 1_000, 1_024, 10))
BLOCK = 1 << 24
REFERENCE = "numpy, argsort of each row"


def main() -> None:
    rng = np.random.default_rng(0)
    pictures = _unit(rng.standard_normal((PICTURES, DIM), dtype=np.float32))
    image_groups = np.arange(PICTURES)
    sentence_groups = np.repeat(image_groups, SENTENCES // PICTURES)
    noise = rng.standard_normal((SENTENCES, DIM), dtype=np.float32)
    sentences = _unit(pictures[sentence_groups] + 0.25 * noise)

    def ours(names: str) -> None:
        evaluate(
            *(pictures, sentences, image_groups, sentence_groups),
            protocol="benchmark",
            split="none",
            measures=parse_measures(names),
        )

    above = memory_above(lambda: ours("all"))
    directions = (
        (pictures, sentences, image_groups, sentence_groups),
        (sentences, pictures, sentence_groups, image_groups),
    )
    reference = 0.0
    for queries, gallery, own, others in directions:
        chosen = rng.choice(len(queries), SAMPLE, replace=False)
        began = time.perf_counter()
        ranks = [_rank_by_sorting(queries[query], gallery, others == own[query]) for query in chosen]
        reference += (time.perf_counter() - began) / SAMPLE * len(queries)
        if ranks != first_match_ranks(queries[chosen], gallery, own[chosen], others).tolist():
            raise SystemExit("the ranks of the sample differ")
    turns = repeats(1)

    def products() -> None:
        for queries, gallery, _, _ in directions:
            others = torch.from_numpy(gallery).T
            for rows in torch.split(torch.from_numpy(queries), BLOCK // len(gallery)):
                rows @ others

    def products_by_numpy() -> None:
        for queries, gallery, _, _ in directions:
            step = BLOCK // len(gallery)
            room = np.empty((step, len(gallery)), np.float32)
            for start in range(0, len(queries), step):
                rows = queries[start : start + step]
                np.matmul(rows, gallery.T, out=room[: len(rows)])

    contestants = {
        "limner, all measures": lambda: ours("all"),
        "limner, R@K, ranks and mAP": lambda: ours("R@1 R@5 R@10 MedR MeanR mAP"),
        "matrix products alone, by torch": products,
        "matrix products alone, by numpy into one block": products_by_numpy,
    }
    seconds = {REFERENCE: reference, **taking_turns(contestants, turns)}
    publish(
        "ranking",
        unit="queries",
        groups={
            f"{PICTURES:,} pictures × {SENTENCES:,} sentences × {DIM:,}, both directions": speeds(
                seconds, PICTURES + SENTENCES, reference=REFERENCE
            )
        },
        about={
            "reference": REFERENCE,
            "sampled_queries_a_direction": SAMPLE,
            "repeats": turns,
            "seconds": seconds,
            "peak_bytes_above_embeddings": above,
        },
    )


def _rank_by_sorting(query: np.ndarray, gallery: np.ndarray, true: np.ndarray) -> int:
    order = np.argsort(-(gallery @ query), kind="stable")
    return int(true[order].argmax()) + 1


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


if __name__ == "__main__":
    main()
