"""HGAN in the training loop: all levels at once, from cached maps and from pixels."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.losses import Levels, Ranking, Sextuple
from limner.models.hgan import HGANSettings
from limner.training.loop import train
from limner.training.objective import Objective, TrainingBatch
from limner.training.prepare import prepare
from limner.training.recipe import Recipe
from tests.toy import toy_hgan, toy_recipe
from tests.training.interrupted import killed_and_resumed, same_run, stopped_and_resumed, trained_together


@pytest.mark.parametrize("kill_at", [2, 4, 6, 9])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, hgan_run: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, toy_hgan(), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", hgan_run)


def test_kill_9_draws_the_same_noise(toys: Dataset, hgan_run: Path, tmp_path: Path) -> None:
    killed_and_resumed(toys, toy_hgan(), tmp_path / "run", "stage-2 1 2")
    same_run(tmp_path / "run", hgan_run)


def test_every_loss_is_logged_and_falls_together(hgan_run: Path) -> None:
    rows = [json.loads(line) for line in (hgan_run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        parts = [row[name] for name in ("visual", "textual", "pair", "word", "phrase")]
        assert row["loss"] == pytest.approx(sum(parts), rel=1e-5)
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_words_phrases_and_groups_of_a_step_belong_together(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[TrainingBatch] = []
    plain = Objective.forward

    def forward(self: Objective, batch: TrainingBatch) -> dict[str, torch.Tensor]:
        steps.append(copy.deepcopy(batch))
        return plain(self, batch)

    monkeypatch.setattr(Objective, "forward", forward)
    train(toy_hgan(), toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    pairs = prepare(toy_hgan(), toys.split("train"), toys.split("val")).pairs
    said = {
        sentence + (0,) * (10 - len(sentence)): (group, phrases)
        for sentence, phrases, group in zip(
            pairs.sentences, pairs.phrases or (), pairs.groups[pairs.sentence_image].tolist(), strict=True
        )
    }
    for batch in steps:
        assert batch.phrases is not None
        for row, numbered, group in zip(
            batch.token_ids.tolist(), batch.phrases.tolist(), batch.groups.tolist(), strict=True
        ):
            own_group, own_phrases = said[tuple(row)]
            assert group == own_group
            assert tuple(numbered[: len(own_phrases)]) == own_phrases
        numbers, phrases = batch.token_ids.numpy(), batch.phrases.numpy()
        assert phrases.shape == numbers.shape
        assert not phrases[numbers == 0].any()
        # a red bar | white, or white ground | a bar | red
        assert np.isin(phrases.max(axis=1), (2, 3)).all()
    assert {batch.images.dtype for batch in steps} == {torch.float16, torch.uint8}


def test_words_of_a_picture_that_stands_once_are_those_of_each_row(toys: Dataset) -> None:
    data = prepare(toy_hgan(), toys.split("train"), toys.split("val"))
    objective, losses = data.objective.eval(), toy_hgan().stages[0].losses
    objective.use(losses)
    pictures = torch.from_numpy(data.train_pictures.centred(range(2))).permute(0, 3, 1, 2)
    chosen, shown = np.array([0, 1, 2, 3]), torch.tensor([1, 0, 1, 0])
    groups = torch.from_numpy(data.pairs.groups)[shown]
    rows = TrainingBatch(
        pictures[shown],
        torch.from_numpy(data.pairs.layout(chosen, 10, None)),
        groups,
        groups,
        phrases=torch.from_numpy(data.pairs.phrase_layout(chosen, 10)),
    )
    expected = objective(rows)
    found = objective(replace(rows, images=pictures, shown=shown))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_stage_of_the_sentence_level_alone_learns_nothing_of_the_others(
    toys: Dataset, tmp_path: Path
) -> None:
    one = toy_hgan()
    first = one.stages[0]
    recipe = one.replace(model=one.model.replace(levels=()), stages=(first.without_losses(Levels),))
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert "word" not in rows[0]
    assert np.isfinite(rows[-1]["score"])


def test_which_side_selects_changes_what_is_learnt(toys: Dataset, tmp_path: Path) -> None:
    recipe, found = toy_hgan(), {}
    assert isinstance(recipe.model, HGANSettings)
    for selects in ("regions", "words"):
        local = recipe.model.local.replace(selects=selects)
        own = recipe.replace(
            model=recipe.model.replace(local=local), stages=(recipe.stages[0].replace(epochs=1),)
        )
        out = train(own, toys.split("train"), toys.split("val"), tmp_path / selects, cpu=True)
        found[selects] = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
        assert np.isfinite(found[selects]["score"])
    assert found["regions"]["word"] != found["words"]["word"]


def refused(recipe: Recipe, **changes: object) -> str:
    with pytest.raises(SettingsError) as error:
        recipe.replace(stages=(recipe.stages[0].replace(**changes),))
    return str(error.value)


def test_what_does_not_go_together_is_refused() -> None:
    hgan, dual = toy_hgan(), toy_recipe()
    losses = hgan.stages[0].losses
    ranking = Ranking(candidates=6)
    assert "position_shift=false" in refused(hgan, position_shift=True)
    for loss, need in ((Sextuple(), "sextuples"), (ranking, "mined")):
        assert f"needs {need}, which model.system=hgan does not" in refused(hgan, losses=(*losses, loss))
    assert "model.system=hgan" in refused(dual, losses=losses)
    assert "no part 'bert'" in refused(dual, frozen=("backbone", "bert"))
    with pytest.raises(SettingsError, match="'word' among"):
        hgan.replace(model=hgan.model.replace(levels=("phrase",)))


def test_what_is_frozen_is_there_and_leaves_something_to_learn() -> None:
    recipe = toy_hgan()
    first = recipe.stages[0]
    everything = ("backbone", "image_projection", "words", "text", "text_projection", "classifier")
    assert "no part 'bert'" in refused(recipe, frozen=("bert",))
    recipe.replace(stages=(first.replace(frozen=everything),))  # what is local learns
    whole = first.without_losses(Levels).losses
    assert "nothing is left to learn" in refused(recipe, frozen=everything, losses=whole)


def test_two_processes_train_a_network_that_the_losses_reach_in_part(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_hgan()
    first = recipe.stages[0].with_losses(Levels(phrase=0))
    trained_together(2, toys, recipe.replace(stages=(first,)), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == first.epochs
    assert np.isfinite([row["loss"] for row in rows]).all()
