"""How much nearer MiniLM puts captions of one picture that it was trained on than captions that it cannot have seen.

    LIMNER_SHARED_DATA=DATA python -m benchmarks.seen_captions MINILM PEOPLE

DATA holds `flickr8k-224`, `coco-val2017-captions` and `cub10-captions`, MINILM the files of all-MiniLM-L6-v2, PEOPLE
what `limner data people` draws (`cuhk-pedes`). all-MiniLM-L6-v2 was tuned to tell which captions are of one picture, on
Flickr30k's, which hold those of Flickr8k, and on captions of MSCOCO, by their number those of train2014 alone.

Text alone is measured: a caption ranks other captions, and R@1 is the share whose nearest one is of the same picture.
It is that of MiniLM, of a bag of words (TF-IDF), and of the mean of word vectors that were learnt from Flickr8k's
training captions. The last two have seen no caption that is ranked, and say how alike the captions are in their words.

sets            500 pictures of each set and two captions of each, five times drawn: every caption ranks the other 999
same pictures   100 validation pictures of Flickr8k with two new sentences each (`new_captions.json`), written by a
                language model that was shown the pictures and no caption. Published and new sentences rank one
                published caption of each of the 1,000 validation pictures, each of the five in turn; and, among the
                100, one of two sentences of a picture ranks the other one of all

The difference of differences is what MiniLM has more on published sentences than on new ones, beyond what a reference
has more: nought if having been trained on these captions did nothing for them, and if they differ in nothing else.
Intervals are 95 %, by resampling pictures. The design was written down before the first run. Nothing is of a test
split but the captions of one: no picture is ranked.
"""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.measuring import cannot_run, sized, write
from limner.data.readers import open_dataset
from limner.data.tokenizers import WordTokenizer
from limner.data.word_vectors import learn_word_vectors
from limner.data.words import words

NEW = Path(__file__).parent / "new_captions.json"
PICTURES, DRAWS, RESAMPLED = 500, 5, 2000

Captions = dict[str, list[str]]
"""Captions by picture."""
Encoder = Callable[[Sequence[str], Sequence[str]], Float[np.ndarray, "sentences dim"]]
"""Unit rows of sentences; the second argument are the sentences whose words are counted for TF-IDF."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minilm", type=Path)
    parser.add_argument("people", type=Path)
    given = parser.parse_args()
    if not (shared := os.environ.get("LIMNER_SHARED_DATA")):
        cannot_run("LIMNER_SHARED_DATA does not name the folder with the sets of captions")
    data = Path(shared)
    flickr = {name: _of_flickr(data / "flickr8k-224", name) for name in ("train", "val", "test")}
    training = [text for of in flickr["train"].values() for text in of]
    encoders = {
        "MiniLM": _minilm(given.minilm),
        "bag of words": _bag_of_words,
        "word vectors": _word_vectors(training),
    }
    sets = {
        "Flickr8k test, seen": flickr["test"],
        "MSCOCO val2017, its kind seen": _of_coco(data / "coco-val2017-captions" / "captions_val2017.json"),
        "CUB, ten species, not seen": _of_cub(data / "cub10-captions" / "captions.json"),
        "generated people, not seen": _of_people(given.people),
    }
    found = {name: _of_set(of, encoders) for name, of in sets.items()}
    new = json.loads(NEW.read_text(encoding="utf-8"))
    same = _of_same_pictures(new, flickr["val"], training, encoders)
    content = {
        "sets": {name: _figures(hits) for name, hits in found.items()},
        "same pictures": {name: _figures(hits) for name, hits in same.items()},
        "difference of differences": {
            **{
                f"{name} against Flickr8k test": _differences(
                    found["Flickr8k test, seen"], hits, paired=False
                )
                for name, hits in list(found.items())[1:]
            },
            "new against published, among 1,000": _differences(
                same["published among 1,000"], same["new among 1,000"], paired=True
            ),
            "new against published, among 100": _differences(
                same["published among 100"], same["new among 100"], paired=True
            ),
        },
    }
    print(json.dumps(content, indent=1))
    write("seen_captions", content)


Hits = dict[str, Float[np.ndarray, " pictures"]]
"""By encoder, the share of each picture's queries whose nearest caption is of the same picture."""


def _of_set(captions: Captions, encoders: Mapping[str, Encoder]) -> Hits:
    rng = np.random.default_rng(0)
    names = sorted(name for name, of in captions.items() if len(of) > 1)
    names = [names[place] for place in rng.permutation(len(names))[: sized(PICTURES, 50)]]
    hits: dict[str, list[np.ndarray]] = {name: [] for name in encoders}
    for _ in range(sized(DRAWS, 1)):
        drawn = [
            captions[name][place] for name in names for place in rng.permutation(len(captions[name]))[:2]
        ]
        for name, encode in encoders.items():
            rows = encode(drawn, drawn)
            hits[name].append(nearest_of_same(rows, np.repeat(np.arange(len(names)), 2)))
    return {name: np.mean(each, axis=0) for name, each in hits.items()}


def _of_same_pictures(
    new: Captions, published: Captions, training: Sequence[str], encoders: Mapping[str, Encoder]
) -> dict[str, Hits]:
    asked = sorted(new)
    names = [*asked, *sorted(published.keys() - new.keys())]
    count = len(asked)
    found: dict[str, Hits] = {}
    for kind, encode in encoders.items():
        own = [encode([published[name][place] for name in names], training) for place in range(5)]
        ours = [encode([new[name][place] for name in asked], training) for place in range(2)]
        pairs = [(one, other) for one in range(5) for other in range(5) if one != other]
        kinds = {
            "published among 1,000": [first_is_own(own[one][:count], own[other]) for one, other in pairs],
            "new among 1,000": [first_is_own(query, gallery) for query in ours for gallery in own],
            "published among 100": [
                first_is_own(own[one][:count], own[other][:count]) for one, other in pairs
            ],
            "new among 100": [first_is_own(ours[0], ours[1]), first_is_own(ours[1], ours[0])],
        }
        for name, each in kinds.items():
            found.setdefault(name, {})[kind] = np.mean(each, axis=0)
    return found


def nearest_of_same(
    rows: Float[np.ndarray, "sentences dim"], groups: Int[np.ndarray, " sentences"]
) -> Float[np.ndarray, " pictures"]:
    """The share of each picture's sentences whose nearest other sentence is of the same picture.

    Of several that are nearest alike, each counts by its part: a bag of words gives many such.
    """
    scores = rows @ rows.T
    np.fill_diagonal(scores, -np.inf)
    best = _is_best(scores)
    right = (best & (groups[:, None] == groups[None])).sum(axis=1) / best.sum(axis=1)
    return np.bincount(groups, right) / np.bincount(groups)


def first_is_own(
    queries: Float[np.ndarray, "queries dim"], gallery: Float[np.ndarray, "sentences dim"]
) -> Float[np.ndarray, " queries"]:
    """1 for each query whose nearest sentence is that of its own row, ties as `nearest_of_same` has them."""
    best = _is_best(queries @ gallery.T)
    own: np.ndarray = np.diagonal(best) / best.sum(axis=1)
    return own


def _is_best(scores: np.ndarray) -> np.ndarray:
    # rounding must not decide between sentences of the same words
    best: np.ndarray = scores >= scores.max(axis=1, keepdims=True) - 1e-6
    return best


def _figures(hits: Hits) -> dict[str, Any]:
    return {
        "pictures": len(next(iter(hits.values()))),
        "R@1": {name: _with_interval([values], np.mean) for name, values in hits.items()},
    }


def _differences(seen: Hits, other: Hits, *, paired: bool) -> dict[str, Any]:
    """What MiniLM has more on `seen` than on `other`, less the same of each reference, in points of R@1."""
    found = {}
    for reference in list(seen)[1:]:
        more, less = seen["MiniLM"] - seen[reference], other["MiniLM"] - other[reference]
        if paired:
            found[reference] = _with_interval([more - less], np.mean)
        else:
            found[reference] = _with_interval([more, less], lambda one, two: np.mean(one) - np.mean(two))
    return found


def _with_interval(parts: Sequence[np.ndarray], figure: Callable[..., Any]) -> dict[str, Any]:
    """A figure in percent with its 95 % interval, pictures of each part resampled on their own."""
    rng = np.random.default_rng(1)
    drawn = [
        figure(*(part[rng.integers(0, len(part), len(part))] for part in parts)) for _ in range(RESAMPLED)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return {"value": _percent(figure(*parts)), "interval": [_percent(low), _percent(high)]}


def _percent(value: float) -> float:
    return round(100 * float(value), 1)


def _minilm(folder: Path) -> Encoder:
    model = SentenceTransformer(str(folder), device="cpu")

    def encode(sentences: Sequence[str], _: Sequence[str]) -> np.ndarray:
        found: np.ndarray = model.encode(list(sentences), normalize_embeddings=True, show_progress_bar=False)
        return found

    return encode


def _bag_of_words(sentences: Sequence[str], counted: Sequence[str]) -> np.ndarray:
    found: np.ndarray = TfidfVectorizer(analyzer=words).fit(counted).transform(sentences).toarray()
    return found


def _word_vectors(training: Sequence[str]) -> Encoder:
    tokenizer = WordTokenizer.build(training, min_count=1)
    table = np.vstack([np.zeros(300, np.float32), learn_word_vectors(training, tokenizer)])

    def encode(sentences: Sequence[str], _: Sequence[str]) -> np.ndarray:
        return _unit(np.stack([table[list(tokenizer.token_ids(text))].sum(axis=0) for text in sentences]))

    return encode


def _unit(rows: np.ndarray) -> np.ndarray:
    found: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def _of_flickr(folder: Path, split: str) -> Captions:
    records = open_dataset(f"flickr8k:{folder}").split(split).records
    return {record.image.name: list(record.sentences) for record in records}


def _of_coco(file: Path) -> Captions:
    found: Captions = {}
    for one in json.loads(file.read_text(encoding="utf-8"))["annotations"]:
        found.setdefault(str(one["image_id"]), []).append(one["caption"])
    return found


def _of_cub(file: Path) -> Captions:
    return {str(one["image_id"]): one["captions"] for one in json.loads(file.read_text(encoding="utf-8"))}


def _of_people(folder: Path) -> Captions:
    # one picture of each, so that nobody's twin of another view is a wrong answer
    found: Captions = {}
    for record in open_dataset(f"cuhk-pedes:{folder}").records:
        found.setdefault(record.group, list(record.sentences))
    return found


if __name__ == "__main__":
    main()
