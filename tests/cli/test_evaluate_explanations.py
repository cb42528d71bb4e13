"""Explanations of a whole run: what is planted, what is scored, and the errors."""

import json
from pathlib import Path

import numpy as np
import pytest

from limner.data.picture_truth import PictureTruth
from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.errors import DataError
from limner.inference.evaluate_explanations import colour_places, evaluate_explanations
from limner.inference.load import load_model
from limner.inference.word_effects import LeaveOneOut
from limner.people import generate_people
from tests.cli.command import Limner, refused


def truth_of(dataset: Dataset) -> list[PictureTruth]:
    """A toy's colour stands first in its group; the shape is in the middle of the picture."""
    mask = np.zeros((36, 40), bool)
    mask[12:24, 10:30] = True
    names = ("red", "green", "blue", "yellow")
    return [
        PictureTruth(
            frozenset(record.group.split()),
            names,
            {"square": "shape", "bar": "shape"},
            lambda: {"shape": mask},
        )
        for record in dataset.records
    ]


def test_colours_of_hair_are_no_garments() -> None:
    words = [
        *("a", "man", "with", "grey", "hair", "in", "a", "red", "and", "white", "coat", "has", "a"),
        *("brown", "ponytail"),
    ]
    assert [words[place] for place in colour_places(words)] == ["red", "white"]


def test_a_toy_run_is_measured(toy_run: Path, toys: Dataset) -> None:
    run = load_model(toy_run, device="cpu")
    asked: list[list[str]] = []
    counted: list[tuple[str, int, int]] = []

    class Counting(LeaveOneOut):
        def design(self, words, known):  # type: ignore[no-untyped-def]
            asked.append(list(words))
            return super().design(words, known)

    report = evaluate_explanations(
        run,
        toys.split("test"),
        "test",
        truth_of,
        methods={"leave-one-out": Counting()},
        pairs=5,
        progress=lambda *one: counted.append(one),
    )
    assert report.counts == {"pictures": 5, "identities": 5, "planted words": 5}
    # of each pair first the true text, then the one with a planted word: one word differs, and it is false
    for true, lie in zip(asked[::2], asked[1::2], strict=True):
        differing = [(old, new) for old, new in zip(true, lie, strict=True) if old != new]
        assert len(differing) == 1
        assert set(differing[0]) <= {"red", "green", "blue", "yellow", "white", "grey", "black"}
        assert differing[0][1] not in true
    figures = report.methods["leave-one-out"]
    assert 0 <= figures["planted_auc"].value <= 1
    assert figures["deletion"].value < report.methods["random"]["deletion"].value + 0.2
    assert report.passes == {
        "leave-one-out": pytest.approx(np.mean([len(words) + 1 for words in asked[::2]]))
    }
    assert ("explanations", 5, 5) in counted
    assert report.attention == {}
    again = evaluate_explanations(
        run, toys.split("test"), "test", truth_of, methods={"leave-one-out": LeaveOneOut()}, pairs=5
    )
    assert again.methods == report.methods


@pytest.mark.parametrize("name", ["reranking_run", "hgan_run"])
def test_attention_points_somewhere(name: str, toys: Dataset, request: pytest.FixtureRequest) -> None:
    run = load_model(request.getfixturevalue(name), device="cpu")
    report = evaluate_explanations(run, toys.split("test"), "test", truth_of, methods={}, pairs=6)
    figures = report.attention["all"]
    assert list(report.attention) == ["all", "shape"]
    assert figures["chance"].value == pytest.approx(100 * 12 * 20 / (36 * 40))
    assert 0 <= figures["pointing"].value <= figures["best"].value


def test_without_a_colour_or_a_truth_there_is_one_error(
    toy_run: Path, toys: Dataset, limner: Limner, tmp_path: Path
) -> None:
    run = load_model(toy_run, device="cpu")

    def knows_none(dataset: Dataset) -> list[PictureTruth]:
        return [PictureTruth(frozenset(), (), {}, dict) for _ in dataset.records]

    with pytest.raises(DataError, match="no sentence of split 'test' names a colour"):
        evaluate_explanations(run, toys.split("test"), "test", knows_none)
    command = ("evaluate", toy_run, "--data", toys.source, "--explanations")
    refused(limner(*command), "`limner data people` draws such a set")
    refused(limner(*command, "--measures", "R@1"), "--explanations: goes with")


def test_from_the_command_line(toy_run: Path, limner: Limner, tmp_path: Path) -> None:
    generate_people(tmp_path / "people", 4, seed=1, val=1, test=2, views=(1, 1))
    data, file = f"cuhk-pedes:{tmp_path / 'people'}", tmp_path / "report.json"
    said = limner("evaluate", toy_run, "--data", data, "--explanations", "--report", file, "--json")
    told = json.loads(said.out)
    assert told == json.loads(file.read_text())
    assert told["split"] == "test"
    assert set(told["methods"]) == {"random", "leave-one-out", "masked-regression", "substitution"}
    assert told["counts"]["pictures"] == len(open_dataset(data).split("test"))
    assert told["provenance"]["evaluations_of_split"] == 1
    assert told["provenance"]["precision"] == "fp32"
