import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError, SettingsError
from limner.inference.checkpoint import SELECTED_ON, TRAINED_ON
from limner.inference.import_model import import_model
from limner.losses import CMCE, Instance, Pair, Ranking, Sextuple
from limner.losses.loss import LossSettings
from limner.losses.sdm import SDM
from limner.models.text_tower import TextTower
from limner.recipes import get_recipe
from limner.recipes.change import change, start_from
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests import towers
from tests.toy import toy_recipe
from tests.training.interrupted import in_two_processes, same_run, stopped_and_resumed

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP as a run."""
    folder = tmp_path_factory.mktemp("pair")
    source = folder / "source"
    source.mkdir()
    towers.save_clip(source)
    import_model(str(source), folder / "run")
    return folder / "run"


def from_pair(pair: Path, *losses: LossSettings) -> Recipe:
    """The toy's two stages, the first with both towers fixed."""
    recipe = start_from(toy_recipe(), pair)
    stages = tuple(
        stage.replace(
            epochs=2,
            position_shift=False,
            losses=losses or (SDM(), Instance(dropout=0.0)),
            optimiser=stage.optimiser.replace(rate=0.003),
        )
        for stage in recipe.stages
    )
    first = stages[0].replace(frozen=("backbone", "words", "text"))
    return recipe.replace(stages=(first, *stages[1:]), rerank=0)


@pytest.fixture(scope="module")
def trained(toys: Dataset, pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    return train(from_pair(pair), toys.split("train"), toys.split("val"), out, cpu=True)


def test_both_stages_learn_what_is_not_frozen(trained: Path, pair: Path) -> None:
    before = load_file(pair / "imported.safetensors")
    first, second = (load_file(trained / f"stage-{number}.safetensors") for number in (1, 2))
    # an imported pair names no images: it has learnt from none here
    assert (
        before.keys() == first.keys() - {TRAINED_ON, SELECTED_ON} == second.keys() - {TRAINED_ON, SELECTED_ON}
    )
    learnt = {name for name in before if not torch.equal(before[name], first[name])}
    assert {name.split(".")[0] for name in learnt} == {"image_projection", "text_projection"}
    moved = {name.split(".")[0] for name in before if not torch.equal(first[name], second[name])}
    assert moved == {"backbone", "text", "image_projection", "text_projection"}


def test_a_trained_pair_is_a_run_like_the_imported_one(trained: Path, pair: Path, toys: Dataset) -> None:
    model = limner.load(trained, device="cpu")
    start = limner.load(pair, device="cpu")
    assert model.tokenizer.to_description() == start.tokenizer.to_description()
    assert model.images.replace(train_crop="random", pad=10) == start.images
    assert model.fingerprint != start.fingerprint
    assert model.description["recipe"]["start"] == str(pair)


@pytest.mark.parametrize("kill_at", [1, 4, 9, 12])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, pair: Path, trained: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, from_pair(pair), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", trained)


@pytest.mark.parametrize(
    "losses",
    [
        (Instance(),),
        (CMCE(),),
        (Sextuple(),),
        (Pair(),),
        (Ranking(),),
        (Instance(), Ranking(negatives="hardest")),
        (SDM(),),
    ],
    ids=lambda losses: "+".join(loss.kind for loss in losses),
)
def test_every_loss_of_the_four_systems_trains_a_pair(
    losses: tuple[LossSettings, ...], toys: Dataset, pair: Path, tmp_path: Path
) -> None:
    recipe = from_pair(pair, *losses)
    recipe = recipe.replace(stages=tuple(stage.replace(epochs=1) for stage in recipe.stages))
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    found = limner.load(tmp_path / "run", stage="stage-2", device="cpu")
    rows = found.encode_texts(["a red square", "a blue bar"])
    assert np.isfinite(rows).all()
    before = load_file(pair / "imported.safetensors")
    after = load_file(tmp_path / "run" / "stage-2.safetensors")
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_two_processes(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    done = in_two_processes(
        *("-m", "limner", "train", "fine-tune", "--from", str(pair), "--cpu"),
        *("--data", f"folder:{toys.records[0].image.parent}", "--out", str(tmp_path / "run")),
        *("--set", "stages.tune.epochs=1", "--set", "stages.tune.batch=8"),
        cache=tmp_path / "cache",
    )
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["stage"] for row in rows] == ["tune"]
    assert limner.load(tmp_path / "run", device="cpu").encode_texts(["a red bar"]).shape == (1, 24)


def test_a_recipe_for_imported_pairs_asks_for_one(toys: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--from"):
        train(get_recipe("fine-tune"), toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)


def test_settings_that_are_the_runs_own_are_refused(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    recipe = change(from_pair(pair), ["model.text.filled=right"])
    with pytest.raises(SettingsError, match="which training starts from"):
        train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    with pytest.raises(SettingsError, match="its own tokenizer"):
        change(from_pair(pair), ["vocabulary.pieces=400"])
    with pytest.raises(CheckpointError, match="no trained run"):
        start_from(toy_recipe(), tmp_path / "nothing")


def test_another_start_is_refused_when_resumed(
    toys: Dataset, pair: Path, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stopped_and_resumed(toys, from_pair(pair), out, kill_at=3)
    other = from_pair(pair).replace(start=str(trained))
    with pytest.raises(CheckpointError, match="cannot resume"):
        train(other, toys.split("train"), toys.split("val"), out, resume=True, cpu=True)


def test_a_run_of_the_four_systems_may_be_the_start(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    recipe = start_from(toy_recipe(), toy_run)
    recipe = recipe.replace(stages=(recipe.stages[1].replace(epochs=1),))
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    found, start = (limner.load(folder, device="cpu") for folder in (tmp_path / "run", toy_run))
    assert found.tokenizer.entries == start.tokenizer.entries


def test_a_fixed_tower_gives_the_same_from_the_cache(pair: Path) -> None:
    model = limner.load(pair, device="cpu").model
    assert isinstance(model.kept_words(("words", "text", "backbone")), TextTower)
    assert model.kept_words(("text",)) is None
    tokenizer = limner.load(pair, device="cpu").tokenizer
    ids = torch.from_numpy(model.tokenize(towers.SENTENCES, tokenizer).token_ids)
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        kept = model.text(ids[:4])[:, None]
        images, texts, _ = model.embed_pairs(pixels, ids)
        # the last three stand beside the batch, as mined negatives do
        same_images, same_texts, _ = model.embed_pairs(pixels, ids, words_below=kept)
    torch.testing.assert_close(same_texts, texts, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(same_images, images)
