"""Tables and recipes of the papers, end to end on small trees of the published forms, with narrow networks."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from limner.data.readers import open_dataset
from limner.inference.checkpoint import read_description
from limner.recipes import get_recipe
from limner.training.recipe import Recipe
from tests.cli.command import Limner, refused
from tests.data import trees
from tests.data.readers import test_coco

_COLOURS = ("red", "blue", "green", "grey", "black", "white", "pink", "brown", "yellow", "orange")


def _rows(groups: int, *, pictures: int = 1) -> list[trees.Row]:
    """Of ten groups six for training, two for validation and two for testing; two sentences a picture."""
    splits = ("train", "train", "train", "val", "test")
    return [
        trees.Row(
            f"p{number}_{picture}.jpg",
            (f"a {_COLOURS[number % 10]} one that is {picture}", f"it is {_COLOURS[number % 10]}"),
            splits[number % 5],
            str(number + 1),
        )
        for number in range(groups)
        for picture in range(pictures)
    ]


def _short(recipe: str, *more: str) -> tuple[str, ...]:
    """Settings that make a recipe narrow and short, and leave everything else as it is."""
    made = get_recipe(recipe)
    settings = [
        "model.backbone.name=resnet-18",
        "model.backbone.width=0.125",
        "model.backbone.weights=null",
        "model.dim=8",
        f"images.resize={36 if isinstance(made.images.resize, int) else [36, 36]}",
        "images.crop=[32,32]",
        "precision=fp32",
        *_narrow_text(made),
        *(
            f"stages.{stage.name}.{setting}"
            for stage in made.stages
            for setting in ("epochs=1", "batch=4", "views=1", "validate_every=1")
        ),
        *more,
    ]
    return tuple(word for setting in settings for word in ("--set", setting))


def _narrow_text(recipe: Recipe) -> Iterable[str]:
    yield "model.text.words=12"
    if recipe.model.system == "hgan":
        yield "model.text.bert=null"
        yield from (f"model.text.{name}" for name in ("word_dim=6", "dim=8", "heads=2", "hidden=5"))
        yield from ("model.local.hidden=8", "model.regions.map_size=[8,4]", "model.regions.kernel=[2,2]")
        yield from (f"stages.{stage.name}.optimiser.multipliers={{}}" for stage in recipe.stages)
    elif recipe.model.system == "dual-path":
        yield from ("model.text.word_dim=6", "model.text.width=0.03125")
    else:
        yield from ("model.text.word_dim=6", "model.text.hidden=10")


def _table(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("form", ["cub", "flowers"])
def test_hgan_table_6(limner: Limner, tmp_path: Path, form: str) -> None:
    data = trees.FORMS[form](tmp_path / "data", _rows(10, pictures=2))
    out = tmp_path / "out"
    given = ("ablate", f"hgan-table-6-{form}", "--data", data, "--out", out, "--split", "test", "--cpu")
    result = limner(*given, *_short("hgan-cub"))
    assert result.code == 0, result
    table = _table(out)
    (row,) = table["rows"]
    measures = {"image_to_text R@1", "text_to_image AP@50"}
    assert row["mean"].keys() == row["paper"].keys() == measures
    assert all(0 <= value <= 100 for value in row["mean"].values())
    assert f"protocol {form}" in table["remarks"][0]
    # re-ranked by words and phrases, as Table 6 is
    assert read_description(out / "hgan/seed-0/stage-1.safetensors")["recipe"]["rerank"] == "all"


def test_identity_aware_table_4(limner: Limner, tmp_path: Path) -> None:
    data = trees.write_flowers(tmp_path / "data", _rows(10, pictures=2))
    out = tmp_path / "out"
    given = ("ablate", "identity-aware-table-4", "--data", data, "--out", out, "--split", "test", "--cpu")
    more = (
        "cross_encoder.steps=2",
        *(f"cross_encoder.{n}=6" for n in ("spatial_dim", "semantic_dim", "dim")),
    )
    pairs = [
        f"stages.{name}.reranker_pairs.{setting}"
        for name in ("stage-2-language", "stage-2")
        for setting in ("count=2", "an_epoch=1")
    ]
    result = limner(*given, *_short("identity-aware-cub", *more, *pairs))
    assert result.code == 0, result
    table = _table(out)
    assert [row["key"] for row in table["rows"]] == ["triplet", "cmce", "full"]
    assert "protocol flowers" in table["remarks"][0]
    assert {row["key"]: row["paper"] for row in table["rows"]} == {
        "triplet": {"image_to_text R@1": 64.3, "text_to_image AP@50": 64.9},
        "cmce": {"image_to_text R@1": 68.4, "text_to_image AP@50": 68.0},
        "full": {"text_to_image AP@50": 70.1},
    }
    assert all(0 <= row["mean"]["text_to_image AP@50"] <= 100 for row in table["rows"])


def test_arxiv_table_3(limner: Limner, tmp_path: Path) -> None:
    data = trees.write_flickr30k_text(tmp_path / "data", _rows(20))
    out = tmp_path / "out"
    result = limner(
        *("ablate", "dual-path-arxiv-table-3", "--data", data, "--out", out, "--cpu"),
        *_short("dual-path-flickr8k"),
    )
    assert result.code == 0, result
    layouts = {
        row["key"]: read_description(out / row["key"] / "seed-0/stage-1.safetensors")["model"]["text"][
            "layout"
        ]
        for row in _table(out)["rows"]
    }
    assert layouts == {"resnet-50": "resnet-50", "resnet-152": "resnet-152"}


def _both(table: str, data: str, out: Path) -> tuple[object, ...]:
    """The words of a command that trains the row of both directions and measures it on the test split."""
    return ("ablate", table, "--data", data, "--out", out, *["--row", "both", "--split", "test", "--cpu"])


def test_draws_of_mnil_have_splits_of_their_own_and_one_mean(limner: Limner, tmp_path: Path) -> None:
    data = trees.write_flickr30k_text(tmp_path / "data", _rows(20))
    out = tmp_path / "out"
    given = _both("mnil-table-2", data, out)
    drawn = (*given, *_short("mnil-flickr30k"), "--draws", 2, "--held-out", "4,4")
    result = limner(*drawn)
    assert result.code == 0, result
    table = _table(out)
    assert table["draws"] == ["draw=0/4/4", "draw=1/4/4"]
    assert "mean ± deviation over draws draw=0/4/4 to draw=1/4/4, seed 0" in table["remarks"][0]
    assert "2 random draws" in table["remarks"][0]
    (row,) = table["rows"]
    fingerprints = table["split_fingerprint"].split()
    assert len(set(fingerprints)) == 2
    values = []
    for draw, run in enumerate(row["runs"]):
        assert run["draw"] == draw
        values.append(run["text_to_image"]["R@5"])
        ranked = open_dataset(f"{data}#draw={draw}/4/4").split("test")
        assert (len(ranked), ranked.fingerprint) == (4, fingerprints[draw])
        learnt = read_description(out / f"draw-{draw}/both/seed-0/stage-1.safetensors")["data"]
        assert learnt["source"] == f"{data}#draw={draw}/4/4"
    assert row["mean"]["text_to_image R@5"] == pytest.approx(sum(values) / 2)
    # of two values the sample deviation is their distance over √2
    deviation = abs(values[0] - values[1]) / 2**0.5
    assert row["deviation"]["text_to_image R@5"] == pytest.approx(deviation)
    # run again, everything is there
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")}
    assert limner(*drawn).code == 0
    assert before == {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")}
    for more, message in (
        (("--draws", 2), "1000 groups for validation and 1000 for testing"),
        (("--held-out", "4,4"), "--held-out: .* give --draws"),
        (("--draws", 2, "--held-out", "4"), "--held-out: expected two numbers"),
        (("--draws", 2, "--held-out", "4,x"), "--held-out: expected whole numbers"),
    ):
        refused(limner(*given, *_short("mnil-flickr30k"), *more), message)
    refused(
        limner("ablate", "mnil-table-2", "--data", f"{data}#seed=1", "--out", out, "--draws", 2),
        "the splits of .* are drawn already; leave #seed=1 out",
    )
    refused(
        limner("ablate", "dual-path-table-7", "--data", data, "--out", out, "--draws", 2),
        "dual-path-table-7 is of one split in its paper",
    )


def test_draws_of_mnil_by_label(limner: Limner, tmp_path: Path) -> None:
    data = f"mscoco-labels:{test_coco.write(tmp_path / 'data')}"
    out = tmp_path / "out"
    result = limner(
        *_both("mnil-table-1", data, out),
        *("--draws", 2, "--held-out", "1,1"),
        *_short("mnil-mscoco", "stages.stage-1.batch=2"),
    )
    assert result.code == 0, result
    (row,) = _table(out)["rows"]
    assert set(row["deviation"]) >= {"text_to_image MAP@50", "image_to_text MAP@all"}


@pytest.mark.parametrize("name", ["mscoco", "cuhk-pedes", "flickr8k"])
def test_recipes_of_the_released_code(limner: Limner, tmp_path: Path, name: str) -> None:
    rows, root = _rows(20), tmp_path / "data"
    if name == "mscoco":
        trees.write_karpathy(root, rows)
        (root / "dataset_flickr8k.json").rename(root / "dataset_coco.json")
        data = f"mscoco:{root}"
    else:
        data = (trees.write_cuhk_pedes if name == "cuhk-pedes" else trees.write_karpathy)(root, rows)
    recipe, run = f"dual-path-released-{name}", tmp_path / "run"
    # their rate of 0.1 is for their widths
    result = limner("train", recipe, "--data", data, "--out", run, "--cpu", *_short(recipe))
    assert result.code == 0, result
    assert limner("evaluate", run, "--data", data, "--split", "test", "--cpu").code == 0
    tensors = read_description(run / "stage-2.safetensors")
    assert tensors["model"]["head"] == "released"
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [json.loads(line) for line in lines if '"ranking"' in line]
    assert losses, "stage II has a ranking loss"
