"""The hub correction in training: filled from the training split alone, part of the checkpoint and of every answer."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.inference.encoding import Encoding
from limner.models.hub_correction import MORE_COORDINATES, HubCorrectionSettings
from limner.recipes.change import start_from
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests.toy import toy_identity_aware, toy_recipe
from tests.training.interrupted import same_run, stopped_and_resumed

ITEMS = 10


def corrected(recipe: Recipe, items: int = ITEMS) -> Recipe:
    return recipe.replace(model=recipe.model.replace(hub_correction=HubCorrectionSettings(items=items)))


@pytest.fixture(scope="module")
def run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corrected") / "run"
    return train(corrected(toy_recipe()), toys.split("train"), toys.split("val"), out, cpu=True)


def test_it_changes_no_weight(toys: Dataset, tmp_path: Path) -> None:
    """Nor what losses and miners see: stage II mines its negatives by the embedding without it."""
    recipe = toy_recipe()
    # Validated once a stage: which epoch is the best may well depend on the correction.
    recipe = recipe.replace(
        stages=tuple(stage.replace(validate_every=stage.epochs) for stage in recipe.stages)
    )
    for name, chosen in (("with", corrected(recipe)), ("without", recipe)):
        train(chosen, toys.split("train"), toys.split("val"), tmp_path / name, cpu=True)
    with_it, without = (load_file(tmp_path / name / "last.safetensors") for name in ("with", "without"))
    assert all(with_it[name].equal(tensor) for name, tensor in without.items())


def test_the_bank_is_of_the_training_split(run: Path, toys: Dataset) -> None:
    model = limner.load(run, stage="stage-1")
    correction = model.model.hub_correction
    assert correction is not None
    assert correction.count.tolist() == [ITEMS, ITEMS]
    records = toys.split("train").records
    # of a frozen backbone the plain view alone is kept that is not drawn at random
    plain = Encoding(model.model, "fp32", corrected=False, flip=False)
    sentences = [text for record in records for text in record.sentences]
    read = plain.token_ids(model.tokenize(sentences).token_ids)
    seen = plain.pixels(np.stack([model.prepare_image(record.image) for record in records]))
    for bank, found in ((correction.images, seen), (correction.texts, read)):
        nearest = (bank @ found.T).max(dim=1).values
        torch.testing.assert_close(nearest, torch.ones(ITEMS), atol=1e-3, rtol=0)


def test_searches_and_evaluation_have_it(run: Path, toys: Dataset) -> None:
    model = limner.load(run, precision="fp32")
    record = toys.split("val").records[0]
    seen, read = model.encode_images([record.image]), model.encode_texts(list(record.sentences))
    assert model.dim == 16 + MORE_COORDINATES == seen.shape[1] == read.shape[1]
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([seen, read]), axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model.encode_queries(list(record.sentences)), read, atol=1e-5)
    correction, plain = model.model.hub_correction, Encoding(model.model, "fp32", corrected=False)
    assert correction is not None
    wanted = correction.of_texts(plain.token_ids(model.tokenize(list(record.sentences)).token_ids))
    np.testing.assert_allclose(read, wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("kill_at", [3, 7])
def test_stopped_and_resumed(toys: Dataset, run: Path, tmp_path: Path, kill_at: int) -> None:
    stopped_and_resumed(toys, corrected(toy_recipe()), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", run)


def test_a_run_without_it_is_given_one(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    recipe = start_from(toy_recipe(), toy_run)
    first, _ = recipe.stages
    recipe = corrected(recipe.replace(stages=(first.replace(epochs=1),)), items=4)
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    assert limner.load(out).dim == 16 + MORE_COORDINATES


def test_a_cross_encoder_re_ranks_what_it_found(toys: Dataset, tmp_path: Path) -> None:
    """CMCE's buffers and the pairs of the rerank stage are of the embedding's own width."""
    recipe = corrected(toy_identity_aware())
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    assert limner.load(out).model.hub_correction is not None
