import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError, DataError, SettingsError
from limner.losses import Instance, Ranking
from limner.recipes.change import change
from limner.training.loop import train
from limner.training.recipe import VocabularySettings
from limner.training.state import StateTimes
from tests.toy import toy_recipe
from tests.training.interrupted import (
    STATE,
    KilledError,
    in_torchrun,
    in_two_processes,
    killed_and_resumed,
    run_apart,
    same_run,
    stopped_and_resumed,
)


def test_learnt_scales_go_on_in_the_next_stage_and_after_a_resume(toys: Dataset, tmp_path: Path) -> None:
    recipe = change(
        toy_recipe(),
        [
            *(
                f"stages.{stage}.losses.{kind}={{}}"
                for stage in ("stage-1", "stage-2")
                for kind in ("contrastive", "siglip", "tal", "circle")
            ),
            'stages.stage-2.frozen=["siglip_scale"]',
        ],
    )
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    first, second = (
        {
            part: load_file(tmp_path / "whole" / f"{stage}-{part}.safetensors")
            for part in ("contrastive_scale", "siglip_scale")
        }
        for stage in ("stage-1", "stage-2")
    )
    assert first["contrastive_scale"]["log_scale"] != pytest.approx(-math.log(0.07), abs=1e-6)
    assert first["siglip_scale"]["bias"] != -10
    # it went on in stage 2, and what is frozen there is what stage 1 handed on
    assert second["contrastive_scale"]["log_scale"] != first["contrastive_scale"]["log_scale"]
    assert second["siglip_scale"] == first["siglip_scale"]
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=10)
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("kill_at", [1, 3, 4, 6, 7, 10, 13])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, toy_run: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, toy_recipe(), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", toy_run)


@pytest.mark.parametrize("kill_at", [4, 6, 10, 13])
def test_stopped_and_resumed_where_not_every_epoch_has_a_state(
    toys: Dataset, toy_run: Path, tmp_path: Path, kill_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where it was validated, as with a state that takes long."""
    monkeypatch.setattr(StateTimes, "is_due", lambda times, now: False)
    recipe = toy_recipe()
    recipe = recipe.replace(stages=tuple(stage.replace(validate_every=3) for stage in recipe.stages))
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", tmp_path / "whole")


def test_kill_9_and_resume_is_the_uninterrupted_run(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    killed_and_resumed(toys, toy_recipe(), tmp_path / "run", "stage-1 3 1")
    same_run(tmp_path / "run", toy_run)


def test_kill_9_of_a_run_with_every_departure_switched_on(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_recipe()
    first, second = recipe.stages
    first = first.replace(epochs=2, sentences="all", position_shift=False)
    first, second = (
        stage.with_losses(Instance(dropout=0.2, scale=10.0, bias=True, initial="images", sample=0.5))
        for stage in (first, second)
    )
    recipe = recipe.replace(
        model=recipe.model.replace(text=recipe.model.text.replace(word_dropout=0.2, start="bag-of-words")),
        vocabulary=VocabularySettings(vectors="captions"),
        precision="bf16",
        stages=(
            first,
            second.replace(
                sentences="all",
                backbone_from="layer4.1",
                backbone_statistics="fixed",
                schedule={"kind": "cosine"},
            ),
        ),
    )
    run_apart(toys, recipe, tmp_path / "whole")
    killed_and_resumed(toys, recipe, tmp_path / "run", "stage-1 1 2", "stage-2 1 1", "stage-2 2 3")
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("views", [0, 2])
def test_stopped_and_resumed_with_the_sentences_of_a_picture_together(
    toys: Dataset, tmp_path: Path, views: int
) -> None:
    recipe = toy_recipe()
    stages = tuple(
        stage.replace(
            sentences="together", views=views, losses=(Ranking(margin=0.2, candidates=3), *stage.losses)
        )
        for stage in (stage.without_losses(Ranking) for stage in recipe.stages)
    )
    recipe = recipe.replace(stages=stages)
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=3)
    same_run(tmp_path / "run", tmp_path / "whole")


def test_killed_while_the_first_state_is_written(
    toys: Dataset, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KilledError

    arguments = (toy_recipe(), toys.split("train"), toys.split("val"), tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr("limner.training.loop.write_state", killed)
        with pytest.raises(KilledError):
            train(*arguments, cpu=True)
    train(*arguments, resume=True, cpu=True)
    same_run(tmp_path / "run", toy_run)


def test_two_processes_train_and_leave_a_finished_run_alone(toys: Dataset, tmp_path: Path) -> None:
    arguments = [
        *("-m", "limner", "train", "dual-path", "--cpu", "--data", f"folder:{toys.records[0].image.parent}"),
        *("--out", str(tmp_path / "run"), "--resume"),
        *(part for setting in TWO_PROCESSES for part in ("--set", setting)),
    ]
    done = in_torchrun(*arguments, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["stage"] for row in rows] == ["stage-1", "stage-2"]
    scale = load_file(tmp_path / "run" / "stage-2-contrastive_scale.safetensors")["log_scale"].item()
    assert scale != pytest.approx(-math.log(0.07), abs=1e-6)
    again = in_two_processes(*arguments, cache=tmp_path / "cache")
    assert again.returncode == 0, again.stderr
    assert limner.load(tmp_path / "run", device="cpu").encode_texts(["a red bar"]).shape == (1, 16)


TWO_PROCESSES = (
    *("model.backbone.name=resnet-18", "model.backbone.weights=null", "model.backbone.width=0.125"),
    *("model.text.words=10", "model.text.word_dim=12", "model.text.width=0.03125", "model.dim=16"),
    *("images.resize=[36,36]", "images.crop=[32,32]"),
    *("stages.stage-1.epochs=1", "stages.stage-1.batch=8", "stages.stage-1.views=2"),
    # each process draws rows of its own, and their gradients are joined apart from the others
    "stages.stage-1.losses.instance.sample=0.5",
    *("stages.stage-2.epochs=1", "stages.stage-2.batch=8"),
    # learnt scales are single numbers, whose gradients are averaged as well
    *("stages.stage-2.losses.contrastive={}", "stages.stage-2.losses.siglip={}"),
)


def test_run_folder_names_the_best_of_validation(toy_run: Path) -> None:
    listing = json.loads((toy_run / "run.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (toy_run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["stage"], row["epoch"]) for row in rows] == [
        ("stage-1", 1),
        ("stage-1", 2),
        ("stage-1", 3),
        ("stage-2", 1),
        ("stage-2", 2),
    ]
    best = max(row["score"] for row in rows)
    chosen = next(stage for stage in listing["stages"] if stage["file"] == listing["best"])
    assert chosen["score"] == best
    assert listing["selected_on"] == "val"


def test_finished_run_is_left_alone(toys: Dataset, toy_run: Path) -> None:
    before = (toy_run / STATE).read_bytes()
    train(toy_recipe(), toys.split("train"), toys.split("val"), toy_run, resume=True, cpu=True)
    assert (toy_run / STATE).read_bytes() == before


def test_refusals(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    train_split, val_split = toys.split("train"), toys.split("val")
    with pytest.raises(CheckpointError, match="--resume"):
        train(toy_recipe(), train_split, val_split, toy_run, cpu=True)
    with pytest.raises(CheckpointError, match=r"cannot resume, recipe\.seed is 4 now and was 3"):
        train(toy_recipe().replace(seed=4), train_split, val_split, toy_run, resume=True, cpu=True)
    with pytest.raises(DataError, match="test split"):
        train(toy_recipe(), train_split, toys.split("test"), tmp_path / "leak", cpu=True)


def test_diverging_loss_is_one_clear_error(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_recipe()
    first, second = recipe.stages
    wild = first.replace(
        optimiser=first.optimiser.replace(name="sgd", rate=1e30), losses=(Instance(dropout=0.2),)
    )
    with pytest.raises(CheckpointError, match=r"the loss became .* in stage 'stage-1'"):
        train(
            recipe.replace(stages=(wild, second)),
            toys.split("train"),
            toys.split("val"),
            tmp_path / "r",
            cpu=True,
        )


def test_pseudo_classes_and_classifier_start(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_recipe()
    first = recipe.stages[0].with_losses(Instance(dropout=0.2, scale=10.0, initial="images"))
    recipe = recipe.replace(classes=5, stages=(first,))
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "r", cpu=True)
    assert load_file(out / "stage-1-classifier.safetensors")["weight"].shape == (5, 16)


@pytest.mark.parametrize("views", [0, 3])
def test_last_layers_of_the_backbone_learn_alone(toys: Dataset, tmp_path: Path, views: int) -> None:
    recipe = toy_recipe()
    first, second = recipe.stages
    second = second.replace(backbone_from="layer4.1", backbone_statistics="fixed", views=views)
    recipe = recipe.replace(stages=(first.replace(epochs=1), second.replace(epochs=1)))
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "r", cpu=True)
    before, after = (load_file(out / f"stage-{number}.safetensors") for number in (1, 2))
    moved = {
        name for name in before if name.startswith("backbone.") and not torch.equal(before[name], after[name])
    }
    learnt = ("conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias")
    assert moved == {f"backbone.layer4.1.{name}" for name in learnt}


@pytest.mark.parametrize("kill_at", [8, 9, 10])
def test_stopped_while_the_last_layers_learn_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, tmp_path: Path, kill_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    recipe = toy_recipe()
    first, second = recipe.stages
    second = second.replace(backbone_from="layer4.1", views=3)
    recipe = recipe.replace(stages=(first.replace(epochs=1), second))
    whole = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    entries = set((tmp_path / "cache").iterdir())
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", whole)
    assert set((tmp_path / "cache").iterdir()) == entries


def test_unknown_layer_is_refused_before_anything_is_computed(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_recipe()
    second = recipe.stages[1].replace(backbone_from="layer5")
    with pytest.raises(
        SettingsError,
        match=r"stages\.stage-2\.backbone_from': .* no layer 'layer5' .*: conv1, relu, .*layer4\.1",
    ):
        train(
            recipe.replace(stages=(recipe.stages[0], second)),
            toys.split("train"),
            toys.split("val"),
            tmp_path / "r",
            cpu=True,
        )
    with pytest.raises(SettingsError, match="give one of them"):
        recipe.stages[0].replace(backbone_from="layer4")


def test_frozen_parts_keep_their_batch_norm(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_recipe()
    first, second = recipe.stages
    frozen = second.replace(epochs=1, frozen=("words", "text"))
    out = train(
        recipe.replace(stages=(first.replace(epochs=1), frozen)),
        toys.split("train"),
        toys.split("val"),
        tmp_path / "run",
        cpu=True,
    )
    before, after = load_file(out / "stage-1.safetensors"), load_file(out / "stage-2.safetensors")
    held = [name for name in before if name.startswith("text.")]
    assert any(name.endswith("running_mean") for name in held)
    for name in held:
        assert torch.equal(before[name], after[name]), name
    assert not torch.equal(before["text_projection.1.running_mean"], after["text_projection.1.running_mean"])


def test_a_single_pair_is_refused(toys: Dataset, tmp_path: Path) -> None:
    one = Dataset(toys.source, toys.group_kind, toys.split("train").records[:1])
    with pytest.raises(DataError, match=r"stage 'stage-1': a step needs at least 2 pairs .* there are 1"):
        train(toy_recipe(), one, toys.split("val"), tmp_path / "run", cpu=True)
