"""The record: an image with its sentences, group and split.

A *group* is what the papers call an image/text group: the picture with its sentences (Flickr30k, MSCOCO), or an
identity with all its pictures and sentences (CUHK-PEDES, CUB, generated people). Two items match when
they are of the same group, or, under a protocol that says so, when their pictures share a label; nothing else in limner
decides relevance.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Int64, UInt8

from limner.arguments import expect, several, shown
from limner.counted import counted
from limner.data.terms import UNSTATED, TermsOfUse
from limner.errors import DataError

SPLITS = ("train", "val", "test")
"""The names of the splits; readers translate a dataset's own ("dev", "restval") to these."""

TRAINING_SPLITS = ("train", "val")
"""The splits that training needs; it refuses to begin if one has no image or no sentence."""

GroupKind = Literal["image", "identity"]


# Slots spare a dict each: MSCOCO alone has 123,287 records.
@dataclass(frozen=True, slots=True)
class Record:
    """One picture of a dataset.

    - `image`: path of the file, also as text; a picture in memory raises `DataError`.
    - `sentences`: its descriptions, as published; may be empty for a gallery-only picture. One alone is one of a tuple.
    - `group`: name of its image/text group or identity; a whole number becomes text.
    - `split`: "train", "val" or "test"; None where the source gives none.
    - `metadata`: anything else that the source says of it, JSON values only.
    - `labels`: names of the categories that it shows, where the source was read with them.
    - `languages`: the language of each sentence, a tag such as "de", None where the source gives none; empty if it
      gives none at all. Raises `DataError` for another number of them than of sentences.

    Values of other kinds raise `DataError`.
    """

    image: Path
    sentences: tuple[str, ...]
    group: str
    split: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    languages: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        # Whoever has pictures in memory would else meet an error of pathlib when the first one is read.
        if not isinstance(self.image, Path | str):
            raise DataError(
                f"Record: image is a {type(self.image).__name__}, and a record has the path of a file; save the "
                "picture, or give pictures in memory to encode_images of a loaded model"
            )
        try:
            self._take()
        except DataError as error:
            raise DataError(f"{self.image}: {error}") from None
        # A reader of another package, or `replace` with other sentences, would give sentences a wrong language.
        if self.languages and len(self.languages) != len(self.sentences):
            raise DataError(
                f"{self.image}: {len(self.sentences)} sentences have {len(self.languages)} languages; give one "
                "of each sentence, or none"
            )

    def _take(self) -> None:
        """Read values of other forms here, and not where they are used: a text would be read there letter by letter."""
        expect(self.split, (str, NoneType), "the name of a split")
        expect(self.metadata, (Mapping,), "a mapping of facts")
        group = (
            self.group
            if isinstance(self.group, str) or not isinstance(self.group, Integral)
            else str(self.group)
        )
        expect(group, (str,), "the name of a group")
        object.__setattr__(self, "image", Path(self.image))
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "sentences", tuple(several(self.sentences, (str,), "a sentence")))
        object.__setattr__(self, "labels", tuple(several(self.labels, (str,), "a label")))
        object.__setattr__(self, "languages", tuple(several(self.languages, (str, NoneType), "a language")))


# No slots here: `cached_property` needs the instance's dict.
@dataclass(frozen=True)
class Dataset:
    """Records in their published order.

    `source` is what the user typed ("flickr8k:PATH"), `group_kind` says whether a group is one image or one identity.
    `edition` says which published form the whole set's counts are those of, or how its splits were drawn; "" where
    neither is known. `terms` say under which conditions it may be used, as far as they are known. `drawn` says of each
    split that limner drew itself how it did. `training_images` are the images of "train" and "val" of the whole set
    that this is a split of, by which a copy of a training image is told from one that the set itself holds twice.
    """

    source: str
    group_kind: GroupKind
    records: tuple[Record, ...]
    edition: str = ""
    terms: TermsOfUse = UNSTATED
    drawn: Mapping[str, str] = field(default_factory=dict)
    # Never those of "test": training is handed its splits alone, and must not see test through them.
    training_images: Mapping[str, tuple[Path, ...]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        expect(self.source, (str,), "Dataset: its source, e.g. 'folder:pictures',")
        if self.group_kind not in get_args(GroupKind):
            raise DataError(
                f"Dataset: 'image' or 'identity' was expected as its group_kind, got {shown(self.group_kind)}"
            )
        object.__setattr__(self, "records", tuple(several(self.records, (Record,), "Dataset: a record")))

    def __repr__(self) -> str:
        """One line of counts: records alone would be pages."""
        sentences = sum(len(record.sentences) for record in self.records)
        splits = ", ".join(f"{split} {count:,}" for split, count in self.split_counts.items())
        pictures = counted(len(self), "pictures") + (f" ({splits})" if splits else "")
        return f"Dataset({self.source!r}, {pictures}, {counted(sentences, 'sentences')})"

    def split(self, name: str) -> "Dataset":
        """The records of one split.

        Raises `DataError` for an empty split, naming the splits that exist.
        """
        chosen = tuple(record for record in self.records if record.split == name)
        if not chosen:
            splits = ", ".join(f"{split} ({count})" for split, count in self.split_counts.items()) or "none"
            raise DataError(f"{self.source}: no picture in split '{name}'; splits here: {splits}")
        drawn = {one: how for one, how in self.drawn.items() if one == name}
        # A split of a split knows what its whole knew.
        images = self.training_images or {
            one: tuple(record.image for record in self.records if record.split == one)
            for one in TRAINING_SPLITS
        }
        return replace(self, records=chosen, drawn=drawn, training_images=images)

    def sample(self, count: int, seed: int) -> "Dataset":
        """At most `count` of the records, drawn at random and in their order."""
        # A permutation, not `choice`: a count above the size takes all, and a larger sample of the same seed
        # holds the smaller one.
        places = np.random.default_rng(seed).permutation(len(self.records))[:count]
        chosen = tuple(self.records[place] for place in sorted(places.tolist()))
        return replace(self, records=chosen)

    @cached_property
    def split_counts(self) -> dict[str, int]:
        """Pictures by split, in order of first appearance; records without one count under 'none'."""
        counts: dict[str, int] = {}
        for record in self.records:
            counts[record.split or "none"] = counts.get(record.split or "none", 0) + 1
        return counts

    @property
    def how_drawn(self) -> str:
        """How limner drew the splits, as reports name it: "drawn splits, seed=1"; "" where the source has its own."""
        # In order of first appearance, each once: all splits of a folder are drawn in one way.
        ways = ", ".join(dict.fromkeys(self.drawn.values()))
        return f"drawn splits, {ways}" if ways else ""

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of names, groups, splits, sentences, labels, languages: equal = the same annotations.

        It opens no file; `limner.data.image_digests.content_fingerprint` is that of the images' content.
        """
        digest = hashlib.sha256()
        for record in self.records:
            # The bare name, so that a copy of the set in another folder has the same fingerprint.
            parts = (record.image.name, record.group, record.split or "", *record.sentences)
            # Separators that stand in no caption: without them "ab" + "c" would be "a" + "bc".
            digest.update("\x1f".join(parts).encode() + b"\x1e")
            # Only where there are labels: sets without any keep the fingerprint that they had before labels came.
            if record.labels:
                digest.update("\x1f".join(record.labels).encode() + b"\x1d")
            if any(record.languages):
                digest.update("\x1f".join(tag or "" for tag in record.languages).encode() + b"\x1c")
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.records)


def group_numbers(
    dataset: Dataset,
) -> tuple[Int64[np.ndarray, " images"], Int64[np.ndarray, " sentences"]]:
    """Integer groups of a split's pictures and of its sentences, in their order."""
    names: dict[str, int] = {}
    # `len(names)` is taken before the name goes in, so numbers have no gap and follow first appearance.
    images = [names.setdefault(record.group, len(names)) for record in dataset.records]
    sentences = [
        group for group, record in zip(images, dataset.records, strict=True) for _ in record.sentences
    ]
    return np.array(images, np.int64), np.array(sentences, np.int64)


def sentence_languages(dataset: Dataset) -> tuple[str | None, ...]:
    """The language of each sentence of a split, in their order; empty if none has one."""
    found = tuple(
        language
        for record in dataset.records
        for language in record.languages or (None,) * len(record.sentences)
    )
    return found if any(found) else ()


def label_matrices(
    dataset: Dataset,
) -> tuple[UInt8[np.ndarray, "images labels"], UInt8[np.ndarray, "sentences labels"]]:
    """The labels (0 or 1) of a split's images, and of its sentences, which have those of their image.

    Raises `DataError` when no picture has any.
    """
    # Columns are those of this split: matrices of two calls must not be compared with each other.
    names = sorted({label for record in dataset.records for label in record.labels})
    if not names:
        splits = {record.split for record in dataset.records}
        split = f" of split '{splits.pop()}'" if len(splits) == 1 else ""
        raise DataError(
            f"{dataset.source}: its pictures{split} have no labels; mscoco-labels: has them, folder: where its "
            "captions file has a column 'labels', and generated people that were drawn since there are labels"
        )
    column = {name: number for number, name in enumerate(names)}
    images = np.zeros((len(dataset), len(names)), np.uint8)
    for row, record in enumerate(dataset.records):
        images[row, [column[label] for label in record.labels]] = 1
    # A picture without a sentence has 0 here, so the sentences' rows stay in step with `group_numbers`.
    counts = [len(record.sentences) for record in dataset.records]
    return images, images.repeat(counts, axis=0)
