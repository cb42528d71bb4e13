"""Which lies a model believes about photographs: words of Flickr8k's captions exchanged for others.

    python -m benchmarks.lies_flickr8k FLICKR8K RUN [RUN …] [--split val] [--seed 0]

It holds `limner bench`, whose people are drawn, against reality. FLICKR8K holds Karpathy's `dataset_flickr8k.json` and
`images/`. Three kinds of lies, each of one caption:

colour         a colour word is the one that another caption has, drawn once
two colours    two colour words are exchanged, except in "black and white" and the like
who            man and woman, men and women, boy and girl, in the place of each other

A word that any of the picture's five captions has is not put in: it might be true. What captions leave out might be as
well, so that not even a perfect model has 100 %. Intervals are over pictures. Nothing is written; the captions stay
where they are.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
from rich.console import Console

import limner
from limner.data.minimal_pairs import MinimalPair, PairSet
from limner.evaluation.minimal_pairs import render_pairs

COLOURS = (
    "black",
    "white",
    "red",
    "blue",
    "green",
    "yellow",
    "orange",
    "pink",
    "purple",
    "brown",
    "grey",
    "tan",
)
PEOPLE = {"man": "woman", "men": "women", "boy": "girl", "boys": "girls"}
PEOPLE |= {other: one for one, other in PEOPLE.items()}
KINDS = {
    "colour": "a colour word is another",
    "two colours": "two colour words are exchanged",
    "who": "man and woman, boy and girl, in the place of each other",
}

Sentences = list[tuple[str, str, str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flickr8k", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--split", default="val", help="the test split is for a last look")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pairs = lies(options.flickr8k, options.split, options.seed)
    console = Console(soft_wrap=True)
    for run in options.runs:
        report = limner.bench(limner.load(run), pairs)
        console.print(str(run), render_pairs(report, details=True))
        console.print(f"words that it does not know: {', '.join(report.unknown_words or ()) or 'none'}"[:400])


def lies(folder: Path, split: str, seed: int) -> PairSet:
    """The set of a split: every caption that has something to lie about, once for each kind."""
    listed = json.loads((folder / "dataset_flickr8k.json").read_text(encoding="utf-8"))["images"]
    chosen = [image for image in listed if image["split"] == split]
    captions = [
        [re.sub(r"\bgray\b", "grey", row["raw"].strip()) for row in image["sentences"]] for image in chosen
    ]
    donors = [word for texts in captions for text in texts for word in _colours(text)]
    rng = np.random.default_rng(seed)
    sentences: list[str] = []
    groups: list[int | None] = []
    pairs: list[MinimalPair] = []
    for place, texts in enumerate(captions):
        there = {word for text in texts for word in _words(text)}
        for text in texts:
            true = len(sentences)
            sentences.append(text)
            groups.append(place)
            for kind, detail, false in _lies(text, there, donors, rng):
                pairs.append(MinimalPair(kind, detail, place, place, true, place, len(sentences)))
                sentences.append(false)
                groups.append(None)
    return PairSet(
        *("Flickr8k's captions, changed", f"{split}, seed {seed}"),
        images=[folder / "images" / image["filename"] for image in chosen],
        image_names=[image["filename"] for image in chosen],
        image_groups=range(len(chosen)),
        sentences=sentences,
        sentence_groups=groups,
        pairs=pairs,
        kinds=KINDS,
    )


def _lies(
    text: str, there: set[str], donors: list[str], rng: np.random.Generator
) -> list[tuple[str, str, str]]:
    found = []
    colours = _colours(text)
    if colours:
        old, new = colours[int(rng.integers(len(colours)))], donors[int(rng.integers(len(donors)))]
        # one draw and no second: a colour is then as often true as false
        if new not in there:
            found.append(("colour", old, _exchanged(text, {old: new})))
    distinct = list(dict.fromkeys(colours))
    if len(distinct) == 2 and len(colours) == 2 and not re.search(_BESIDE, text.lower()):
        first, second = distinct
        false = _exchanged(text, {first: second, second: first})
        found.append(("two colours", "exchanged", false))
    people = [word for word in _words(text) if word in PEOPLE]
    if len(people) == 1 and PEOPLE[people[0]] not in there:
        found.append(("who", people[0], _exchanged(text, {people[0]: PEOPLE[people[0]]})))
    return found


_ANY = "|".join(COLOURS)
_BESIDE = rf"\b({_ANY})( and |, | or |-| )({_ANY})\b"


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _colours(text: str) -> list[str]:
    return [word for word in _words(text) if word in COLOURS]


def _exchanged(text: str, words: dict[str, str]) -> str:
    """The text with some words in the place of others, "a" and "an" and capitals as they must be."""

    def other(found: re.Match[str]) -> str:
        new = words[found[0].lower()]
        return new.capitalize() if found[0][0].isupper() else new

    changed = re.sub(rf"\b({'|'.join(words)})\b", other, text, flags=re.IGNORECASE)
    changed = re.sub(rf"\b([Aa])n (?=(?!orange)(?:{_ANY})\b)", r"\1 ", changed)
    return re.sub(r"\b([Aa]) (?=orange\b)", r"\1n ", changed)


if __name__ == "__main__":
    main()
