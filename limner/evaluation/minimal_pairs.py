"""Accuracy on minimal pairs: how often what is true scores above what is false.

A case is a ranking of two, so its accuracy is R@1, chance is 50 %, and **a tie counts against the model** as everywhere
(`limner.evaluation.ties`): a model that scores everything alike has 0 %. The figure with ties at random is reported
beside it; that of a bag of words is 50 % where two colours are exchanged. Two dot products tie within the tolerance of
their rounding, of the picture with the two sentences, or of the sentence with two pictures. Scores that are given, as a
reranker's, are compared as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import Field
from rich.console import Group
from rich.table import Table
from rich.text import Text

from limner.data.minimal_pairs import PairSet
from limner.documented import Result
from limner.errors import DataError
from limner.evaluation.array_files import read_arrays
from limner.evaluation.arrays import Results
from limner.evaluation.intervals import Interval, intervals
from limner.evaluation.measures import RecallAt
from limner.evaluation.names import parse_measures
from limner.evaluation.per_query import QueryValues
from limner.evaluation.protocols import find_protocol
from limner.evaluation.report import Report, render, said_of_precision
from limner.evaluation.reranking import PairReranking
from limner.evaluation.ties import row_norms, tolerance_of_unit_rows

CHANCE = 50.0
"""Percent of cases that a guess has right, in every kind."""

_RETRIEVAL = "R@1 R@5 R@10"


class PairAccuracy(Result):
    """The cases of one kind, or of one detail of a kind: how often what is true scores above what is false."""

    cases: int
    """Cases."""
    clusters: int
    """People, or pictures, that they are of."""
    accuracy: float
    """Percent of cases that are right; a tie counts as wrong."""
    interval: Interval | None
    """95 % interval over clusters drawn with replacement; null below two."""
    ties: int
    """Cases in which both score alike."""
    ties_at_random: float
    """Percent with a tie as half right."""
    unread: int | None = None
    """Cases in which the model does not read a word that only one of the sentences has, and cannot see the lie; null
    for embeddings."""


class PairReport(Result):
    """The lies that a model believes: accuracies by kind, with R@K on the same pictures and sentences."""

    name: str
    """The set."""
    version: str
    """Its version."""
    digest: str
    """Its digest; figures are comparable where it is the same."""
    chance: float = CHANCE
    """Percent that a guess has right, in every kind."""
    controls: tuple[str, ...]
    """Kinds in which nothing can be known."""
    about: dict[str, str]
    """A line about each kind."""
    kinds: dict[str, PairAccuracy]
    """By kind of lie."""
    details: dict[str, dict[str, PairAccuracy]]
    """By kind and what the lie is about."""
    retrieval: Report | None
    """R@K of the true sentences and all pictures; null if no sentence has a group."""
    unknown_words: tuple[str, ...] | None = None
    """Words of the set that the model leaves out, but for those of noisy sentences; null for embeddings."""
    provenance: dict[str, Any] = Field(default={})
    """Fingerprint of the model, its training, versions."""


class BenchReport(Result):
    """The result of `limner bench`."""

    name: str
    """The set."""
    version: str
    """Its version."""
    digest: str
    """Digest of its names, sentences and cases."""
    pictures: int
    """Pictures in it."""
    sentences: int
    """Sentences in it, true and false."""
    cases: int
    """Cases in it."""
    folder: Path | None
    """The folder that it was written to, with `--write`."""
    measured: PairReport | None
    """The figures of the model; null without one."""


@dataclass(frozen=True, eq=False)
class PairScores:
    """Scores of what is true and of what is false in each case, and the difference up to which two are a tie."""

    true: Float[np.ndarray, " pairs"]
    false: Float[np.ndarray, " pairs"]
    tolerance: Float[np.ndarray, " pairs"]

    @property
    def right(self) -> Bool[np.ndarray, " pairs"]:
        """Cases in which what is true scores higher."""
        return np.asarray(self.true - self.false > self.tolerance)

    @property
    def tied(self) -> Bool[np.ndarray, " pairs"]:
        """Cases in which both score alike."""
        return np.asarray(np.abs(self.true - self.false) <= self.tolerance)


def pair_scores(
    pairs: PairSet, images: Float[np.ndarray, "images dim"], sentences: Float[np.ndarray, "sentences dim"]
) -> PairScores:
    """Dot products of the embeddings of a set, in its order."""
    places = _places(pairs)
    rows = images.astype(np.float64), sentences.astype(np.float64)
    true, false = (
        np.einsum("nd,nd->n", rows[0][image], rows[1][sentence])
        for image, sentence in (places[:2], places[2:])
    )
    norms = tuple(row_norms(torch.from_numpy(side)).numpy() for side in rows)
    # As of a ranking: the query's norm, and the median of its gallery's. Two pictures are ranked for a sentence.
    of_picture = norms[0][places[0]] * np.median(norms[1])
    of_sentence = norms[1][places[1]] * np.median(norms[0])
    scale = np.where(places[0] == places[2], of_picture, of_sentence)
    # Multiplied in float64, but the sentences of one bag of words differ by the roundings of their own type.
    kind = np.result_type(images, sentences, np.float32)
    return PairScores(true, false, tolerance_of_unit_rows(images.shape[1], float(np.finfo(kind).eps)) * scale)


def reranked_scores(pairs: PairSet, reranking: PairReranking) -> PairScores:
    """A reranker's scores, as if what is true and what is false were both among the first that it is given."""
    image, sentence, false_image, false_sentence = _places(pairs)
    true, false = reranking.scorer(image, sentence), reranking.scorer(false_image, false_sentence)
    return PairScores(true.astype(np.float64), false.astype(np.float64), np.zeros(len(pairs.pairs)))


def report_pairs(
    pairs: PairSet,
    scores: PairScores,
    results: Results | None = None,
    *,
    unread: Bool[np.ndarray, " pairs"] | None = None,
    unknown_words: Sequence[str] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> PairReport:
    """Accuracies of every kind and detail; `results` are embeddings of all pictures and sentences of the set."""
    kinds = np.array([pair.kind for pair in pairs.pairs])
    details = np.array([pair.detail for pair in pairs.pairs])
    clusters = np.array([pair.cluster for pair in pairs.pairs])

    def of(chosen: Bool[np.ndarray, " pairs"]) -> PairAccuracy:
        return _accuracy(scores, clusters, np.flatnonzero(chosen), unread)

    known = [kind for kind in pairs.kinds if (kinds == kind).any()]
    return PairReport(
        name=pairs.name,
        version=pairs.version,
        digest=pairs.digest,
        controls=tuple(kind for kind in pairs.controls if kind in known),
        about={kind: pairs.kinds[kind] for kind in known},
        kinds={kind: of(kinds == kind) for kind in known},
        details={
            kind: {
                str(detail): of((kinds == kind) & (details == detail))
                for detail in dict.fromkeys(details[kinds == kind])
            }
            for kind in known
        },
        retrieval=None if results is None else _retrieval(pairs, results),
        unknown_words=None if unknown_words is None else tuple(unknown_words),
        provenance=dict(provenance or {}),
    )


def bench_embeddings(
    pairs: PairSet,
    images: Float[np.ndarray, "images dim"],
    sentences: Float[np.ndarray, "sentences dim"],
    provenance: Mapping[str, Any] | None = None,
) -> PairReport:
    """Measure embeddings of a set, in its order; they are compared by dot product."""
    return report_pairs(
        pairs,
        pair_scores(pairs, images, sentences),
        results_of_pairs(pairs, images, sentences),
        provenance=provenance,
    )


def results_of_pairs(
    pairs: PairSet,
    images: Float[np.ndarray, "images dim"],
    sentences: Float[np.ndarray, "sentences dim"],
    reranking: PairReranking | None = None,
) -> Results:
    """Embeddings of a set as results; sentences that are no query have a group that no picture has."""
    # Groups may be any numbers, so one below all of them.
    none = min(pairs.image_groups) - 1
    return Results(
        np.asarray(pairs.image_groups),
        np.array([none if group is None else group for group in pairs.sentence_groups]),
        images,
        sentences,
        image_names=list(pairs.image_names),
        reranking=reranking,
    )


def read_embeddings(
    path: Path, pairs: PairSet
) -> tuple[Float[np.ndarray, "images dim"], Float[np.ndarray, "sentences dim"]]:
    """Somebody else's embeddings of a set from an `.npz` file.

    images (n, d), sentences (m, d)     in the order of cases.json
    image_names (n,), sentence_texts (m,)   its pictures and sentences, which show that the order is that
    digest ()                           its digest

    Raises `DataError` for arrays that are missing, of another set or order, or of wrong shapes.
    """
    names = ("images", "sentences", "image_names", "sentence_texts", "digest")
    arrays, there = read_arrays(path, names)
    for name in names:
        if name not in arrays:
            raise DataError(
                f"{path}: lacks the array '{name}'; docs/bench.md shows how the file is made; there: {there}"
            )
    digest = str(arrays["digest"])
    if digest != pairs.digest:
        raise DataError(
            f"{path}: is of another set (digest {digest[:16]}, expected {pairs.digest[:16]} of {pairs.name} "
            f"{pairs.version}); encode that which `limner bench --write` writes, or name its folder by --pairs"
        )
    for name, expected in (("image_names", pairs.image_names), ("sentence_texts", pairs.sentences)):
        found = [str(text) for text in np.ravel(arrays[name])]
        if len(found) != len(expected):
            raise DataError(f"{path}: '{name}' has {len(found)} entries, the set {len(expected)}")
        if wrong := [row for row, text in enumerate(found) if text != expected[row]]:
            raise DataError(
                f"{path}: '{name}' is in another order than cases.json: row {wrong[0]} is '{found[wrong[0]][:60]}', "
                f"expected '{expected[wrong[0]][:60]}'"
            )
    expect_fit_of_rows(str(path), pairs, arrays["images"], arrays["sentences"])
    return arrays["images"], arrays["sentences"]


def expect_fit_of_rows(where: str, pairs: PairSet, images: np.ndarray, sentences: np.ndarray) -> None:
    """Raise `DataError` unless there is a row of finite floats for each picture and each sentence of the set."""
    for name, rows, count in (
        ("images", images, len(pairs.image_names)),
        ("sentences", sentences, len(pairs.sentences)),
    ):
        if rows.ndim != 2 or rows.dtype.kind != "f" or rows.shape[0] != count or not rows.shape[1]:
            raise DataError(
                f"{where}: '{name}' must be floats of {count} rows, got {rows.dtype} of shape {rows.shape}"
            )
        if not np.isfinite(rows).all():
            raise DataError(f"{where}: '{name}' holds NaN or infinite values")
    if images.shape[1] != sentences.shape[1]:
        raise DataError(f"{where}: 'images' has {images.shape[1]} columns, 'sentences' {sentences.shape[1]}")


def write_embeddings(
    path: Path,
    pairs: PairSet,
    images: Float[np.ndarray, "images dim"],
    sentences: Float[np.ndarray, "sentences dim"],
) -> None:
    """Write the file that `read_embeddings` reads."""
    # An open file: given a path, numpy appends ".npz" and the user's file is not there.
    with path.open("wb") as file:
        np.savez(
            file,
            images=images,
            sentences=sentences,
            image_names=np.array(pairs.image_names),
            sentence_texts=np.array(pairs.sentences),
            digest=np.array(pairs.digest),
        )


def render_pairs(report: PairReport, *, details: bool = False) -> Group:
    """The report as tables: a row a kind, with `details` a row for each detail as well, then R@K."""
    titled = Table(title=Text(f"{report.name} · version {report.version}"))
    # Columns that would say nothing are left out: a terminal has 80 characters.
    ties = any(f"{of.accuracy:.1f}" != f"{of.ties_at_random:.1f}" for of in report.kinds.values())
    unread = any(of.unread for of in report.kinds.values())
    heads = ["kind of lie", "cases", "right", "± 95 %"]
    heads += [*(("ties", "at random") if ties else ()), *(("unread",) if unread else ())]
    for number, head in enumerate(heads):
        titled.add_column(Text(head), justify="right" if number else "left", no_wrap=True)
    for kind, of in report.kinds.items():
        if kind in report.controls:
            titled.add_section()
        name = f"{kind} (control)" if kind in report.controls else kind
        titled.add_row(*_row(name, of, ties=ties, unread=unread))
        if details:
            for detail, part in sorted(report.details[kind].items(), key=lambda item: -item[1].cases):
                titled.add_row(*_row(f"  {detail}", part, ties=ties, unread=unread))
    said = [
        f"% of cases in which what is true scores above what is false; chance {CHANCE:.1f}; ties count as wrong"
    ]
    if report.controls:
        said.append("control: nothing can be known, so 50 is right")
    if unread:
        said.append("unread: the model does not read a word that decides")
    titled.caption = Text("; ".join(said) + said_of_precision(report.provenance))
    titled.caption_justify = "left"
    return Group(titled, *(() if report.retrieval is None else (render(report.retrieval),)))


def _row(name: str, of: PairAccuracy, *, ties: bool, unread: bool) -> list[Text]:
    half = "" if of.interval is None else f"±{(of.interval[1] - of.interval[0]) / 2:.1f}"
    cells = [name, f"{of.cases:,}", f"{of.accuracy:.1f}", half]
    cells += [f"{of.ties:,}", f"{of.ties_at_random:.1f}"] if ties else []
    cells += [f"{of.unread or 0:,}"] if unread else []
    return [Text(cell) for cell in cells]


def _accuracy(
    scores: PairScores,
    clusters: np.ndarray,
    chosen: np.ndarray,
    unread: Bool[np.ndarray, " pairs"] | None,
) -> PairAccuracy:
    right, tied = scores.right[chosen], scores.tied[chosen]
    queries = QueryValues(
        chosen,
        clusters[chosen],
        np.zeros(len(chosen), np.int64),
        np.where(right, 1, 2),
        {"R@1": right.astype(np.float64)},
    )
    return PairAccuracy(
        cases=len(chosen),
        clusters=len(np.unique(clusters[chosen])),
        accuracy=100 * float(right.mean()),
        interval=intervals(queries, {"R@1": RecallAt(1)}).get("R@1"),
        ties=int(tied.sum()),
        ties_at_random=100 * float((right + 0.5 * tied).mean()),
        unread=None if unread is None else int(unread[chosen].sum()),
    )


def _retrieval(pairs: PairSet, results: Results) -> Report | None:
    queries = np.array([place for place, group in enumerate(pairs.sentence_groups) if group is not None])
    if not len(queries):
        return None
    return find_protocol("plain").report(
        results.with_sentences(queries),
        parse_measures(_RETRIEVAL),
        split="true sentences",
    )


def _places(pairs: PairSet) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(
        [(pair.image, pair.sentence, pair.false_image, pair.false_sentence) for pair in pairs.pairs]
    )
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]
