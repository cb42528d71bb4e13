"""Draw the set of `limner bench`: pictures of generated people, true sentences, and lies of each kind.

Everything follows from the version: the seed, how many people, and the code here and in `limner.people`. The
digest of version 1 stands here, so that a figure under it is one of the same cases.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from limner.data.minimal_pairs import MinimalPair, PairSet
from limner.people.attributes import Identity
from limner.people.generate import LIES_SEED
from limner.people.lies.kinds import (
    CONTROLS,
    KINDS,
    NOISY,
    attribute_lies,
    binding_lie,
    count_lie,
    covered_lies,
    describe,
    negations,
    side_lie,
)
from limner.people.lies.noise import with_noise
from limner.people.lies.portraits import Portrait, draw_portraits
from limner.people.lies.sentence import Statement

NAME: Final = "limner lies"
VERSION: Final = "1"
"""Raised whenever the set would be another."""

PEOPLE: Final = 720

DIGEST: Final = "080bf1689b16e1f816e5daf20fab788eebd64b5d090406b9c8d5e84737c8721f"
"""`PairSet.digest` of this version. Another one on some machine means that its libraries draw otherwise."""

_TWIN_FIELDS: Final = {
    "upper_colour": ("upper",),
    "lower_colour": ("lower",),
    "swapped colours": ("upper", "lower"),
    "pattern": ("upper",),
    "shoes_colour": ("shoes",),
}
"""The detail in which twins differ → the fields that a sentence must tell, where these are others."""


@dataclass(frozen=True, slots=True)
class Case:
    """A true and a false statement about a picture; `noisy` is written in place of the true one's text."""

    kind: str
    detail: str
    true: Statement
    false: Statement
    noisy: str = ""


@dataclass
class _Making:
    """The set while it is made: sentences are numbered when they are first said."""

    images: list[bytes] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    sentences: dict[tuple[str, int | None], int] = field(default_factory=dict)
    pairs: list[MinimalPair] = field(default_factory=list)

    def sentence(self, text: str, group: int | None) -> int:
        return self.sentences.setdefault((text, group), len(self.sentences))

    def add(self, case: Case, portrait: Portrait) -> None:
        """A case of the last picture; its true sentence is a query if anybody would write it."""
        place = len(self.images) - 1
        group = None if case.kind in (*CONTROLS, *NOISY) else portrait.group
        true = self.sentence(case.noisy or case.true.text, group)
        false = self.sentence(case.false.text, None)
        self.pairs.append(MinimalPair(case.kind, case.detail, portrait.cluster, place, true, place, false))

    def finish(self, version: str) -> PairSet:
        """The set, with its cases by kind."""
        texts = [text for text, _ in self.sentences]
        pairs = [pair for kind in KINDS for pair in self.pairs if pair.kind == kind]
        return PairSet(
            name=NAME,
            version=version,
            images=self.images,
            image_names=[f"pictures/{place:04d}.jpg" for place in range(len(self.images))],
            image_groups=self.groups,
            sentences=texts,
            sentence_groups=[group for _, group in self.sentences],
            pairs=_balanced(pairs, texts),
            kinds=KINDS,
            controls=CONTROLS,
            noisy=NOISY,
        )


def _balanced(pairs: list[MinimalPair], sentences: list[str]) -> list[MinimalPair]:
    """Leave out surplus cases: of negation and count each wording is as often true as false."""
    marks = {"negation": " without ", "count": " two "}
    kept: list[MinimalPair] = []
    left: dict[tuple[str, str, bool], int] = {}
    sides = [(pair.kind, pair.detail, marks.get(pair.kind, "") in sentences[pair.sentence]) for pair in pairs]
    for side in sides:
        left[side] = left.get(side, 0) + 1
    fewest = {
        (kind, detail): min(left.get((kind, detail, way), 0) for way in (True, False))
        for kind, detail, _ in left
    }
    taken: dict[tuple[str, str, bool], int] = {}
    for pair, side in zip(pairs, sides, strict=True):
        taken[side] = taken.get(side, 0) + 1
        if pair.kind not in marks or taken[side] <= fewest[side[:2]]:
            kept.append(pair)
    return kept


def draw_lies(
    people: int = PEOPLE, progress: Callable[[int, int], None] | None = None, *, workers: int = 1
) -> PairSet:
    """The set; of fewer people than `PEOPLE` it is another one, for tests. `progress`: people done, and all."""
    portraits = draw_portraits(people, progress, workers=workers)
    cast = [portrait.who for portrait in portraits if portrait.purpose == "plain"]
    making, plain = _Making(), {}
    for portrait in portraits:
        making.images.append(portrait.jpeg)
        making.groups.append(portrait.group)
        for case in cases_of(portrait, cast):
            making.add(case, portrait)
        if portrait.purpose == "plain":
            plain[portrait.person.number] = (len(making.images) - 1, portrait)
    for place, portrait in plain.values():
        if portrait.person.twin is not None:
            twin_place, twin = plain[portrait.person.twin]
            if (told := told_of_twin(portrait, twin)) is not None:
                said = making.sentence(told.text, portrait.group)
                detail = (portrait.person.detail or "").replace("_", " ")
                making.pairs.append(
                    MinimalPair("near-twins", detail, portrait.cluster, place, said, twin_place, said)
                )
    return making.finish(VERSION if people == PEOPLE else f"{VERSION}, {people} people")


def cases_of(portrait: Portrait, cast: Sequence[Identity]) -> Iterator[Case]:
    """Every case of one picture except those of twins."""
    purposes = ("plain", "covered", "in hand")
    rng = np.random.default_rng([LIES_SEED, portrait.person.number, purposes.index(portrait.purpose), 3])
    told = describe(portrait, rng, must=("bag",) if portrait.bags else ())
    if portrait.purpose == "covered":
        for lie in attribute_lies(portrait, told, cast, rng):
            yield Case("occlusion", lie.detail, told, lie.statement)
        for true, lie in covered_lies(portrait, told, cast, rng):
            yield Case("covered", lie.detail, true, lie.statement)
        return
    for kind, found in (("count", count_lie(portrait, told)), ("left/right", side_lie(portrait, told))):
        if found is not None:
            yield Case(kind, found[1].detail, found[0], found[1].statement)
    if portrait.purpose == "in hand":
        return
    lies = attribute_lies(portrait, told, cast, rng)
    for lie in lies:
        yield Case("attribute", lie.detail, told, lie.statement)
    if (swapped := binding_lie(told, rng)) is not None:
        yield Case("binding", swapped.detail, told, swapped.statement)
    for true, lie in negations(portrait, rng):
        yield Case("negation", lie.detail, true, lie.statement)
    # One sentence for all: the words that decide in any of the lies stay as they are.
    decide = {word for lie in lies for word in words_apart(told.text, lie.statement.text)}
    noisy = with_noise(told.text, decide, rng)
    for lie in lies:
        yield Case("caption noise", lie.detail, told, lie.statement, noisy)


def words_apart(first: str, second: str) -> set[str]:
    """The words of the first sentence that the second does not have."""
    one, other = (re.findall(r"[a-z-]+", text.lower()) for text in (first, second))
    return set(one) - set(other)


def told_of_twin(portrait: Portrait, twin: Portrait) -> Statement | None:
    """A sentence with the deciding detail, true of the first and false of the twin; None if it cannot be seen."""
    detail = portrait.person.detail or ""
    fields = _TWIN_FIELDS.get(detail, (detail,))
    seen = fields if detail == "swapped colours" else (detail,)
    if not all(name in portrait.visible and name in twin.visible for name in seen):
        return None
    rng = np.random.default_rng([LIES_SEED, portrait.person.number, 0, 6])
    told = describe(portrait, rng, must=fields)
    upper = told.part("upper")
    if detail == "pattern" and upper is not None and upper.pattern is None:
        return told.with_part(replace(upper, plain=True))
    return told
