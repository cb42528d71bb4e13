"""`limner bench` on toys: runs, embeddings, written sets, and mistakes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import limner as limner_package
from limner.cli import bench as module
from limner.data.minimal_pairs import PairSet, read_pairs
from limner.evaluation.minimal_pairs import read_embeddings
from limner.people.lies import draw_lies
from tests.cli.command import Limner, refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lies") / "set"
    draw_lies(12).write(out)
    return out


def test_a_run_and_its_embeddings_have_the_same_figures(
    limner: Limner, toy_run: Path, folder: Path, tmp_path: Path
) -> None:
    arrays, report = tmp_path / "ours.npz", tmp_path / "report.json"
    ran = limner(
        "bench", toy_run, "--pairs", folder, "--save", arrays, "--report", report, "--details", "--cpu"
    )
    assert ran.code == 0, ran.err
    assert "binding" in ran.out
    assert "upper colour" in ran.out
    assert "chance: image → text R@1" in " ".join(ran.out.split())
    # toys know few words of people, and are told so
    assert "does not know" in ran.err
    assert "and cannot see the lie" in ran.err
    of_run = json.loads(report.read_text(encoding="utf-8"))
    assert "handbag" in of_run["unknown_words"]
    assert of_run["kinds"]["left/right"]["unread"] == of_run["kinds"]["left/right"]["cases"]
    of_arrays = json.loads(limner("bench", arrays, "--pairs", folder, "--json").out)["measured"]
    for kind, figures in of_run["kinds"].items():
        other = of_arrays["kinds"][kind]
        assert {**other, "unread": 0} == {**figures, "unread": 0}
    assert of_arrays["retrieval"]["text_to_image"] == of_run["retrieval"]["text_to_image"]
    assert of_arrays["unknown_words"] is None
    # and from Python
    pairs = read_pairs(folder)
    images, sentences = read_embeddings(arrays, pairs)
    for model in (toy_run, (images, sentences)):
        found = limner_package.bench(model, folder)
        assert found.kinds["binding"].accuracy == of_run["kinds"]["binding"]["accuracy"]
    with pytest.raises(limner_package.LimnerError, match="must be floats of"):
        limner_package.bench((images[:3], sentences), pairs)
    with pytest.raises(limner_package.LimnerError, match="no reranker"):
        limner_package.bench((images, sentences), pairs, rerank=5)


def test_a_reranker_scores_the_pairs_unless_it_is_left_out(
    limner: Limner, reranking_run: Path, folder: Path
) -> None:
    figures = {}
    for first in (None, 0):
        more = () if first is None else ("--rerank", first)
        done = limner("bench", reranking_run, "--pairs", folder, "--json", "--cpu", *more)
        assert done.code == 0, done.err
        measured = json.loads(done.out)["measured"]
        assert measured["provenance"]["reranked"] == (5 if first is None else 0)
        assert ("re-ranked" in measured["retrieval"]["protocol"]) == (first is None)
        figures[first] = [of["accuracy"] for of in measured["kinds"].values()]
    assert figures[None] != figures[0]


def test_hgan_is_measured_with_its_levels(limner: Limner, hgan_run: Path, folder: Path) -> None:
    measured = json.loads(limner("bench", hgan_run, "--pairs", folder, "--json", "--cpu").out)["measured"]
    assert measured["provenance"]["reranked"] != 0


def test_the_set_is_drawn_and_written(
    limner: Limner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(progress: object = None, workers: int = 1) -> PairSet:
        assert workers == (os.cpu_count() or 1)
        return draw_lies(12)

    monkeypatch.setattr("limner.people.draw_lies", few)
    done = limner("bench", "--write", tmp_path / "set", "--json")
    assert done.code == 0
    assert "this machine draws another set than version 1" in done.err
    told = json.loads(done.out)
    assert told["measured"] is None
    written = read_pairs(tmp_path / "set")
    assert (len(written.images), len(written.pairs), written.digest) == (
        told["pictures"],
        told["cases"],
        told["digest"],
    )


def test_mistakes_are_one_line_before_anything_is_drawn(
    limner: Limner, toy_run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_pairs", lambda folder: pytest.fail("drawn"))
    refused(limner("bench"), "give MODEL or --write")
    refused(limner("bench", tmp_path / "none.npz"), "no such file")
    refused(limner("bench", tmp_path), "no trained run here")
    refused(limner("bench", toy_run, "--save", tmp_path / "no" / "a.npz"), "there is no such folder")
    refused(limner("bench", "--write", folder), "is not an empty folder")
    np.savez(tmp_path / "a.npz", images=np.ones((1, 1)))
    refused(limner("bench", tmp_path / "a.npz", "--rerank", 5), "are for a run")
    monkeypatch.undo()
    refused(limner("bench", tmp_path / "a.npz", "--pairs", folder), "lacks the array 'sentences'")
    refused(limner("bench", toy_run, "--pairs", tmp_path), r"no cases\.json here")
    refused(limner("bench", toy_run, "--pairs", folder, "--rerank", 5), "has no reranker")
