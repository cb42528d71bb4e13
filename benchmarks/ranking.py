"""Evaluating MSCOCO's 5K protocol, both directions, beside one matrix product and beside a loop that sorts every row.

    python -m benchmarks.ranking [--repeats 5]

5,000 pictures, 25,000 sentences, 1,024 columns. The claim: all measures of both directions, with their intervals, take
at most 1.1 times one product of all pairs in float32. The product is numpy's, into one block as large as limner's, and
stands beside the plain `pictures @ sentences.T`, which asks the system for 500 MB. The loop sorts a sample of the
queries, in turns with limner, and its time is extrapolated; the ranks of the sample must agree. Embeddings and the
block are in memory before anything is timed, and the peak of the memory is that above them.
"""

import numpy as np

from benchmarks.measuring import memory_above, paired, publish_pairs, repeats, sized
from limner.evaluation.both_directions import evaluate
from limner.evaluation.names import parse_measures
from limner.evaluation.ranking import first_match_ranks
from limner.evaluation.ties import tolerance_of_unit_rows

PICTURES, SENTENCES, DIM, SHARE = sized((5_000, 25_000, 1_024, 250), (200, 1_000, 1_024, 20))
"""One query of `SHARE` is in the sample."""
BLOCK = 1 << 24
REFERENCE = "one product, into a block"
SORTING = "argsort of each row by numpy (extrapolated)"


def main() -> None:
    turns = repeats(5)
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
    samples = [
        (queries[chosen], gallery, own[chosen], others)
        for queries, gallery, own, others in (
            (pictures, sentences, image_groups, sentence_groups),
            (sentences, pictures, sentence_groups, image_groups),
        )
        for chosen in (rng.choice(len(queries), len(queries) // SHARE, replace=False),)
    ]

    def sorting() -> list[list[int]]:
        return [
            [
                _rank_by_sorting(query, gallery, others == group)
                for query, group in zip(rows, own, strict=True)
            ]
            for rows, gallery, own, others in samples
        ]

    if sorting() != [first_match_ranks(*sample).tolist() for sample in samples]:
        raise SystemExit("the ranks of the sample differ")
    step = BLOCK // PICTURES
    room = np.zeros((step, PICTURES), np.float32)

    def product() -> None:
        for start in range(0, SENTENCES, step):
            rows = sentences[start : start + step]
            np.matmul(rows, pictures.T, out=room[: len(rows)])

    label = f"{PICTURES:,} pictures × {SENTENCES:,} sentences × {DIM:,}, both directions"
    beside_product = paired(
        {
            REFERENCE: product,
            "one product, as a whole": lambda: pictures @ sentences.T,
            "limner, all measures": lambda: ours("all"),
            "limner, R@K, ranks and mAP": lambda: ours("R@1 R@5 R@10 MedR MeanR mAP"),
        },
        turns,
    )
    beside_sorting = paired({SORTING: sorting, "limner, all measures": lambda: ours("all")}, turns)
    beside_sorting[SORTING]["ms"] *= SHARE
    beside_sorting["limner, all measures"]["ratio"] /= SHARE
    publish_pairs(
        "ranking",
        groups={f"{label}, beside one product": beside_product, f"{label}, beside sorting": beside_sorting},
        about={
            "reference": REFERENCE,
            "sampled_queries": PICTURES // SHARE + SENTENCES // SHARE,
            "repeats": turns,
            "peak_bytes_above_embeddings": above,
        },
    )
    print(f"{above / 1e6:,.0f} MB above the embeddings")


def _rank_by_sorting(query: np.ndarray, gallery: np.ndarray, true: np.ndarray) -> int:
    scores = gallery @ query
    # scores that differ by less count as equal, and ties against the model
    scores[true] -= tolerance_of_unit_rows(gallery.shape[1], float(np.finfo(gallery.dtype).eps))
    order = np.argsort(-scores, kind="stable")
    return int(true[order].argmax()) + 1


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


if __name__ == "__main__":
    main()
