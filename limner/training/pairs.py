"""The pairs of each step: a pure function of the seed, the stage and the epoch.

Nothing here keeps state between epochs, so a resumed run draws what an uninterrupted one would have drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int64

from limner.data.records import Dataset
from limner.data.token_rows import lay_out
from limner.errors import DataError
from limner.training.recipe import StageSettings
from limner.types import Tokenizer


@dataclass(frozen=True)
class TrainingPairs:
    """A training split as numbers.

    - `groups[i]`: class of picture i, 0 … `identities` − 1, in order of first appearance.
    - `sentences[j]`: token ids of sentence j; `sentence_image[j]`: the picture it describes.
    - `of_image[i]` and `of_group[g]`: the sentences of a picture and of a group.
    - `phrases[j]`: the noun phrase that each token of sentence j is in, by number; None where they are not asked for.
    - `truncated`: sentences that had more tokens than a row holds and lost their end.
    - `kept[j]`: False for a sentence that no epoch draws; None = all are drawn.
    """

    groups: Int64[np.ndarray, " images"]
    identities: int
    sentences: tuple[tuple[int, ...], ...]
    sentence_image: Int64[np.ndarray, " sentences"]
    of_image: tuple[tuple[int, ...], ...]
    of_group: tuple[tuple[int, ...], ...]
    phrases: tuple[tuple[int, ...], ...] | None = None
    truncated: int = 0
    kept: Bool[np.ndarray, " sentences"] | None = None

    @classmethod
    def of(
        cls, dataset: Dataset, tokenizer: Tokenizer, length: int, *, phrases: bool = False
    ) -> "TrainingPairs":
        """Number a split's groups and read its sentences, each of at most `length` tokens.

        Raises `DataError` when a group has no sentence at all.
        """
        names: dict[str, int] = {}
        # setdefault with the length so far numbers the groups in order of first appearance, without a sort.
        groups = np.array(
            [names.setdefault(record.group, len(names)) for record in dataset.records], np.int64
        )
        sentences: list[str] = []
        sentence_image: list[int] = []
        of_image: list[tuple[int, ...]] = []
        of_group: list[list[int]] = [[] for _ in names]
        for image, record in enumerate(dataset.records):
            added = range(len(sentences), len(sentences) + len(record.sentences))
            sentences += record.sentences
            sentence_image += [image] * len(added)
            of_image.append(tuple(added))
            # An image may have no sentence of its own where its identity has some.
            of_group[groups[image]] += added
        # A group without any would have a class that no sentence can be right for.
        for name, group in names.items():
            if not of_group[group]:
                raise DataError(
                    f"{dataset.source}: group '{name}' has no sentence to train with; run `limner data check`"
                )
        # Once for the whole split: later epochs only lay out what was read.
        read = tokenizer.tokenize(sentences, length, phrases=phrases)
        return cls(
            groups,
            len(names),
            tuple(sentence.token_ids for sentence in read),
            np.array(sentence_image, np.int64),
            tuple(of_image),
            tuple(tuple(members) for members in of_group),
            tuple(sentence.phrases or () for sentence in read) if phrases else None,
            sum(sentence.truncated for sentence in read),
        )

    def keeping(self, kept: Bool[np.ndarray, " sentences"]) -> "TrainingPairs":
        """The same, of whose sentences epochs draw these alone; numbers stay as they are."""

        def members(rows: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
            return tuple(tuple(sentence for sentence in row if kept[sentence]) for row in rows)

        return replace(self, of_image=members(self.of_image), of_group=members(self.of_group), kept=kept)

    def layout(
        self, chosen: Int64[np.ndarray, " batch"], length: int, shift: np.random.Generator | None
    ) -> Int64[np.ndarray, "batch words"]:
        """The token ids of some sentences in rows of fixed length."""
        # Laid out for each batch: with the shift a sentence stands elsewhere in every epoch.
        return lay_out([self.sentences[sentence] for sentence in chosen], length, shift=shift)

    def phrase_layout(
        self, chosen: Int64[np.ndarray, " batch"], length: int
    ) -> Int64[np.ndarray, "batch words"]:
        """The numbers of the phrases of some sentences, where `layout` has their words without a shift."""
        assert self.phrases is not None
        return lay_out([self.phrases[sentence] for sentence in chosen], length)


@dataclass(frozen=True)
class Batch:
    """One step: row i pairs picture `images[i]` with sentence `sentences[i]`, laid out as `token_ids[i]`."""

    images: Int64[np.ndarray, " batch"]
    sentences: Int64[np.ndarray, " batch"]
    token_ids: Int64[np.ndarray, "batch words"]
    groups: Int64[np.ndarray, " batch"]


def generator(seed: int, *where: int) -> np.random.Generator:
    """The random numbers of one place in a run, e.g. (stage, epoch)."""
    # NumPy mixes the numbers, so (1, 2) and (2, 1) are two streams. But it pads up to four of them with zeros: the
    # stream of (seed, stage, epoch) is that of (seed, stage, epoch, 0).
    return np.random.default_rng([seed, *where])


def pairs_per_epoch(pairs: TrainingPairs, stage: StageSettings) -> int:
    """Pairs that an epoch is drawn from."""
    if stage.sentences == "one":
        # A picture whose group has no sentence that is kept is left out.
        return sum(bool(pairs.of_group[group]) for group in pairs.groups)
    return len(pairs.sentences) if pairs.kept is None else int(pairs.kept.sum())


def steps_per_epoch(pairs: TrainingPairs, stage: StageSettings) -> int:
    """Steps of one epoch; the last batch is left out if it is not full, with different pairs each epoch."""
    # At least one step: a set smaller than the batch is a batch.
    return max(1, pairs_per_epoch(pairs, stage) // stage.batch)


def epoch_batches(
    pairs: TrainingPairs, stage: StageSettings, words: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """The batches of one epoch.

    With `sentences="one"` every picture appears once with one of its sentences drawn at random (with
    `pairing="group"`, of its identity's); with "all" every sentence appears once with its picture; with "together" as
    well, and the sentences of a picture follow one another (a batch's end may divide them). Sentences that are not kept
    are not drawn, and a picture without any left is not either.
    """
    if stage.sentences == "one":
        images = rng.permutation(len(pairs.groups))
        # One draw for each, whatever it has to choose from: adding a sentence to one image moves no other's draw.
        draws = rng.random(len(images))
        sentences = np.empty_like(images)
        for row, image in enumerate(images):
            choice = pairs.of_image[image] if stage.pairing == "image" else ()
            # With pairing="image" too, an image that has no sentence of its own takes one of its group.
            choice = choice or pairs.of_group[pairs.groups[image]]
            sentences[row] = choice[int(draws[row] * len(choice))] if choice else -1
        images, sentences = images[sentences >= 0], sentences[sentences >= 0]
    elif stage.sentences == "together":
        order = rng.permutation(len(pairs.groups))
        sentences = np.concatenate([np.array(pairs.of_image[image], np.int64) for image in order])
        images = pairs.sentence_image[sentences]
    else:
        sentences = rng.permutation(len(pairs.sentences))
        if pairs.kept is not None:
            sentences = sentences[pairs.kept[sentences]]
        images = pairs.sentence_image[sentences]
    size = min(stage.batch, len(images))
    for step in range(steps_per_epoch(pairs, stage)):
        rows = slice(step * size, (step + 1) * size)
        chosen = sentences[rows]
        # Drawn batch after batch in the consumer's thread, so the stream does not depend on how far ahead it runs.
        token_ids = pairs.layout(chosen, words, rng if stage.position_shift else None)
        yield Batch(images[rows], chosen, token_ids, pairs.groups[images[rows]])
