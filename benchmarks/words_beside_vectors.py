"""Do words beside vectors help, and whom do they harm?

    python -m benchmarks.words_beside_vectors RUN FLICKR8K

A store of Flickr8k's validation in which three sentences of every second picture are kept, and one in which two
sentences of each picture are; asked are the other sentences of all pictures, by vectors alone and by both. Then names:
each picture has a file name, every tenth a person, an invoice or a place that is drawn at random, and each of these is
asked for. Printed: R@1 and R@10 with 95 % intervals of the difference over pictures, by whether a picture has a
sentence, the share of names at rank 1, and the seconds that the index of words took.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

import limner
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store

_PEOPLE = ("Anna Berg", "Jürgen Öz", "Mai Nguyễn", "Tomás Vila", "Ida Holm", "Wei Zhang", "Noor Haddad")
_PLACES = ("Lake Bled", "Oslo", "Hội An", "Café Uhu", "Pier 39", "Sankt Pölten")
_TIMES = 2000
_MOST = 10

Asked = Sequence[tuple[str, str]]
"""Texts, each with the path of its picture."""


def ranks(store: Store, asked: Asked, *, words: bool) -> Int[np.ndarray, " asked"]:
    """The rank of the picture of each text, from 1; 11 behind the first ten."""
    answers = store.search_many([text for text, _ in asked], k=_MOST, words=words)
    return np.array(
        [
            next((hit.rank for hit in answer if str(hit.path) == path), _MOST + 1)
            for answer, (_, path) in zip(answers, asked, strict=True)
        ]
    )


def compare(name: str, store: Store, asked: Asked) -> None:
    """Print R@1 and R@10 of vectors alone and of both, and 95 % intervals of the difference."""
    alone, both = (ranks(store, asked, words=words) for words in (False, True))
    draws = np.random.default_rng(0).integers(len(asked), size=(_TIMES, len(asked)))
    cells = [f"{name:34} {len(asked):5} texts"]
    for k in (1, _MOST):
        before, after = 100.0 * (alone <= k), 100.0 * (both <= k)
        low, high = np.quantile((after - before)[draws].mean(1), [0.025, 0.975])
        cells.append(f"R@{k} {before.mean():5.1f} -> {after.mean():5.1f} ({low:+.1f} to {high:+.1f})")
    print("  ".join(cells), flush=True)


def main() -> None:
    """Measure a run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("flickr8k")
    asked = parser.parse_args()
    records = [one for one in limner.open_dataset(f"flickr8k:{asked.flickr8k}").records if one.split == "val"]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        said: dict[str, Sequence[str]] = {}
        names: list[tuple[str, str]] = []
        facts: dict[str, Mapping[str, str]] = {}
        for number, record in enumerate(records):
            number_of_shot = int(rng.integers(10_000, 10_000_000))
            place = Path(folder) / "pictures" / f"IMG_{number_of_shot}.jpg"
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(Path(str(record.image)).resolve())
            said[str(place)] = record.sentences
            if number % 10 == 0:
                invoice = f"invoice {number_of_shot % 10_000}-{number}"
                person, where = (listed[int(rng.integers(len(listed)))] for listed in (_PEOPLE, _PLACES))
                facts[str(place)] = {
                    "identity": f"{person} {number}",
                    "title": f"{where} {number}",
                    "paper": invoice,
                }
                for text in (
                    str(number_of_shot),
                    f"img {number_of_shot}",
                    f"{person} {number}",
                    invoice,
                    f"{where} {number}",
                ):
                    names.append((text, str(place)))
        limner.index(asked.run, Path(folder) / "store", [Path(folder) / "pictures"], metadata=facts)
        store = limner.open_store(Path(folder) / "store")
        paths = sorted(said)
        half = set(np.array(paths)[rng.permutation(len(paths))[: len(paths) // 2]].tolist())
        began = time.process_time()
        store.search("a dog", words=True)
        took = time.process_time() - began
        print(f"the index of words of {len(paths)} pictures: {took:.2f} s of CPU time, the search included")
        compare("names and numbers, no sentences", store, names)
        keep(store, {path: said[path][:3] for path in half})
        compare(
            "half of the pictures have sentences",
            store,
            [(text, path) for path in paths for text in said[path][3:]],
        )
        compare(
            "  of these, pictures with",
            store,
            [(text, path) for path in sorted(half) for text in said[path][3:]],
        )
        rest = [path for path in paths if path not in half]
        compare(
            "  of these, pictures without", store, [(text, path) for path in rest for text in said[path][3:]]
        )
        keep(store, {path: said[path][:2] for path in paths})
        compare("all have two sentences", store, [(text, path) for path in paths for text in said[path][2:]])
        compare("names and numbers, with sentences", store, names)


def keep(store: Store, said: Mapping[str, Sequence[str]]) -> None:
    """Let the store have these sentences of its pictures."""
    sentences = [Sentence(text, path) for path, texts in said.items() for text in texts]
    SentenceTable(store.files).index(store.engine.encoder, sentences)


if __name__ == "__main__":
    main()
