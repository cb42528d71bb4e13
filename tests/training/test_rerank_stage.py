"""Stage 2 of the identity-aware system in the training loop: pairs by stage 1, exact resume, a run that re-ranks."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.inference.checkpoint import read_description
from limner.losses import Sextuple
from limner.training.hard_negatives import EmbeddingBank
from limner.training.log import EpochEnded, Event
from limner.training.loop import train
from limner.training.recipe import OptimiserSettings, PairSettings
from limner.training.rerank_stage import Candidates
from tests.toy import toy_recipe, toy_reranking
from tests.training.interrupted import (
    KilledError,
    killed_and_resumed,
    left_by,
    same_run,
    stopped_and_resumed,
    trained_together,
)


@pytest.mark.parametrize("kill_at", [5, 12, 25, 38, 45])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, reranking_run: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, toy_reranking(), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", reranking_run)


def test_kill_9_in_a_matching_stage(toys: Dataset, reranking_run: Path, tmp_path: Path) -> None:
    killed_and_resumed(toys, toy_reranking(), tmp_path / "run", "stage-2-language 2 2")
    same_run(tmp_path / "run", reranking_run)


def test_what_a_loss_remembers_of_the_embedding_is_still_there_when_resumed(
    toys: Dataset, tmp_path: Path
) -> None:
    recipe = toy_reranking()
    first, language, last = recipe.stages
    first = first.replace(epochs=1, pairing="image", losses=(Sextuple(queue=6),))
    recipe = recipe.replace(stages=(first, language.replace(epochs=1), last.replace(epochs=1)))
    arguments = (recipe, toys.split("train"), toys.split("val"))
    train(*arguments, tmp_path / "whole", cpu=True)

    def killed_after_the_first_epoch_of_the_matcher(event: Event) -> None:
        if isinstance(event, EpochEnded) and event.row["stage"] == language.name:
            raise KilledError

    with pytest.raises(KilledError):
        train(*arguments, tmp_path / "run", listener=killed_after_the_first_epoch_of_the_matcher, cpu=True)
    train(*arguments, tmp_path / "run", resume=True, cpu=True)
    same_run(tmp_path / "run", tmp_path / "whole")


def test_the_embedding_stands_still_and_the_matcher_learns(reranking_run: Path) -> None:
    first, language, last = (load_file(reranking_run / f"{name}.safetensors") for name in _STAGES)
    for name, tensor in first.items():
        assert torch.equal(tensor, language[name])
        assert torch.equal(tensor, last[name])
    assert not any(name.startswith("cross_encoder.") for name in first)
    for name, tensor in language.items():
        if name.startswith("cross_encoder.backbone."):
            assert torch.equal(tensor, first[name.removeprefix("cross_encoder.")])
    moved = {name.split(".")[1] for name, tensor in last.items() if not torch.equal(tensor, language[name])}
    assert moved == {"backbone", "text", "co_attention"}


_STAGES = ("stage-1", "stage-2-language", "stage-2")


def test_checkpoints_say_whether_they_re_rank(reranking_run: Path) -> None:
    matchers = [read_description(reranking_run / f"{name}.safetensors")["cross_encoder"] for name in _STAGES]
    assert matchers[0] is None
    assert matchers[1] == matchers[2] == json.loads(toy_reranking().cross_encoder.model_dump_json())  # type: ignore[union-attr]


def test_the_log_has_the_loss_and_the_error(reranking_run: Path) -> None:
    rows = [
        json.loads(line)
        for line in (reranking_run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["stage"] for row in rows] == ["stage-1"] * 3 + ["stage-2-language"] * 2 + ["stage-2"] * 2
    for row in rows[3:]:
        assert row["loss"] == row["matching"] > 0
        assert 0 <= row["matching_error"] <= 100


def test_pairs_are_found_anew_by_other_views(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[EmbeddingBank] = []
    plain = Candidates.nearest.__func__  # type: ignore[attr-defined]

    def noting(cls: type[Candidates], bank: EmbeddingBank, count: int) -> Candidates:
        found.append(bank)
        chosen: Candidates = plain(cls, bank, count)
        return chosen

    monkeypatch.setattr(Candidates, "nearest", classmethod(noting))
    recipe = toy_reranking()
    once = recipe.stages[1].replace(name="once", reranker_pairs=PairSettings(count=6))
    recipe = recipe.replace(stages=(recipe.stages[0], recipe.stages[1], once))
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    assert len(found) == 3
    assert torch.equal(found[0].texts, found[1].texts)
    assert not torch.equal(found[0].images, found[1].images)


def test_without_stage_1_pairs_are_random_and_everything_is_ranked(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_reranking()
    alone = recipe.stages[2].replace(reranker_pairs=PairSettings(drawn="random", count=4))
    recipe = recipe.replace(stages=(alone,), rerank="all")
    run = limner.load(train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True))
    assert run.rerank == "all"


def test_two_processes_end_with_one_matcher(toys: Dataset, tmp_path: Path) -> None:
    trained_together(2, toys, toy_reranking(), tmp_path / "run", watched=_LEARNT)
    one, other = left_by(tmp_path / "run")
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


_LEARNT = """
from limner.training import loop

plain = loop._Training.run


def run(self):
    plain(self)
    saved({name: value.detach() for name, value in self.model.cross_encoder.named_parameters()})


loop._Training.run = run
"""


def test_what_does_not_fit_is_refused() -> None:
    recipe = toy_reranking()
    first, language, last = recipe.stages
    for changes, message in (
        ({"stages": (language, first)}, "come after those of the embedding"),
        ({"cross_encoder": None}, "there is no `cross_encoder`"),
        ({"model": toy_recipe().model}, "model.system=identity-aware"),
        (
            {"stages": (first.replace(frozen=()), {**last.model_dump(), "frozen": ["text_projection"]})},
            "no part 'text_projection'",
        ),
        ({"rerank": -1}, "rerank"),
        ({"rerank": 0}, "would not ask the cross-encoder"),
    ):
        with pytest.raises(SettingsError, match=message):
            recipe.replace(**changes)
    with pytest.raises(SettingsError, match=r"'stage-1': frozen: .* no part 'co_attention'"):
        recipe.replace(stages=(first.replace(frozen=("co_attention",)),))
    own = {"image_projection": OptimiserSettings()}
    with pytest.raises(SettingsError, match=r"'stage-2': part_optimisers: .* no part 'image_projection'"):
        recipe.replace(stages=(first, last.replace(part_optimisers=own)))
    scaled = last.replace(optimiser=OptimiserSettings(multipliers={"classifier": 0.1}))
    with pytest.raises(SettingsError, match=r"'stage-2': multipliers: .* no part 'classifier'"):
        recipe.replace(stages=(first, scaled))
