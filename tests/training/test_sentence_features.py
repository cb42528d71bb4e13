"""What a fixed BERT gives for training sentences, kept on disk, and stages that read it there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from limner.data.records import Dataset
from limner.data.token_rows import lay_out
from limner.errors import DataError
from limner.models.text_bert import BertSettings, BertWords
from limner.training import sentence_features as module
from limner.training.loop import train
from limner.training.objective import Objective, TrainingBatch
from limner.training.recipe import Recipe
from limner.training.sentence_features import sentence_features
from tests.toy import toy_hgan
from tests.training.interrupted import stopped_and_resumed

SENTENCES = ((3, 4, 1), (), (2,), (5, 6, 1, 2, 3, 4), (7,))
SMALL = BertSettings(model=None, width=8, layers=4, heads=2)


@pytest.fixture
def bert() -> BertWords:
    torch.manual_seed(0)
    return BertWords(SMALL, vocabulary_size=7).train()


def kept(
    bert: BertWords, folder: Path, sentences: tuple[tuple[int, ...], ...] = SENTENCES, **more: Any
) -> np.ndarray:
    features = sentence_features(bert, sentences, 5, precision="fp32", folder=folder, **more)
    return features.rows(np.arange(len(sentences)), 5)


def test_equals_bert_on_each_sentence_alone(bert: BertWords, tmp_path: Path) -> None:
    found = kept(bert, tmp_path)
    assert bert.training
    bert.eval()
    for row, sentence in zip(found, SENTENCES, strict=True):
        with torch.no_grad():
            alone = bert(torch.from_numpy(lay_out([sentence], 5)))[0]
        np.testing.assert_allclose(row, alone, atol=5e-3)
        assert not row[len(sentence) :].any()


def test_rows_are_those_asked_for(bert: BertWords, tmp_path: Path) -> None:
    features = sentence_features(bert, SENTENCES, 5, precision="fp32", folder=tmp_path)
    every = features.rows(np.arange(5), 5)
    np.testing.assert_array_equal(features.rows(np.array([4, 0, 4]), 5), every[[4, 0, 4]])


def test_sentences_without_any_word(bert: BertWords, tmp_path: Path) -> None:
    assert not kept(bert, tmp_path, ((), ())).any()


def test_interrupted_computation_goes_on_where_it_stopped(
    bert: BertWords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 1)
    monkeypatch.setattr(module, "_NOTED", 2)
    whole = kept(bert, tmp_path / "whole")

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(bert, tmp_path / "cache", report=stop)
    reported: list[int] = []
    again = kept(bert, tmp_path / "cache", report=lambda done, total: reported.append(done))
    assert reported == [3, 4, 5]
    np.testing.assert_array_equal(again, whole)


def test_key_changes_with_whatever_changes_the_features(bert: BertWords, tmp_path: Path) -> None:
    def entries() -> int:
        return len(list(tmp_path.glob("*.npy")))

    kept(bert, tmp_path)
    kept(bert, tmp_path)
    assert entries() == 1
    kept(bert, tmp_path, SENTENCES[:4])
    assert entries() == 2
    with torch.no_grad():
        next(bert.bert.parameters()).add_(0.5)
    kept(bert, tmp_path)
    assert entries() == 3
    bert.pieces[1, 0] = 2
    kept(bert, tmp_path)
    assert entries() == 4


def test_more_than_the_cache_may_hold_is_refused(
    bert: BertWords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMNER_CACHE_GB", "0.0000001")
    with pytest.raises(DataError, match=r"features of 10 words take .* the stage's views to 0"):
        kept(bert, tmp_path)


def fixed_bert(*, views: int) -> Recipe:
    """The toy recipe's first stage with a BERT at random that is held fixed."""
    one = toy_hgan()
    return one.replace(
        model=one.model.replace(text=one.model.text.replace(bert=SMALL)),
        stages=(one.stages[0].replace(frozen=("backbone", "bert"), views=views),),
    )


def losses(recipe: Recipe, toys: Dataset, out: Path) -> list[float]:
    train(recipe, toys.split("train"), toys.split("val"), out, cpu=True)
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_stage_with_a_fixed_bert_does_not_run_it(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[torch.Tensor] = []
    plain, run = Objective.forward, BertWords.forward

    def forward(self: Objective, batch: TrainingBatch) -> dict[str, torch.Tensor]:
        assert batch.words_below is not None
        steps.append(batch.words_below)
        monkeypatch.setattr(BertWords, "forward", None)
        found = plain(self, batch)
        monkeypatch.setattr(BertWords, "forward", run)
        return found

    monkeypatch.setattr(Objective, "forward", forward)
    losses(fixed_bert(views=2), toys, tmp_path / "run")
    assert {step.dtype for step in steps} == {torch.float16}


def test_words_of_a_step_are_those_of_its_sentences(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Objective.forward

    def forward(self: Objective, batch: TrainingBatch) -> dict[str, torch.Tensor]:
        assert batch.words_below is not None
        bert = self.model.text.get_submodule("bert")
        with torch.no_grad():
            torch.testing.assert_close(batch.words_below.float(), bert(batch.token_ids), atol=5e-3, rtol=1e-2)
        return plain(self, batch)

    monkeypatch.setattr(Objective, "forward", forward)
    recipe = fixed_bert(views=2).replace(precision="fp32")
    losses(recipe, toys, tmp_path / "run")


def test_stopped_and_resumed_is_the_uninterrupted_run(toys: Dataset, tmp_path: Path) -> None:
    recipe = fixed_bert(views=2)
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=3)
    for file in ("last.safetensors", "stage-1.safetensors"):
        ours, theirs = load_file(tmp_path / "run" / file), load_file(tmp_path / "whole" / file)
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name]), name
