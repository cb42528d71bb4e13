"""From a run to composed searches: compose, evaluate --composed, search."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.command import Limner, refused
from tests.composed import toy_triplets


@pytest.fixture(scope="module")
def triplets(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_triplets(pictures, tmp_path_factory.mktemp("composed") / "set")


@pytest.fixture(scope="module")
def run(late_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(late_run, tmp_path_factory.mktemp("composed-run") / "run")


def test_the_whole_way(limner: Limner, run: Path, triplets: Path, pictures: Path, tmp_path: Path) -> None:
    source = f"cirr:{triplets}"
    options = ("--data", f"folder:{pictures}", "--epochs", 2, "--batch", 12, "--prompt", "a *", "--cpu")
    made = limner("compose", run, "--triplets", source, *options, "--json")
    assert made.code == 0, made.err
    told = json.loads(made.out)
    assert len(told["epochs"]) == 2
    assert Path(told["file"]).name == "inversion.safetensors"
    assert "epoch 2  pictures " in made.err
    report = tmp_path / "report.json"
    measured = limner("evaluate", run, "--composed", source, "--split", "val", "--report", report, "--cpu")
    assert measured.code == 0, measured.err
    assert "taken out of its own ranking" in measured.out
    assert "was chosen on val itself, which flatters the sum" in measured.err
    values = json.loads(report.read_text(encoding="utf-8"))
    assert [row["name"] for row in values["rows"]] == [
        "picture alone",
        "text alone",
        "weighted sum",
        "composed",
    ]
    assert set(values["against_sum"]) == set(values["rows"][0]["values"])
    assert values["provenance"]["precision"] == "fp32"
    assert "computed in fp32" in " ".join(measured.out.split())
    on_test = limner("evaluate", run, "--composed", source, "--json", "--cpu")
    assert json.loads(on_test.out)["weight_chosen_on"] == "val"
    again = limner("evaluate", run, "--composed", source, "--cpu")
    assert "this run was evaluated on this split 2 times; choose nothing by it" in again.err
    # the lines of composed queries leave `summarise` alone
    refused(limner("summarise", run), "no evaluation of split 'test'")
    store = tmp_path / "store"
    assert limner("index", run, store, pictures, "--cpu").code == 0
    picture = sorted(pictures.glob("*.png"))[0]
    found = limner("search", store, "a square in green", "--image", picture, "--cpu")
    assert f"left out as the query's own picture: {picture}" in found.err
    assert str(picture) not in found.out
    liked = limner("search", store, "a square in green", "--like", picture, "--cpu", "--json")
    answer = json.loads(liked.out)
    assert answer["composed"] is True
    assert len(answer["reference"]) == 1
    weighed = limner(
        "search", store, "a square in green", "--image", picture, "--text-weight", 0.5, "--cpu", "--json"
    )
    assert "composed" not in json.loads(weighed.out)


def test_another_seed_is_another_mapping(
    limner: Limner, late_run: Path, pictures: Path, tmp_path: Path
) -> None:
    told = []
    for number, seed in enumerate((0, 0, 1)):
        folder = shutil.copytree(late_run, tmp_path / str(number))
        made = limner(
            *("compose", folder, "--data", f"folder:{pictures}", "--epochs", 1, "--seed", seed),
            *("--prompt", "a *", "--cpu", "--json"),
        )
        assert "learnt from pictures alone" in made.err
        told.append(json.loads(made.out)["epochs"])
    assert told[0] == told[1] != told[2]


def test_the_hidden_split_is_written_for_the_server(
    limner: Limner, run: Path, triplets: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(triplets, tmp_path / "set")
    for kind, begin in (("captions", "cap"), ("image_splits", "split")):
        shutil.copyfile(folder / kind / f"{begin}.rc2.test.json", folder / kind / f"{begin}.rc2.test1.json")
    file = folder / "captions" / "cap.rc2.test1.json"
    entries = json.loads(file.read_text(encoding="utf-8"))
    for entry in entries:
        del entry["target_hard"], entry["target_soft"]
    file.write_text(json.dumps(entries), encoding="utf-8")
    asked = ("evaluate", run, "--composed", f"cirr:{folder}", "--split", "test1", "--cpu")
    refused(limner(*asked), "comes without its targets, .* by --submission DIR")
    assert limner(*asked, "--submission", tmp_path / "out").code == 0
    recall = json.loads((tmp_path / "out" / "recall.json").read_text(encoding="utf-8"))
    assert (recall["version"], recall["metric"]) == ("rc2", "recall")
    subset = json.loads((tmp_path / "out" / "recall_subset.json").read_text(encoding="utf-8"))
    for entry in entries:
        names = recall[str(entry["pairid"])]
        assert len(names) == len(set(names)) == 11
        assert entry["reference"] not in names
        others = set(entry["img_set"]["members"]) - {entry["reference"]}
        assert set(subset[str(entry["pairid"])]) == others


def test_mistakes(
    limner: Limner, late_run: Path, toy_run: Path, pictures: Path, triplets: Path, tmp_path: Path
) -> None:
    source, data = f"cirr:{triplets}", f"folder:{pictures}"
    refused(limner("compose", toy_run, "--data", data, "--cpu"), "needs a text tower of transformers")
    refused(limner("compose", late_run, "--data", data, "--prompt", "a photo"), "expected one")
    refused(limner("compose", late_run, "--data", data, "--triplets", "coco:x"), "expected one of cirr:DIR")
    refused(
        limner("evaluate", late_run, "--composed", source, "--data", data), "--composed: goes with --split"
    )
    refused(
        limner("evaluate", late_run, "--data", data, "--submission", tmp_path),
        "--submission: .* give --composed",
    )
    refused(
        limner("evaluate", late_run, "--composed", source, "--split", "dev"), "splits here: test, train, val"
    )
    measured = limner("evaluate", late_run, "--composed", source, "--split", "val", "--cpu")
    assert "has learnt no composed queries; `limner compose` teaches it" in measured.err
    assert "weighted sum" in measured.out
