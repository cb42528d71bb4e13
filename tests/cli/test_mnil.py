"""The commands with MNiL, which learns from labels here."""

import json
from pathlib import Path

import pytest

from limner.inference.checkpoint import read_checkpoint
from limner.recipes.registry import RECIPES, RecipeEntry
from limner.training.recipe import Recipe
from tests.cli.command import Limner, refused, sets
from tests.toy import draw_toys, toy_mnil


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_toys(tmp_path_factory.mktemp("labelled") / "pictures", views=2, labels=True)


def test_train_resume_evaluate_index_search(limner: Limner, labelled: Path, tmp_path: Path) -> None:
    run, store, data = tmp_path / "run", tmp_path / "store", f"folder:{labelled}"
    train = ("train", "mnil-people", "--data", data, "--out", run, "--cpu", *sets(toy_mnil(by_label=True)))
    assert limner(*train).code == 0
    weights, _ = read_checkpoint(run / "stage-2.safetensors")
    refused(limner(*train), "give --resume to go on")
    assert limner(*train, "--resume").code == 0
    again, _ = read_checkpoint(run / "stage-2.safetensors")
    assert weights.keys() == again.keys()
    file = tmp_path / "report.json"
    assert limner("evaluate", run, "--data", data, "--protocol", "labels", "--report", file).code == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["protocol"] == "labels, shared label"
    assert set(report["text_to_image"]) >= {"MAP@50", "MAP@all"}
    assert limner("index", run, store, labelled).code == 0
    found = json.loads(limner("search", store, "a red square on white", "-k", 3, "--json").out)["hits"]
    assert [hit["rank"] for hit in found] == [1, 2, 3]
    assert limner("figure", "nearest", run, "red", "--out", tmp_path / "near.png").code == 0
    shown = limner("figure", "training", run, "--out", tmp_path / "training.png")
    assert shown.code == 0, shown


def test_a_set_without_labels_is_refused(limner: Limner, pictures: Path, tmp_path: Path) -> None:
    command = ("train", "mnil-people", "--data", f"folder:{pictures}", "--out", tmp_path / "run", "--cpu")
    refused(limner(*command, *sets(toy_mnil(by_label=True))), "have no labels")
    data = ("--data", f"folder:{pictures}", "--out", tmp_path)
    refused(limner("ablate", "mnil-table-1", *data, "--protocol", "labels"), "have no labels")


def labelled_recipe() -> Recipe:
    return toy_mnil(by_label=True)


def test_ablate_trains_each_direction(
    limner: Limner, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "toy-mnil", RecipeEntry(f"{__name__}:labelled_recipe", "Toys", "MNiL."))
    data = f"folder:{labelled}"
    command = ("ablate", "mnil-table-1", "--recipe", "toy-mnil", "--data", data, "--out", tmp_path, "--cpu")
    assert limner(*command, "--protocol", "labels").code == 0
    table = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert [row["key"] for row in table["rows"]] == ["to-text", "to-image", "both"]
    assert list(table["rows"][0]["mean"]) == [
        f"{way} {name}" for way in ("image_to_text", "text_to_image") for name in ("MAP@50", "MAP@all")
    ]
    assert "protocol labels, shared label" in table["remarks"][0]
    direction = json.loads((tmp_path / "to-image/seed-0/run.json").read_text(encoding="utf-8"))
    assert direction["recipe"] == "toy-mnil"
    refused(
        limner(*command),
        "--protocol plain does not measure what mnil-table-1 prints, MAP@50, MAP@all; these do",
    )
    refused(limner(*command, "--protocol", "mnil-mscoco"), "here are groups of several")
    assert limner(*command, "--protocol", "classes").code == 0
