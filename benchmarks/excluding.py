"""Do searches leave out what they are told to: "a beach without people"?

    python -m benchmarks.excluding photographs RUN FLICKR8K
    python -m benchmarks.excluding people RUN PEOPLE

Each query names one thing that is wanted and one that is not. On Flickr8k (validation) things are groups of words, and
a picture shows one if a sentence of it says so: wanted are pictures of which two sentences name the first and none the
second. On generated people, from their attributes, a garment and a thing that shows or does not. Compared: the whole
sentence as the model reads it, what is wanted alone, both taken apart by vectors (`limner.query_text`,
`limner.search.query_vectors.weighed`) at several weights, the same with the sentence's own embedding as in DEO (arXiv
2603.09185), the projection beside the unwanted (Widdows, ACL 2003), and a penalty on scores.

Printed: mAP of wanted, the share of wanted and of unwanted pictures in the first ten, and the first picture, with 95 %
intervals over queries. A method's weight is chosen by mAP on every second query and told on the others.
"""

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float

import limner
from limner.inference.trained import TrainedModel
from limner.query_text import MINUS

Rows = npt.NDArray[np.floating[Any]]
Scores = npt.NDArray[np.floating[Any]]

_FEWEST = 10
"""Pictures that show both things, and the first alone, for a query of the two."""

_THINGS = {
    "a dog": "dog dogs puppy puppies",
    "people": "people person persons man men woman women boy boys girl girls child children kid kids guy guys lady "
    "toddler baby crowd group player players he she him her biker climber skier surfer couple",
    "a man": "man men guy guys male",
    "a woman": "woman women lady girl girls female",
    "a child": "child children kid kids boy boys girl girls toddler baby",
    "water": "water ocean sea lake river pool wave waves pond stream splash splashes swimming",
    "grass": "grass grassy lawn field",
    "snow": "snow snowy snowboard snowboarder ski skier skis skiing",
    "a beach": "beach sand sandy shore",
    "a ball": "ball tennis soccer football basketball baseball volleyball",
    "a bicycle": "bike bikes bicycle bicycles biker bicyclist cyclist bmx",
    "a motorcycle": "motorcycle motorcycles motorbike dirtbike motocross",
    "a car": "car cars truck vehicle vehicles suv",
    "a street": "street road sidewalk city",
    "trees": "tree trees woods forest wooded branch",
    "rocks": "rock rocks rocky cliff boulder mountain mountains",
    "a hat": "hat hats cap helmet helmets",
    "something red": "red",
    "something blue": "blue",
    "something black": "black",
    "something white": "white",
    "something yellow": "yellow",
    "something green": "green",
    "a stick": "stick sticks branch",
    "a toy": "toy frisbee toys",
    "a skateboard": "skateboard skateboarder skateboarding skateboards",
    "a swing": "swing swinging swings",
    "a crowd": "crowd crowds audience",
    "a building": "building buildings house",
    "sunglasses": "sunglasses glasses goggles",
}
_WORN = {"a hat": "headwear", "a bag": "bag", "a pattern": "pattern"}
_TIMES = 2000


@dataclass(frozen=True)
class Task:
    """Queries as (wanted, unwanted), pictures, and which of them each query wants and does not want."""

    queries: list[tuple[str, str]]
    pictures: list[Path]
    wanted: Bool[np.ndarray, "queries pictures"]
    unwanted: Bool[np.ndarray, "queries pictures"]


def photographs(folder: str) -> Task:
    """Things that sentences of Flickr8k's validation name."""
    records = [one for one in limner.open_dataset(f"flickr8k:{folder}").records if one.split == "val"]
    words = [[set(re.findall(r"[a-z]+", one.lower())) for one in record.sentences] for record in records]
    named = {
        thing: np.array([sum(bool(one & set(listed.split())) for one in said) for said in words])
        for thing, listed in _THINGS.items()
    }
    queries = [
        (first, second)
        for first in _THINGS
        for second in _THINGS
        if not first.startswith("something")
        and not set(_THINGS[first].split()) & set(_THINGS[second].split())
        if np.sum((named[first] >= 2) & (named[second] >= 2)) >= _FEWEST
        if np.sum((named[first] >= 2) & (named[second] == 0)) >= _FEWEST
    ]
    wanted = np.stack([(named[first] >= 2) & (named[second] == 0) for first, second in queries])
    return Task(
        queries,
        [Path(str(one.image)) for one in records],
        wanted,
        np.stack([named[second] >= 1 for _, second in queries]),
    )


def people(folder: str) -> Task:
    """Garments and things of generated people, all of them: the set is to be one that the run has not seen."""
    about = json.loads((Path(folder) / "attributes.json").read_text(encoding="utf-8"))
    views = [(one["attributes"], view) for one in about["identities"] for view in one["views"]]
    shows = {
        f"a {sex} in a {colour} {upper}": np.array(
            [(one["sex"], one["upper_colour"], one["upper"]) == (sex, colour, upper) for one, _ in views]
        )
        for sex, colour, upper in sorted(
            {(one["sex"], one["upper_colour"], one["upper"]) for one, _ in views}
        )
    }
    has = {
        thing: np.array([one[name] is not None and name in view["visible"] for one, view in views])
        for thing, name in _WORN.items()
    }
    queries = [
        (first, second)
        for first in shows
        for second in has
        if np.sum(shows[first] & has[second]) >= 3 and np.sum(shows[first] & ~has[second]) >= 3
    ]
    wanted = np.stack([shows[first] & ~has[second] for first, second in queries])
    pictures = [Path(folder) / "imgs" / view["file_path"] for _, view in views]
    return Task(queries, pictures, wanted, np.stack([has[second] for _, second in queries]))


def scores_of(model: TrainedModel, task: Task) -> dict[str, list[tuple[float, Scores]]]:
    """Scores (queries, pictures) of each method, at each of its weights."""
    images = model.encode_images(task.pictures)
    told = {text: row for pair in task.queries for text in pair for row in (model.encode_queries([text])[0],)}
    first, second = (np.stack([told[pair[place]] for pair in task.queries]) for place in (0, 1))
    whole, having = (
        model.encode_queries([f"{one}{between}{other}" for one, other in task.queries])
        for between in (" without ", " with ")
    )
    no = model.encode_queries([f"{one} with no {other.removeprefix('a ')}" for one, other in task.queries])
    aside = first - np.sum(first * second, 1, keepdims=True) * second
    plain, disliked = first @ images.T, second @ images.T

    def of(rows: Rows) -> Scores:
        scores: Scores = rows / np.linalg.norm(rows, axis=1, keepdims=True) @ images.T
        return scores

    weights = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9)
    return {
        "the sentence, 'without'": [(0, whole @ images.T)],
        "the sentence, 'with no'": [(0, no @ images.T)],
        "what is wanted alone": [(0, plain)],
        "p - n / 2, as searches do": [(-MINUS, of(first + MINUS * second))],
        "p - w n": [(w, of(first - w * second)) for w in weights],
        "p + 0.5 o - w n (DEO)": [(w, of(first + 0.5 * whole - w * second)) for w in weights],
        "p - w (with - p)": [(w, of(first - w * (having - first))) for w in weights],
        "beside n (projection)": [(0, of(aside))],
        "score - w max(0, s(n) - q0.7)": [
            (w, plain - w * np.maximum(0, disliked - np.quantile(disliked, 0.7, axis=1, keepdims=True)))
            for w in (0.5, 1.0, 2.0)
        ],
    }


def measured(scores: Scores, task: Task) -> Float[np.ndarray, "queries 4"]:
    """Of each query: average precision of wanted, wanted and unwanted in the first ten, and the first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    right, wrong = (np.take_along_axis(one, order, 1) for one in (task.wanted, task.unwanted))
    precision = [(np.cumsum(row)[row] / (1 + np.flatnonzero(row))).mean() for row in right]
    return np.stack([precision, right[:, :10].mean(1), wrong[:, :10].mean(1), right[:, 0]], 1)


def main() -> None:
    """Measure a run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("on", choices=["photographs", "people"])
    parser.add_argument("run")
    parser.add_argument("data", help="folder of Flickr8k, or of a set of people that the run has not seen")
    asked = parser.parse_args()
    task = {"photographs": photographs, "people": people}[asked.on](asked.data)
    print(
        f"{len(task.queries)} queries, {len(task.pictures)} pictures, e.g. {' without '.join(task.queries[0])!r}"
    )
    print(f"{'method':34}{'weight':>7}  mAP of wanted, P@10, unwanted in ten, first is wanted")
    draws = np.random.default_rng(0)
    for method, tried in scores_of(limner.load(asked.run, device="cpu"), task).items():
        found = [(weight, measured(scores, task)) for weight, scores in tried]
        weight, best = max(found, key=lambda one: float(one[1][::2, 0].mean()))
        told = best if len(tried) == 1 else best[1::2]
        sampled = np.stack([told[draws.integers(len(told), size=len(told))].mean(0) for _ in range(_TIMES)])
        ends = np.quantile(sampled, [0.025, 0.975], axis=0)
        cells = [
            f"{100 * mean:5.1f} ({100 * low:.1f} to {100 * high:.1f})"
            for mean, low, high in zip(told.mean(0), *ends, strict=True)
        ]
        print(f"{method:34}{weight or '':>7}  {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
