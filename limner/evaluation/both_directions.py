"""Evaluate both directions of an image-sentence set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.errors import DataError
from limner.evaluation.curves import Curve, CurveMeasure
from limner.evaluation.intervals import intervals_of_each
from limner.evaluation.measures import STANDARD, Measure
from limner.evaluation.names import AnyMeasure
from limner.evaluation.per_query import QueryValues
from limner.evaluation.ranking import RankingResult, rank_both, rank_embeddings, rank_scores
from limner.evaluation.relevance import Relevance, group_codes
from limner.evaluation.report import Report
from limner.evaluation.reranking import Reranking, reranked
from limner.evaluation.scores import Array, Overlap
from limner.evaluation.ties import TiedFigure

Rows = slice | np.ndarray
"""Positions of some of the images or sentences."""
Rank = Callable[[Rows, Rows, Relevance, Relevance], tuple[RankingResult, RankingResult]]
"""Ranks some sentences for some images and the other way round, by their positions; given is what is relevant to each
image and to each sentence."""


def evaluate(
    image_embeddings: Float[Array, "images image_dim"],
    sentence_embeddings: Float[Array, "sentences sentence_dim"],
    image_groups: Any,
    sentence_groups: Any,
    *,
    protocol: str,
    split: str,
    labels: tuple[Any, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    measures: Sequence[AnyMeasure] = STANDARD,
    folds: int = 1,
    block: int | None = None,
    reranking: Reranking | None = None,
) -> Report:
    """Rank sentences for each image and images for each sentence, and measure both.

    Embeddings have one row an image (**each image once**, however many sentences it has) and one a
    sentence; group codes are integers, one a row, and equal ones are true matches: a query image counts any
    of its sentences. With `labels`, matrices of 0 and 1 of the images and of the sentences, items match that share a
    label, and groups only say what belongs together. With `reranking`, a scorer of pairs orders the first of each
    ranking. `extra` is the report's provenance (see `Report`). Memory and ties: `limner.evaluation.ranking`.

    With `folds`, the images are cut into so many equal runs in their order, each is ranked with the sentences of its
    groups alone, and every value is the mean over the folds (MSCOCO's "1K": five folds of 1,000). Sentences of groups
    without an image are in no fold; they count as queries without a match.

    Raises `DataError` for NaN, shapes that do not fit, and sets without a single true match.
    """
    _expect_rows(image_embeddings, image_groups, "image")
    _expect_rows(sentence_embeddings, sentence_groups, "sentence")

    def rank(
        images: Rows, sentences: Rows, of_images: Relevance, of_sentences: Relevance
    ) -> tuple[RankingResult, RankingResult]:
        pair = image_embeddings[images], sentence_embeddings[sentences]
        if reranking is None:
            return rank_both(*pair, of_images, of_sentences, measures, block=block)
        places = _places(len(image_embeddings), images), _places(len(sentence_embeddings), sentences)
        return (
            one_way(True, pair[0], pair[1], places, of_images, measures),
            one_way(False, pair[1], pair[0], places[::-1], of_sentences, _without_overlap(measures)),
        )

    def one_way(
        to_text: bool,
        queries: Array,
        gallery: Array,
        places: tuple[np.ndarray, np.ndarray],
        relevance: Relevance,
        taken: Sequence[AnyMeasure],
    ) -> RankingResult:
        return rank_embeddings(
            *(queries, gallery, relevance, taken),
            block=block,
            # Positions of the whole set, which is what a reranker's scorer knows pairs by.
            rescored=lambda scores: reranked(scores, reranking, to_text, *places),
        )

    return _reported(
        _Both(rank, image_groups, sentence_groups, labels, measures).measured(folds),
        protocol,
        split,
        measures,
        extra,
    )


def evaluate_scores(
    scores: Float[Array, "images sentences"],
    image_groups: Any,
    sentence_groups: Any,
    *,
    protocol: str,
    split: str,
    labels: tuple[Any, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    measures: Sequence[AnyMeasure] = STANDARD,
    folds: int = 1,
    block: int | None = None,
) -> Report:
    """`evaluate` from a matrix of similarities, a row an image and a column a sentence; higher is a better match.

    Raises as `evaluate`.
    """
    _expect_rows(scores, image_groups, "image")
    _expect_rows(scores.T, sentence_groups, "sentence")

    def rank(
        images: Rows, sentences: Rows, of_images: Relevance, of_sentences: Relevance
    ) -> tuple[RankingResult, RankingResult]:
        # In two steps: with two lists of positions numpy would take pairs of them, not rows and columns.
        part = scores[images][:, sentences]
        return (
            rank_scores(part, of_images, measures, block=block),
            # A view: blocks of its rows are copied as they are ranked.
            rank_scores(part.T, of_sentences, _without_overlap(measures), block=block),
        )

    return _reported(
        _Both(rank, image_groups, sentence_groups, labels, measures).measured(folds),
        protocol,
        split,
        measures,
        extra,
    )


def _reported(
    measured: "_Measured",
    protocol: str,
    split: str,
    measures: Sequence[AnyMeasure],
    extra: Mapping[str, Any] | None,
) -> Report:
    named = {str(measure): measure for measure in measures if isinstance(measure, Measure)}
    return Report(
        protocol=protocol,
        split=split,
        **{
            **vars(measured),
            # Only what ties decide: with most models that is nothing.
            "ties": {
                direction: {name: tied for name, tied in named.items() if tied.queries}
                for direction, named in measured.ties.items()
            },
        },
        provenance=dict(extra or {}),
        # both in one call: of as many images and groups, they share their draws
        intervals=dict(
            zip(
                measured.queries,
                intervals_of_each([(queries, named) for queries in measured.queries.values()]),
                strict=True,
            )
        ),
    )


@dataclass(frozen=True)
class _Measured:
    """The parts of a report that come from the rankings."""

    counts: dict[str, int]
    image_to_text: dict[str, float]
    text_to_image: dict[str, float]
    curves: dict[str, dict[str, Curve]]
    queries: dict[str, QueryValues]
    ties: dict[str, dict[str, TiedFigure]]
    chance: dict[str, dict[str, float]]


class _Both:
    """Both directions over a set, whole or in folds."""

    def __init__(
        self,
        rank: Rank,
        image_groups: Any,
        sentence_groups: Any,
        labels: tuple[Any, Any] | None,
        measures: Sequence[AnyMeasure],
    ) -> None:
        self.rank = rank
        self.of_images = group_codes(image_groups, "image groups")
        self.of_sentences = group_codes(sentence_groups, "sentence groups")
        self.labels = None if labels is None else (np.asarray(labels[0]), np.asarray(labels[1]))
        self.measures = measures
        self.values = [measure for measure in measures if isinstance(measure, Measure | Overlap)]
        self.drawn = [measure for measure in measures if isinstance(measure, CurveMeasure)]

    def measured(self, folds: int) -> _Measured:
        parts = [self._part(images, sentences) for images, sentences in self._folds(folds)]
        if folds == 1:
            return parts[0]
        # Folds share no group (`_folds` refuses that), so sums count nothing twice.
        counts = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
        # Reported as queries without a match: dropped silently, they would look like a smaller set.
        left_out = ~np.isin(self.of_sentences, self.of_images)
        counts["sentences"] += int(left_out.sum())
        counts["sentences_without_match"] += int(left_out.sum())
        counts["groups"] += len(np.unique(self.of_sentences[left_out]))
        return _Measured(
            counts={**counts, "folds": folds},
            image_to_text=_mean([part.image_to_text for part in parts]),
            text_to_image=_mean([part.text_to_image for part in parts]),
            curves={
                direction: {
                    name: _mean_curve([part.curves[direction][name] for part in parts]) for name in curves
                }
                for direction, curves in parts[0].curves.items()
            },
            queries={
                direction: QueryValues.joined([part.queries[direction] for part in parts])
                for direction in parts[0].queries
            },
            chance={
                direction: _mean([part.chance[direction] for part in parts]) for direction in parts[0].chance
            },
            ties={
                direction: {
                    name: _mean_tied([part.ties[direction][name] for part in parts]) for name in named
                }
                for direction, named in parts[0].ties.items()
            },
        )

    def _folds(self, folds: int) -> Iterator[tuple[Rows, Rows]]:
        if folds == 1:
            yield slice(None), slice(None)
            return
        # Equal folds only: the mean over unequal ones is not the mean over their images.
        if folds < 1 or len(self.of_images) % folds:
            raise DataError(f"{len(self.of_images)} images cannot be cut into {folds} equal folds")
        taken: set[int] = set()
        # In their order, as MSCOCO's 1K is defined; a random draw would be another protocol.
        for images in np.split(np.arange(len(self.of_images)), folds):
            groups = set(self.of_images[images].tolist())
            # Its sentences would be in two galleries, and each time lack the matches of the other fold.
            if both := groups & taken:
                raise DataError(f"group {min(both)} has images in two folds; keep its images together")
            taken |= groups
            sentences = np.flatnonzero(np.isin(self.of_sentences, list(groups)))
            if not len(sentences):
                raise DataError(
                    f"none of the {len(images)} images of a fold has a sentence; take fewer folds"
                )
            yield images, sentences

    def _part(self, images: Rows, sentences: Rows) -> _Measured:
        of_images, of_sentences = self.of_images[images], self.of_sentences[sentences]
        if self.labels is None:
            forward = Relevance.from_groups(of_images, of_sentences)
            backward = Relevance.from_groups(of_sentences, of_images)
        else:
            labels = self.labels[0][images], self.labels[1][sentences]
            forward, backward = Relevance.from_labels(*labels), Relevance.from_labels(*labels[::-1])
        to_text, to_image = self.rank(images, sentences, forward, backward)
        ranked = _without_overlap(self.measures)
        curves = {"image_to_text": self._curves(to_text), "text_to_image": self._curves(to_image)}
        return _Measured(
            counts={
                "images": forward.queries,
                "sentences": backward.queries,
                # Both sides: a sentence's group may have no image here, and an image no sentence.
                "groups": len(np.union1d(of_images, of_sentences)),
                "images_without_match": to_text.without_match,
                "sentences_without_match": to_image.without_match,
            },
            image_to_text={str(measure): to_text.value(measure) for measure in self.values},
            text_to_image={
                str(measure): (to_text if isinstance(measure, Overlap) else to_image).value(measure)
                for measure in self.values
            },
            curves=curves if self.drawn else {},
            queries={
                "image_to_text": self._queries(to_text, _places(len(self.of_images), images), of_images),
                "text_to_image": self._queries(
                    to_image, _places(len(self.of_sentences), sentences), of_sentences
                ),
            },
            chance={"image_to_text": to_text.chance(ranked), "text_to_image": to_image.chance(ranked)},
            ties={
                "image_to_text": to_text.tied_recalls(ranked),
                "text_to_image": to_image.tied_recalls(ranked),
            },
        )

    def _queries(
        self, ranking: RankingResult, places: Int[np.ndarray, " queries"], groups: Int[np.ndarray, " queries"]
    ) -> QueryValues:
        found = np.flatnonzero(ranking.matched)
        return QueryValues(
            places[found],
            groups[found],
            np.zeros(len(found), np.int64),
            ranking.first_ranks[found],
            {
                str(measure): ranking.each(measure)[found]
                for measure in self.measures
                if isinstance(measure, Measure)
            },
        )

    def _curves(self, ranking: RankingResult) -> dict[str, Curve]:
        return {str(measure): ranking.curve(measure) for measure in self.drawn}


def _without_overlap(measures: Sequence[AnyMeasure]) -> list[AnyMeasure]:
    """The overlap is of pairs, which both directions share, so it is counted in one."""
    return [measure for measure in measures if not isinstance(measure, Overlap)]


def _places(count: int, rows: Rows) -> np.ndarray:
    return np.arange(count)[rows]


def _expect_rows(rows: Array, groups: Any, kind: str) -> None:
    if len(rows) != len(groups):
        raise DataError(
            f"there are {len(rows)} {kind}s and {len(groups)} {kind} groups; give one code an item"
        )


def _mean(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}


def _mean_tied(parts: Sequence[TiedFigure]) -> TiedFigure:
    return TiedFigure(
        queries=sum(part.queries for part in parts),
        pessimistic=float(np.mean([part.pessimistic for part in parts])),
        expected=float(np.mean([part.expected for part in parts])),
    )


def _mean_curve(parts: Sequence[Curve]) -> Curve:
    """The mean at the places that all parts have."""
    # Galleries of sentences may differ in size between folds, and with them the scopes that fit.
    shortest = min(parts, key=lambda part: len(part["precision"]))
    mean = np.mean([part["precision"][: len(shortest["precision"])] for part in parts], axis=0)
    return {**shortest, "precision": tuple(mean.tolist())}
