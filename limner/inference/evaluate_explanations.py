"""Measure explanations of a run on a split where it is known what each picture shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from limner.data.picture_truth import PictureTruth
from limner.data.records import Dataset, group_numbers
from limner.data.transforms import crop_of
from limner.data.word_kinds import HAIR, kind_of, phrases_of
from limner.errors import DataError
from limner.evaluation.explanations import (
    Explained,
    ExplanationReport,
    method_figures,
    pointing_figures,
    random_figures,
    shares_of_regions,
)
from limner.inference.evaluations import note_look
from limner.inference.learnt_images import digests_of, expect_same_splits, learnt_from
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel
from limner.inference.word_effects import METHODS, WordMethod, Words, known_to

PAIRS = 200
"""Pictures that are measured, drawn from the split; each with one of its sentences."""


def evaluate_explanations(
    run: TrainedModel,
    dataset: Dataset,
    split: str,
    truth: Callable[[Dataset], Sequence[PictureTruth]],
    *,
    methods: Mapping[str, WordMethod] = METHODS,
    pairs: int = PAIRS,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ExplanationReport:
    """Measure the methods for words on true pairs of a split, and where a reranker's attention lies.

    Of each picture one sentence is drawn, and one of its colour words is replaced by a colour that the picture does not
    show: the planted word. `truth` says what pictures show. The run's folder keeps a line of the look
    (`limner.inference.evaluations`). Raises `DataError` for a split without sentences that name
    a colour, and what `limner.inference.learnt_images.learnt_from` raises.
    """
    expect_same_splits(dataset, run.description)
    learnt = learnt_from(run, dataset, digests_of(dataset, progress), progress=progress)
    sample = dataset.sample(pairs, seed)
    known_of = truth(sample)
    rng = np.random.default_rng([seed, 1])
    asked = _pairs(run, sample, known_of, rng)
    if not any(pair.lie for pair in asked):
        raise DataError(
            f"{dataset.source}: no sentence of split '{split}' names a colour that another could replace, so no word "
            "can be planted"
        )
    vectors = run.encode_images([sample.records[pair.row].image for pair in asked])
    clusters = group_numbers(sample)[0][[pair.row for pair in asked]]
    answers: dict[str, list[Explained]] = {name: [] for name in methods}
    by_chance = []
    known = known_to(run)
    for done, (pair, vector) in enumerate(zip(asked, vectors, strict=True), start=1):
        scores = _Scores(run, vector)
        for name, method in methods.items():
            answers[name].append(_explained(method, pair, scores, known))
        order = rng.permutation(len(pair.words))
        by_chance.append((*_curves(pair.words, order, scores), scores.of([pair.words])[0]))
        if progress is not None:
            progress("explanations", done, len(asked))
    figures = {name: method_figures(own, clusters) for name, own in answers.items()}
    sizes = [len(pair.lie) for pair in asked if pair.lie]
    points = _points(run, sample, known_of, asked, clusters.tolist(), progress)
    looks, problem = note_look(run, dataset.fingerprint, split, "explanations")
    provenance = _provenance(run, dataset, None if learnt is None else learnt.model_dump(), seed)
    provenance |= {
        "evaluations_of_split": looks,
        **({"evaluations_problem": problem} if problem else {}),
    }
    return ExplanationReport(
        split=split,
        counts={
            "pictures": len(asked),
            "identities": len(set(clusters.tolist())),
            "planted words": len(sizes),
        },
        methods={
            "random": random_figures(sizes, by_chance, clusters),
            **{name: own for name, (own, _) in figures.items()},
        },
        passes={name: passes for name, (_, passes) in figures.items()},
        attention=pointing_figures(points),
        provenance=provenance,
    )


@dataclass(frozen=True)
class _Pair:
    """A picture's row and the words of its sentence; `lie` is the same with the planted word at `place`."""

    row: int
    words: Words
    lie: Words
    place: int


def colour_places(words: Sequence[str]) -> list[int]:
    """The places of colour words, apart from those of hair.

    >>> colour_places("a man with grey hair in a red coat".split())
    [7]
    """
    return [
        place
        for start, stop in phrases_of(words)
        for place in range(start, stop)
        if kind_of(words[place]) == "colour" and words[stop - 1] not in HAIR
    ]


def _pairs(
    run: TrainedModel, sample: Dataset, known_of: Sequence[PictureTruth], rng: np.random.Generator
) -> list[_Pair]:
    found = []
    known = known_to(run)
    for row, (record, truth) in enumerate(zip(sample.records, known_of, strict=True)):
        tags = record.languages or (None,) * len(record.sentences)
        # the lists of colours are English
        sentences = [text for text, tag in zip(record.sentences, tags, strict=True) if tag in (None, "en")]
        words = tuple(run.known_words(sentences[int(rng.integers(len(sentences)))])) if sentences else ()
        if len(words) < 2:
            continue
        places = colour_places(words)
        false = [name for name in truth.names if name not in truth.colours and known(name)]
        lie: Words = ()
        place = 0
        if places and false:
            place = places[int(rng.integers(len(places)))]
            lie = (*words[:place], false[int(rng.integers(len(false)))], *words[place + 1 :])
        found.append(_Pair(row, words, lie, place))
    return found


class _Scores:
    """Cosines of texts with one picture; a text is scored once, whoever asks."""

    def __init__(self, run: TrainedModel, vector: Float[np.ndarray, " dim"]) -> None:
        self._run, self._vector = run, vector
        self._held: dict[Words, float] = {}

    def of(self, texts: Sequence[Words]) -> Float[np.ndarray, " texts"]:
        """The scores of texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._held]
        if new:
            scores = self._run.encode_queries([" ".join(text) for text in new]) @ self._vector
            self._held |= dict(zip(new, scores.tolist(), strict=True))
        return np.array([self._held[text] for text in texts])


def _explained(method: WordMethod, pair: _Pair, scores: _Scores, known: Callable[[str], bool]) -> Explained:
    design = method.design(pair.words, known)
    found = scores.of(design.variants)
    effects = design.matrix @ found
    planted = None
    if pair.lie:
        lie = method.design(pair.lie, known)
        planted = lie.matrix @ scores.of(lie.variants)
    # stable: of equal effects the first word goes first
    deletion, insertion = _curves(pair.words, np.argsort(-effects, kind="stable"), scores)
    return Explained(
        effects=effects,
        noise=design.noise(found),
        colours=colour_places(pair.words),
        score=float(scores.of([pair.words])[0]),
        deletion=deletion,
        insertion=insertion,
        passes=len(design.variants),
        planted=planted,
        place=pair.place,
        rivals=[other for other in colour_places(pair.lie) if other != pair.place],
    )


def _curves(
    words: Words, order: Sequence[int] | np.ndarray, scores: _Scores
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """Scores without the first k words of an order, and with these alone, k = 1 … words − 1."""
    first = [set(np.asarray(order)[:count].tolist()) for count in range(1, len(words))]
    without = [tuple(word for place, word in enumerate(words) if place not in gone) for gone in first]
    alone = [tuple(word for place, word in enumerate(words) if place in there) for there in first]
    return scores.of(without), scores.of(alone)


def _points(
    run: TrainedModel,
    sample: Dataset,
    known_of: Sequence[PictureTruth],
    asked: Sequence[_Pair],
    clusters: Sequence[int],
    progress: Callable[[str, int, int], None] | None,
) -> list[tuple[str, float, float, float, int]]:
    """The points of the pointing game: of each noun that means one part of which a pixel shows."""
    if run.reranker is None:
        return []
    images = [sample.records[pair.row].image for pair in asked]
    regions = run.encode_regions(images, progress=progress and partial(progress, "regions"))
    found = []
    for number, pair in enumerate(asked):
        maps = run.reranker.rerank(" ".join(pair.words), regions[number : number + 1])
        if maps.of_regions is None:
            return []
        truth = known_of[pair.row]
        for word, attention in zip(maps.words, maps.of_regions[0], strict=True):
            part = truth.parts.get(word)
            if part is None:
                continue
            mask = truth.shows()[part]
            height, width = mask.shape
            rows, columns = attention.shape
            shares = shares_of_regions(mask, (rows, columns), crop_of(width, height, run.images))
            if mask.any():
                strongest = shares.flat[int(np.argmax(attention))]
                found.append(
                    (part, float(strongest), float(mask.mean()), float(shares.max()), clusters[number])
                )
    return found


def _provenance(run: TrainedModel, dataset: Dataset, learnt: Any, seed: int) -> dict[str, Any]:
    described = run.description
    return {
        "dataset": dataset.source.partition(":")[0],
        "split_fingerprint": dataset.fingerprint,
        "learnt_from": learnt,
        "model_fingerprint": run.fingerprint,
        "checkpoint": run.path.name,
        "recipe": described["recipe"]["name"],
        "selected": described["selected"],
        "seed": described["seed"],
        "precision": run.precision,
        "drawn_with_seed": seed,
        "trained_with": described["versions"],
        "versions": versions(),
    }
