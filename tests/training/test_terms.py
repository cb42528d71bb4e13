"""A run says under which terms everything stands that its weights have learnt from."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.data.terms import TERMS, WEIGHTS, TermsOfUse
from limner.inference.checkpoint import read_description
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.models.image import BackboneSettings
from limner.recipes.change import start_from
from limner.training.loop import train
from limner.training.prepare import prepare
from tests import towers
from tests.toy import toy_recipe


def plain(*terms: TermsOfUse) -> list[dict[str, object]]:
    return [json.loads(one.model_dump_json()) for one in terms]


def kept(run: Path) -> list[dict[str, object]]:
    """The terms of `run.json`, which are those of its checkpoint."""
    listing = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert read_description(run / listing["best"])["terms"] == listing["terms"]
    found: list[dict[str, object]] = listing["terms"]
    return found


def test_pictures_of_nobody_knows_what_have_unknown_terms(toy_run: Path) -> None:
    assert kept(toy_run) == plain(TermsOfUse())


def test_a_run_has_the_terms_of_its_training_set_and_hands_them_on(toys: Dataset, tmp_path: Path) -> None:
    people = replace(toys, terms=TERMS["cuhk-pedes"])
    recipe = toy_recipe()
    short = recipe.replace(stages=(recipe.stages[0].replace(epochs=1),))
    first = train(short, people.split("train"), people.split("val"), tmp_path / "first", cpu=True)
    assert kept(first) == plain(TERMS["cuhk-pedes"])
    assert load_model(first).description["terms"] == plain(TERMS["cuhk-pedes"])

    own = TermsOfUse(name="Shop", licence="consent", people="yes")
    tuned = replace(toys, terms=own)
    # what the first run learnt does not go away by a second training
    second = train(
        start_from(short, first), tuned.split("train"), tuned.split("val"), tmp_path / "second", cpu=True
    )
    assert kept(second) == plain(own, TERMS["cuhk-pedes"])
    # the same set again is said once
    third = start_from(short, second)
    assert list(prepare(third, tuned.split("train"), tuned.split("val")).terms) == kept(second)


def test_a_run_of_an_older_file_is_named_with_unknown_terms(toys: Dataset) -> None:
    old = next((Path(__file__).parents[1] / "inference" / "formats").glob("*/run.json")).parent
    assert "terms" not in load_model(old).description
    recipe = start_from(toy_recipe(), old)
    terms = prepare(recipe, toys.split("train"), toys.split("val")).terms
    assert [(one["name"], one["licence"]) for one in terms[1:]] == [
        (f"a run of {load_model(old).description['recipe']['name']}", "unknown")
    ]


def test_pretrained_weights_have_their_terms(toys: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    from safetensors.torch import save_file

    from limner.models.image.build import build_backbone

    settings = toy_recipe().model.backbone
    save_file(build_backbone(settings).state_dict(), file)  # type: ignore[arg-type]
    recipe = toy_recipe()
    model = recipe.model.replace(backbone=settings.replace(weights=str(file)))  # type: ignore[union-attr]
    terms = prepare(recipe.replace(model=model), toys.split("train"), toys.split("val")).terms
    assert [one["name"] for one in terms] == ["unknown", "weights from mine.safetensors"]
    assert str(tmp_path) not in json.dumps(terms)
    assert BackboneSettings(name="resnet-18", weights="imagenet").weights in WEIGHTS


def test_an_imported_pair_has_the_terms_of_its_weights(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source = tmp_path / "a-pair"
    source.mkdir()
    towers.save_clip(source)
    import_model(str(source), tmp_path / "run")
    (terms,) = kept(tmp_path / "run")
    assert (terms["name"], terms["licence"]) == ("weights from a-pair", "unknown")
