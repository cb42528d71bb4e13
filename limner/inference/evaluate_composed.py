"""Evaluate a run's composed queries: a picture alone, a text alone, their weighted sum, and the sentence of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float

from limner.data.composed import ComposedSet
from limner.errors import DataError
from limner.evaluation.composed import (
    REFERENCE,
    ComposedRanks,
    ComposedReport,
    ComposedRow,
    against,
    measure_row,
    rank_composed,
)
from limner.evaluation.per_query import QueryValues
from limner.inference.composing import Inversion
from limner.inference.evaluations import note_composed
from limner.inference.learnt_images import learnt_pictures
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel

Progress = Callable[[str, int, int], None]

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))
"""Text weights that are tried for the sum."""

ALONE, TEXT, SUM, COMPOSED = "picture alone", "text alone", "weighted sum", "composed"


@dataclass(frozen=True, eq=False)
class EncodedQueries:
    """The embeddings of one gallery: of all its pictures, and of its queries' texts; the references are among these."""

    images: Float[np.ndarray, "images dim"]
    texts: Float[np.ndarray, "queries dim"]
    references: Float[np.ndarray, "queries dim"]


def encode_composed(
    run: TrainedModel, composed: ComposedSet, progress: Progress | None = None
) -> list[EncodedQueries]:
    """Encode each gallery of a set. Raises `ImageError` for the first picture that cannot be read."""
    found = []
    for gallery in composed.galleries:
        images = run.encode_images(
            list(gallery.images), progress=progress and partial(progress, f"pictures {gallery.name}".strip())
        )
        texts = run.encode_texts([triplet.text for triplet in gallery.triplets], check=False)
        found.append(EncodedQueries(images, texts, images[[one.reference for one in gallery.triplets]]))
    return found


def weighted_sum(
    texts: Float[np.ndarray, "queries dim"], images: Float[np.ndarray, "queries dim"], weight: float
) -> Float[np.ndarray, "queries dim"]:
    """Unit embeddings of a text and a picture, the text by its weight and the picture by the rest."""
    mean = weight * texts + (1 - weight) * images
    # opposites cancel: their mean says nothing, and finds nothing
    unit: Float[np.ndarray, "queries dim"] = mean / np.maximum(
        np.linalg.norm(mean, axis=1, keepdims=True), 1e-12
    )
    return unit


def best_weight(composed: ComposedSet, encoded: Sequence[EncodedQueries]) -> float:
    """The text weight of `WEIGHTS` with the highest mean of R@1, R@5 and R@10; of equal ones the first."""
    scores = []
    for weight in WEIGHTS:
        queries = [weighted_sum(one.texts, one.references, weight) for one in encoded]
        ranked = _ranks_of(composed, encoded, queries)
        scores.append(float(np.mean([ranks.choosing for _, ranks in ranked])))
    return WEIGHTS[int(np.argmax(scores))]


def evaluate_composed(
    run: TrainedModel,
    inversion: Inversion | None,
    composed: ComposedSet,
    choosing: ComposedSet | None,
    *,
    progress: Progress | None = None,
) -> ComposedReport:
    """Measure the ways of making a query of a picture and a text; without an inversion the first three.

    `choosing` is the split that chooses the weight of the sum; None chooses it on the split that is measured, which
    flatters the sum. The run's folder keeps a line of the report, which says how often the split was measured. Raises
    `DataError` for a set that keeps its targets back, and for pictures that the run has learnt from
    (`limner.inference.learnt_images.learnt_pictures`).
    """
    if not composed.has_targets:
        # CIRR has a server for its hidden split
        instead = (
            "write the rankings for the set's own server by --submission DIR"
            if composed.protocol == "cirr"
            else "take its split val"
        )
        raise DataError(
            f"{composed.source}: split '{composed.split}' comes without its targets, so nothing can be measured here; "
            f"{instead}"
        )
    learnt = learnt_pictures(
        run,
        [image for gallery in composed.galleries for image in gallery.images],
        [name for gallery in composed.galleries for name in gallery.names],
        composed.source,
        composed.split,
        progress=progress,
    )
    encoded = encode_composed(run, composed, progress)
    if choosing is None or choosing.fingerprint == composed.fingerprint:
        weight, chosen_on = best_weight(composed, encoded), composed.split
    else:
        # another bar: its pictures are others
        weight = best_weight(choosing, encode_composed(run, choosing, progress))
        chosen_on = choosing.split
    made = queries_of(run, inversion, composed, encoded, weight)
    rows: list[ComposedRow] = []
    values: dict[str, QueryValues] = {}
    for name, queries in made.items():
        row, values[name] = measure_row(name, _ranks_of(composed, encoded, queries), composed.protocol)
        rows.append(row)
    report = ComposedReport(
        protocol=composed.protocol,
        split=composed.split,
        counts={
            "queries": composed.triplets,
            "pictures": sum(gallery.size for gallery in composed.galleries),
        },
        rows=tuple(rows),
        text_weight=weight,
        weight_chosen_on=chosen_on,
        against_sum=against(values[SUM], values[COMPOSED]) if COMPOSED in values else {},
        reference=REFERENCE[composed.protocol],
        provenance={
            "dataset": composed.source,
            "deviations": list(composed.deviations),
            "split_fingerprint": composed.fingerprint,
            "learnt_from": None if learnt is None else learnt.model_dump(),
            "model_fingerprint": run.fingerprint,
            "checkpoint": run.path.name,
            "recipe": run.description["recipe"].get("name"),
            "seed": run.description.get("seed"),
            "precision": run.precision,
            "inversion": None if inversion is None else dict(inversion.description),
            "versions": versions(),
        },
    )
    return note_composed(report, run.path)


def queries_of(
    run: TrainedModel,
    inversion: Inversion | None,
    composed: ComposedSet,
    encoded: Sequence[EncodedQueries],
    weight: float,
) -> dict[str, list[Float[np.ndarray, "queries dim"]]]:
    """By the way in which they are made, the embeddings of the queries of each gallery."""
    made = {
        ALONE: [one.references for one in encoded],
        TEXT: [one.texts for one in encoded],
        SUM: [weighted_sum(one.texts, one.references, weight) for one in encoded],
    }
    if inversion is not None:
        made[COMPOSED] = [
            inversion.compose(
                run.model, run.tokenizer, one.references, [triplet.text for triplet in gallery.triplets]
            )
            for gallery, one in zip(composed.galleries, encoded, strict=True)
        ]
    return made


def _ranks_of(
    composed: ComposedSet,
    encoded: Sequence[EncodedQueries],
    queries: Sequence[Float[np.ndarray, "queries dim"]],
) -> list[tuple[str, ComposedRanks]]:
    return [
        (gallery.name, rank_composed(asked, one.images, gallery, composed.protocol))
        for gallery, one, asked in zip(composed.galleries, encoded, queries, strict=True)
    ]


def submission(
    composed: ComposedSet,
    encoded: Sequence[EncodedQueries],
    queries: Sequence[Float[np.ndarray, "queries dim"]],
) -> Mapping[str, dict[str, object]]:
    """The two files that CIRR's server takes, by their name: the first 50 pictures, and the first 3 of each subset."""
    (gallery,), (one,), (asked,) = composed.galleries, encoded, queries
    recall: dict[str, object] = {"version": "rc2", "metric": "recall"}
    subset: dict[str, object] = {"version": "rc2", "metric": "recall_subset"}
    for triplet, vector in zip(gallery.triplets, asked, strict=True):
        scores = one.images[: gallery.size] @ vector
        # a stable order, so that two machines write one file
        order = np.argsort(-scores, kind="stable")
        names = [gallery.names[row] for row in order if row != triplet.reference]
        members = {gallery.names[row] for row in triplet.members}
        recall[triplet.name] = names[:50]
        subset[triplet.name] = [name for name in names if name in members][:3]
    return {"recall.json": recall, "recall_subset.json": subset}
