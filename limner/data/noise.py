"""Wrong sentences on purpose: how much does a training lose by them, and are they found?

Source: the benchmarks of noisy correspondence, such as Qin et al., "Noisy-Correspondence Learning for Text-to-Image
Person Re-identification" (RDE), CVPR 2024: the sentences of some training pairs change places.
"""

import re
from dataclasses import replace

import numpy as np

from limner.data.records import Dataset
from limner.errors import DataError

# The last one counts, as of drawn splits.
_NOISE = re.compile(r"(.+)#noise=([01]|[01]?\.[0-9]{1,6})(?:/([0-9]{1,9}))?", re.DOTALL)


def noise_source(source: str) -> tuple[str, str]:
    """A source without its wrong sentences, and what says how many: "" or "noise=SHARE" or "noise=SHARE/SEED".

    >>> noise_source("folder:a#seed=1#noise=0.5")
    ('folder:a#seed=1', 'noise=0.5')
    """
    found = _NOISE.fullmatch(source)
    return (source, "") if found is None else (found[1], source[found.end(1) + 1 :])


def add_noise(dataset: Dataset) -> Dataset:
    """Let the source's share of the training sentences change places, each to a picture of another group.

    Validation and test keep theirs. Languages go along with the sentences. Raises `DataError` for a share above 1, and
    where one group has more than half of the sentences that were drawn, so that some of them have nowhere to go.
    """
    found = _NOISE.fullmatch(dataset.source)
    if found is None:
        return dataset
    share, seed = float(found[2]), int(found[3] or 0)
    if share > 1:
        raise DataError(f"{dataset.source}: the share of wrong sentences lies in [0, 1], got {found[2]}")
    places = [
        (row, place)
        for row, record in enumerate(dataset.records)
        if record.split == "train"
        for place in range(len(record.sentences))
    ]
    random = np.random.default_rng(seed)
    drawn = np.sort(random.permutation(len(places))[: round(share * len(places))])
    groups = np.array([dataset.records[places[number][0]].group for number in drawn])
    taken = _others(groups, random, dataset.source)
    sentences = [list(record.sentences) for record in dataset.records]
    languages = [list(record.languages) for record in dataset.records]
    for number, other in zip(drawn, drawn[taken], strict=True):
        (row, place), (from_row, from_place) = places[number], places[other]
        before = dataset.records[from_row]
        sentences[row][place] = before.sentences[from_place]
        if languages[row] or before.languages:
            languages[row] = languages[row] or [None] * len(sentences[row])
            languages[row][place] = before.languages[from_place] if before.languages else None
    return replace(
        dataset,
        records=tuple(
            replace(record, sentences=tuple(texts), languages=tuple(tags))
            for record, texts, tags in zip(dataset.records, sentences, languages, strict=True)
        ),
    )


def _others(groups: np.ndarray, random: np.random.Generator, source: str) -> np.ndarray:
    """For each drawn sentence the place whose sentence it gets, of another group."""
    if not len(groups):
        return np.empty(0, np.int64)
    # In an order by group, whose members are in random order, a step of the largest group's size leaves every group.
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    largest = int(counts.max())
    if 2 * largest > len(groups):
        raise DataError(
            f"{source}: of {len(groups)} sentences that were to change places {largest} are of one group; "
            "take another share or seed"
        )
    # The groups in random order, too: else a group's sentences all came from the same few neighbours in every seed.
    order = np.lexsort((random.random(len(groups)), random.permutation(len(counts))[number]))
    taken = np.empty(len(groups), np.int64)
    taken[order] = np.roll(order, int(random.integers(largest, len(groups) - largest + 1)))
    return taken
