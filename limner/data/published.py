"""How large the published sets are, so that a copy that is incomplete or of another edition shows.

Sources: the papers of the sets, and for the splits of MSCOCO and Flickr30k those that evaluate on them; a count that no
source states is left open.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from limner.data.records import Dataset
from limner.data.splits import split_source


@dataclass(frozen=True, slots=True)
class Counts:
    """Pictures, sentences and groups of some splits together; None where it is not known."""

    pictures: int | None = None
    sentences: int | None = None
    groups: int | None = None


@dataclass(frozen=True, slots=True)
class Edition:
    """One published form of a dataset; the keys of `splits` are names of splits with "+" between them."""

    name: str
    splits: Mapping[str, Counts]

    def deviations(self, dataset: Dataset) -> tuple[str, ...]:
        """How a dataset differs, a line a count; none where it is this edition."""
        lines = []
        for names, expected in self.splits.items():
            # Some splits are only counted together, or are drawn by us (ICFG-PEDES has no val of its own).
            records = [record for record in dataset.records if record.split in names.split("+")]
            found = Counts(
                len(records),
                sum(len(record.sentences) for record in records),
                len({record.group for record in records}),
            )
            for kind in ("pictures", "sentences", "groups"):
                here, published = getattr(found, kind), getattr(expected, kind)
                # A count that no source states cannot differ.
                if published is not None and here != published:
                    lines.append(f"{names}: {here:,} {kind}, published {published:,}")
        return tuple(lines)

    def distance(self, dataset: Dataset) -> float:
        """Mean over splits of how far the numbers of pictures are apart, as the logarithm of their ratio."""
        held = Counter(record.split for record in dataset.records)
        apart = [
            # A ratio, so that a small split weighs as much as train; 1 more, since an empty one has no logarithm.
            abs(math.log((1 + sum(held[name] for name in names.split("+"))) / (1 + expected.pictures)))
            for names, expected in self.splits.items()
            if expected.pictures is not None
        ]
        # No count of pictures is known of PRW-TPS-CN.
        return sum(apart) / len(apart) if apart else 0.0


_WHOLE = "train+val+test"

EDITIONS: Mapping[str, tuple[Edition, ...]] = {
    "flickr8k": (
        Edition(
            "Flickr8k",
            {"train": Counts(6000, 30000), "val": Counts(1000, 5000), "test": Counts(1000, 5000)},
        ),
    ),
    "flickr30k": (
        Edition(
            # 31,014 of the 31,783 pictures: Karpathy's split leaves 769 out, the other one none.
            "Flickr30k, Karpathy's split",
            {"train": Counts(29000, 145000), "val": Counts(1014, 5070), "test": Counts(1000, 5000)},
        ),
        Edition(
            "Flickr30k, split of 29,783 training pictures",
            {"train": Counts(29783, 148915), "val": Counts(1000, 5000), "test": Counts(1000, 5000)},
        ),
    ),
    "mscoco": (
        Edition(
            # 82,783 of the 2014 training part and 30,504 of its validation part ("restval").
            "MSCOCO, Karpathy's split",
            {"train": Counts(113287, 566747), "val": Counts(5000, 25010), "test": Counts(5000, 25010)},
        ),
        Edition("MSCOCO 2014", {"train": Counts(82783, 414113), "val": Counts(40504, 202654)}),
        # The same 123,287 pictures as 2014's, divided anew.
        Edition("MSCOCO 2017", {"train": Counts(118287), "val": Counts(5000, 25014)}),
    ),
    "mscoco-labels": (
        # The 2014 training part without the 702 pictures that have no label.
        Edition("MSCOCO as MNiL has it", {"train": Counts(82081), "val": Counts(5000), "test": Counts(5000)}),
    ),
    "cuhk-pedes": (
        Edition(
            "CUHK-PEDES",
            {
                # Not twice the pictures: some have more than two sentences.
                "train": Counts(34054, 68126, 11003),
                "val": Counts(3078, 6158, 1000),
                "test": Counts(3074, 6156, 1000),
            },
        ),
    ),
    "icfg-pedes": (
        Edition(
            "ICFG-PEDES",
            # Counted together, because the validation split is our own (`hold_out`).
            {"train+val": Counts(34674, 34674, 3102), "test": Counts(19848, 19848, 1000)},
        ),
    ),
    "rstpreid": (
        Edition(
            "RSTPReid",
            {
                "train": Counts(18505, 37010, 3701),
                "val": Counts(1000, 2000, 200),
                "test": Counts(1000, 2000, 200),
            },
        ),
    ),
    # Sizes of the splits were not found for the sets from here to WebPerson: whole sets are counted.
    "ufine6926": (
        Edition("UFine6926", {_WHOLE: Counts(26206, 52412, 6926)}),
        Edition("UFine3C", {"test": Counts(7446, 37939, 2250)}),
    ),
    "vn3k": (Edition("3000VnPersonSearch", {_WHOLE: Counts(6302, 12602, 3000)}),),
    "prw-tps-cn": (Edition("PRW-TPS-CN", {_WHOLE: Counts(sentences=47102)}),),
    "synth-pedes": (Edition("SYNTH-PEDES", {_WHOLE: Counts(4791711, 12138157, 312321)}),),
    "mals": (Edition("MALS", {_WHOLE: Counts(1510330, 1510330)}),),
    # Its authors call it 1.0 million pictures; so many names are in the four files.
    "luperson-mllm": (Edition("LUPerson-MLLM", {_WHOLE: Counts(1020022)}),),
    "webperson": (Edition("WebPerson-5M", {_WHOLE: Counts(5002723)}),),
    "cub": (
        Edition(
            "CUB-200-2011 with Reed's sentences",
            {
                # Classes alone: Reed's lists are of classes, and papers count the pictures of both lists together.
                "train": Counts(groups=100),
                "val": Counts(groups=50),
                "train+val": Counts(8855, 88550, 150),
                "test": Counts(2933, 29330, 50),
            },
        ),
    ),
    "flowers": (
        Edition(
            "Oxford Flowers-102 with Reed's sentences",
            {
                "train": Counts(groups=62),
                "val": Counts(groups=20),
                "train+val": Counts(7034, 70340, 82),
                "test": Counts(1155, 11550, 20),
            },
        ),
    ),
}
"""Editions by format; formats that are not listed hold the user's own pictures."""


def edition_of(dataset: Dataset) -> str:
    """Say where a dataset's splits come from, for a report; "" for the user's own pictures."""
    # Drawn splits have other counts by design and would always deviate. By the test split: where a part of training is
    # held out for validation alone, the published one is still the one that is measured.
    if "test" in dataset.drawn:
        return dataset.how_drawn
    edition, deviations = nearest_edition(dataset) or (None, ())
    return (
        "" if edition is None else f"none published; nearest: {edition.name}" if deviations else edition.name
    )


def nearest_edition(dataset: Dataset) -> tuple[Edition, tuple[str, ...]] | None:
    """The edition that a dataset is nearest to, and how it differs; None for own pictures and drawn splits.

    Nearest by how many pictures each split has, as a ratio; of two alike, the one with fewer deviations.
    """
    source, drawn = split_source(dataset.source)
    editions = () if drawn else EDITIONS.get(source.partition(":")[0], ())
    # Ratios first and deviations at a tie: a third of a set is nearest to its own edition, however much
    # of it is missing, where a count of deviations would call all editions equally wrong.
    compared = [(edition, edition.deviations(dataset)) for edition in editions]
    return min(compared, key=lambda pair: (pair[0].distance(dataset), len(pair[1])), default=None)
