"""What marks on the first hits do for the pictures that are left: R@1 and mAP of the true ones, with and without.

    python -m benchmarks.marks DATA RUN [RUN …] [--split val] [--marks 5] [--choose]

DATA is `FORMAT:PATH`, with several pictures a person, as of `limner data people`. Each sentence of the split is a query
and the split's pictures are the gallery. Somebody who knows the person marks the first hits of each, right or wrong.
These are taken out of both rankings, the one of the query as it was and the one of `limner.search.feedback.moved`, and
queries of which no true picture is left do not count. Differences are paired, with intervals over people.

Half of the people, those at even places among the names in order, are for choosing: `--choose` prints the best settings
of each of three methods there. The figures are those of the other half.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import limner
from limner.evaluation.intervals import Difference, difference
from limner.search.feedback import moved

Moving = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From a query, right pictures and wrong ones to the query that ranks the rest."""


@dataclass(frozen=True)
class Embedded:
    """A split by one run: unit embeddings, the person of each picture, and the picture that each sentence describes."""

    images: np.ndarray
    sentences: np.ndarray
    persons: np.ndarray
    described: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--split", default="val", help="the test split is for a last look")
    parser.add_argument(
        "--marks", type=int, nargs="+", default=[5], help="how many of the first hits are marked"
    )
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    splits = [embedded(options.data, options.split, run) for run in options.runs]
    if options.choose:
        choose(splits, options.marks[0])
    for run, split in zip(options.runs, splits, strict=True):
        for count in options.marks:
            values = ranked(split, moved, count, half=1)
            told = " · ".join(
                f"{name} {_told(difference(100 * before, 100 * after, values.persons))}"
                for name, before, after in (
                    ("R@1", values.first[0], values.first[1]),
                    ("mAP", values.precision[0], values.precision[1]),
                )
            )
            alone = ~values.with_right
            none = 100 * values.first[:, alone].mean(axis=1) if alone.any() else (0.0, 0.0)
            print(
                f"{run}, {count} marks, {len(values.persons)} queries: {told} · "
                f"no mark right: {alone.mean():.0%} of queries, R@1 {none[0]:.1f} → {none[1]:.1f}"
            )


def embedded(data: str, split: str, run: str) -> Embedded:
    """Embed a split's pictures and sentences by a run."""
    records = limner.open_dataset(data).split(split).records
    model = limner.load(run)
    names = sorted({str(record.group) for record in records})
    parts = [
        model.encode_images([one.image for one in records[at : at + 64]]) for at in range(0, len(records), 64)
    ]
    return Embedded(
        np.concatenate(parts),
        model.encode_queries([text for record in records for text in record.sentences]),
        np.array([names.index(str(record.group)) for record in records]),
        np.repeat(np.arange(len(records)), [len(record.sentences) for record in records]),
    )


@dataclass(frozen=True)
class Ranked:
    """Values of each query before and after the marks, its person, and whether any mark was right."""

    first: np.ndarray
    precision: np.ndarray
    persons: np.ndarray
    with_right: np.ndarray


def ranked(split: Embedded, moving: Moving, marks: int, *, half: int) -> Ranked:
    """Rank what is left behind the marks, for the queries of one half of the people."""
    values: list[tuple[float, ...]] = []
    for query, described in zip(split.sentences, split.described, strict=True):
        person = split.persons[described]
        order = np.argsort(-(split.images @ query), kind="stable")
        marked, rest = order[:marks], order[marks:]
        true = split.persons[rest] == person
        if person % 2 != half or not true.any():
            continue
        right = split.persons[marked] == person
        target = moving(query, split.images[marked[right]], split.images[marked[~right]])
        again = true[np.argsort(-(split.images[rest] @ target), kind="stable")]
        values.append((true[0], again[0], _precision(true), _precision(again), person, right.any()))
    table = np.array(values, float).T
    return Ranked(table[:2], table[2:4], table[4].astype(int), table[5].astype(bool))


def choose(splits: list[Embedded], marks: int) -> None:
    """Print the best settings of each method on the half of the people that is for choosing."""
    for method, settings in METHODS.items():
        found = []
        for one in settings:
            values = [
                ranked(split, lambda *given, one=one: one.move(*given), marks, half=0) for split in splits
            ]
            first = 100 * np.concatenate([value.first for value in values], axis=1).mean(axis=1)
            precision = 100 * np.concatenate([value.precision for value in values], axis=1).mean(axis=1)
            found.append((first[1], precision[1], one, first[0], precision[0]))
        best = max(found, key=lambda row: row[:2])
        print(
            f"{method}, {len(found)} settings: {best[2]}: R@1 {best[3]:.1f} → {best[0]:.1f}, "
            f"mAP {best[4]:.1f} → {best[1]:.1f}"
        )


@dataclass(frozen=True)
class Means:
    """Rocchio's rule: the query, a share of the mean of right pictures, less one of the mean of wrong ones."""

    right: float
    wrong: float

    def move(self, query: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
        plus = self.right * right.mean(axis=0) if len(right) else 0
        minus = self.wrong * wrong.mean(axis=0) if len(wrong) else 0
        return np.asarray(query + plus - minus)


@dataclass(frozen=True)
class Sums:
    """The same with sums in place of means."""

    right: float
    wrong: float

    def move(self, query: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
        return np.asarray(query + self.right * right.sum(axis=0) - self.wrong * wrong.sum(axis=0))


@dataclass(frozen=True)
class Logistic:
    """A logistic regression of the marks with an L2 penalty on the distance from the scaled query, by Newton."""

    scale: float
    penalty: float

    def move(self, query: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
        # a column of ones for the threshold, which is hardly held
        rows = np.vstack([right, wrong]).astype(np.float64)
        rows = np.hstack([rows, np.ones((len(rows), 1))])
        signs = np.repeat([1.0, -1.0], [len(right), len(wrong)])
        start = np.append(self.scale * query, 0.0)
        penalties = np.append(np.full(len(query), self.penalty), 1e-3)
        weights = start.copy()
        for _ in range(50):
            unsure = 1 / (1 + np.exp(np.clip(signs * (rows @ weights), -500, 500)))
            slope = penalties * (weights - start) - rows.T @ (signs * unsure)
            # of so few rows the inverse is that of a small matrix (Woodbury)
            small = np.diag(1 / (unsure * (1 - unsure) + 1e-12)) + rows @ (rows / penalties).T
            step = slope / penalties - (rows / penalties).T @ np.linalg.solve(
                small, rows @ (slope / penalties)
            )
            weights -= step
            if np.abs(step).max() < 1e-9:
                break
        return weights[:-1]


METHODS: dict[str, list[Means | Sums | Logistic]] = {
    "Rocchio's means": [
        Means(right, wrong) for right in (0.25, 0.5, 1, 2, 4) for wrong in (0, 0.15, 0.25, 0.5, 0.75, 1)
    ],
    "Rocchio's sums": [Sums(right, wrong) for right in (0.25, 0.5, 1) for wrong in (0.05, 0.1, 0.25, 0.5)],
    "logistic regression": [
        Logistic(scale, penalty) for scale in (1, 2, 5, 10, 20) for penalty in (0.03, 0.1, 0.3, 1, 3)
    ],
}


def _precision(true: np.ndarray) -> float:
    ranks = np.flatnonzero(true) + 1
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks))


def _told(found: Difference) -> str:
    low, high = found.interval or (np.nan, np.nan)
    return (
        f"{found.first:.1f} → {found.second:.1f} ({found.difference:+.1f}, 95 % {low:+.1f} to {high:+.1f}, "
        f"{found.clusters} people)"
    )


if __name__ == "__main__":
    main()
