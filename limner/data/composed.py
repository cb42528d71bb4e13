"""Composed queries as values: a reference picture, a text about a change, and the pictures that are right."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from limner.data.terms import UNSTATED, TermsOfUse

ComposedProtocol = Literal["cirr", "fashioniq", "itcpr"]
"""The rules by which a set is ranked (`limner.evaluation.composed`)."""


@dataclass(frozen=True, slots=True)
class Triplet:
    """A composed query of a gallery.

    - `name`: its id in the set; `reference`: row of the picture that it starts from.
    - `targets`: rows of the pictures that are right, the first the one that it was written for; none where the set
      keeps them back.
    - `members`: rows of the pictures that are like each other, without the reference (CIRR's subset); may be empty.
    """

    name: str
    reference: int
    text: str
    targets: tuple[int, ...]
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class ComposedGallery:
    """Pictures, and the composed queries that are asked of them.

    - `name`: the category; "" where a set has one gallery.
    - `names`, `images`: of the pictures. Those from `size` on are references alone and are never ranked.
    """

    name: str
    names: tuple[str, ...]
    images: tuple[Path, ...]
    triplets: tuple[Triplet, ...]
    size: int


@dataclass(frozen=True)
class ComposedSet:
    """One split of a set of composed queries.

    - `deviations`: how its counts differ from the published ones, a line each; none where they are equal or unknown.
    """

    source: str
    split: str
    protocol: ComposedProtocol
    galleries: tuple[ComposedGallery, ...]
    terms: TermsOfUse = UNSTATED
    deviations: tuple[str, ...] = ()

    @property
    def triplets(self) -> int:
        """How many queries all galleries have."""
        return sum(len(gallery.triplets) for gallery in self.galleries)

    @property
    def has_targets(self) -> bool:
        """False where the set keeps the targets of this split back."""
        return all(triplet.targets for gallery in self.galleries for triplet in gallery.triplets)

    @property
    def fingerprint(self) -> str:
        """Hex digest of names, queries and targets; of the pictures the names alone."""
        content = [
            [gallery.name, gallery.names, gallery.size, [_plain(gallery, one) for one in gallery.triplets]]
            for gallery in self.galleries
        ]
        return sha256(json.dumps([self.split, content]).encode()).hexdigest()


def _plain(gallery: ComposedGallery, triplet: Triplet) -> list[object]:
    names = gallery.names
    return [
        triplet.name,
        names[triplet.reference],
        triplet.text,
        [names[row] for row in triplet.targets],
        [names[row] for row in triplet.members],
    ]
