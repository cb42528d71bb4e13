"""Measure a run on minimal pairs: encode pictures and sentences, score what is true and what is false."""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from limner.data.minimal_pairs import PairSet
from limner.data.words import words
from limner.evaluation.minimal_pairs import (
    PairReport,
    pair_scores,
    report_pairs,
    reranked_scores,
    results_of_pairs,
)
from limner.evaluation.reranking import First
from limner.inference.evaluate_run import reranking_of
from limner.inference.evaluations import note_look
from limner.inference.learnt_images import learnt_pictures
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel

Keep = Callable[[Float[np.ndarray, "images dim"], Float[np.ndarray, "sentences dim"]], None]
"""Called with the embeddings before anything is scored."""


def bench_run(
    run: TrainedModel,
    pairs: PairSet,
    *,
    rerank: First | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    keep: Keep | None = None,
) -> PairReport:
    """Accuracy of a run by kind of lie, and R@K on the same pictures and sentences.

    A run with a reranker is measured by the reranker's scores, unless `rerank` is 0; R@K re-ranks the first `rerank`,
    or the recipe's number. `progress` is as `evaluate_run` has it. Words that the model does not know are told: a lie
    in such a word cannot be seen. Raises `SettingsError` for a reranker that the run does not have, and `DataError` for
    pictures that the run was trained on; those that chose its epoch are counted.
    """
    first = run.rerank if rerank is None else rerank
    if first != 0:
        run.expect_reranker()  # before minutes of encoding
    # Under "val": a set of one's own may well be of validation pictures, and says in its report that it is.
    learnt = learnt_pictures(run, pairs.images, pairs.image_names, pairs.name, "val", progress=progress)
    images = run.encode_images(pairs.images, progress=progress and partial(progress, "pictures"))
    texts = run.encode_texts(
        pairs.sentences, check=False, progress=progress and partial(progress, "sentences")
    )
    if keep is not None:
        keep(images, texts)
    reranking = None
    if first != 0:
        reranking = reranking_of(
            run, pairs.images, pairs.sentences, (images, texts), first, progress=progress
        )
    scores = pair_scores(pairs, images, texts) if reranking is None else reranked_scores(pairs, reranking)
    described, unknown = run.description, _unknown_words(run, pairs)
    looks, problem = note_look(run, pairs.digest, pairs.name, "bench")
    return report_pairs(
        pairs,
        scores,
        results_of_pairs(pairs, images, texts, reranking),
        unread=_unread(run, pairs, unknown),
        unknown_words=unknown,
        provenance={
            "model_fingerprint": run.fingerprint,
            "checkpoint": run.path.name,
            "recipe": described["recipe"]["name"],
            "trained_on": described["data"],
            "seed": described["seed"],
            "learnt_from": None if learnt is None else learnt.model_dump(),
            "precision": run.precision,
            "reranked": first,
            "sentences_cut": run.count_truncated(pairs.sentences),
            "evaluations_of_split": looks,
            **({"evaluations_problem": problem} if problem else {}),
            "versions": versions(),
        },
    )


def _unread(run: TrainedModel, pairs: PairSet, unknown: list[str]) -> Bool[np.ndarray, " pairs"]:
    """Cases in which the model does not know, or not read, a word that only one of the sentences has."""
    rows = run.rows_read(pairs.sentences)
    missing = set(unknown)
    found = np.zeros(len(pairs.pairs), bool)
    for place, pair in enumerate(pairs.pairs):
        # One sentence for two pictures differs in no word, and noise is made of unknown words.
        if pair.sentence == pair.false_sentence or pair.kind in pairs.noisy:
            continue
        true, false = (set(words(pairs.sentences[at])) for at in (pair.sentence, pair.false_sentence))
        same = bool((rows[pair.sentence] == rows[pair.false_sentence]).all())
        found[place] = same or bool((true ^ false) & missing)
    return found


def _unknown_words(run: TrainedModel, pairs: PairSet) -> list[str]:
    noisy = {pair.sentence for pair in pairs.pairs if pair.kind in pairs.noisy}
    clean = (text for place, text in enumerate(pairs.sentences) if place not in noisy)
    return sorted({word for text in clean for word in run.unknown_words(text)})
