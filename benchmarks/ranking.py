"""Evaluating MSCOCO's 5K protocol, both directions, against a loop that sorts every row.

5,000 pictures, 25,000 sentences, 1,024 columns. The loop runs on a sample of the queries and its time is extrapolated;
the ranks of the sample must agree.
"""

import time

import numpy as np

from benchmarks.measuring import publish, repeats, speeds, taking_turns
from limner.evaluation.protocol import evaluate
from limner.evaluation.ranking import first_match_ranks

PICTURES, SENTENCES, DIM, SAMPLE = 5_000, 25_000, 1_024, 100
REFERENCE = "numpy, argsort of each row"


def main() -> None:
    rng = np.random.default_rng(0)
    pictures = _unit(rng.standard_normal((PICTURES, DIM), dtype=np.float32))
    image_groups = np.arange(PICTURES)
    sentence_groups = np.repeat(image_groups, SENTENCES // PICTURES)
    noise = rng.standard_normal((SENTENCES, DIM), dtype=np.float32)
    sentences = _unit(pictures[sentence_groups] + 0.25 * noise)
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

    def ours() -> None:
        evaluate(pictures, sentences, image_groups, sentence_groups, protocol="benchmark", split="none")

    seconds = {REFERENCE: reference, **taking_turns({"limner": ours}, turns)}
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
        },
    )


def _rank_by_sorting(query: np.ndarray, gallery: np.ndarray, true: np.ndarray) -> int:
    order = np.argsort(-(gallery @ query), kind="stable")
    return int(true[order].argmax()) + 1


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


if __name__ == "__main__":
    main()
