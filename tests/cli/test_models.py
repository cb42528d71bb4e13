import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import limner as library
from limner.inference.import_model import import_model
from limner.models.known import KNOWN
from limner.search.manifest import IN_STORE
from tests import towers
from tests.cli.command import Limner, refused

pytest.importorskip("transformers")

NAME = "somebody/tiny-siglip2"


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a tiny pair, as on a disk of the user's."""
    folder = tmp_path_factory.mktemp("pairs") / "tiny"
    folder.mkdir()
    towers.save_clip(folder)
    return folder


@pytest.fixture(scope="session")
def imported(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    import_model(str(pair), folder)
    return folder


def test_models_are_listed_without_the_network_and_torch(limner: Limner) -> None:
    result = limner("models")
    assert result.code == 0
    assert "hf:google/siglip2-base-patch16-224" in result.out
    listed = json.loads(limner("models", "--json").out)
    assert {model["name"] for model in listed} >= {"hf:openai/clip-vit-base-patch32"}
    assert all(model["licence"] and model["source"] for model in listed)


def test_the_docs_say_what_the_list_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    for model in KNOWN:
        row = next(line for line in page.splitlines() if line.startswith(f"| `hf:{model.name}`"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        reached = [
            "–" if pair is None else f"{pair[0]} / {pair[1]}" for pair in (model.flickr30k, model.mscoco)
        ]
        assert cells[1:7] == [
            *(f"{model.parameters} M", f"{model.side}²", model.languages, model.licence),
            *reached,
        ]


def test_an_imported_run_goes_through_every_command(
    limner: Limner, pair: Path, pictures: Path, tmp_path: Path
) -> None:
    run, store = tmp_path / "run", tmp_path / "store"
    result = limner("import", pair, run, "--json")
    assert result.code == 0, result.err
    made = json.loads(result.out)
    assert (made["source"], made["dim"], made["words"]) == ("tiny", 24, towers.LENGTH)
    data = f"folder:{pictures}"
    assert limner("index", run, store, "--data", data).code == 0
    report = json.loads(limner("evaluate", run, "--data", data, "--split", "test", "--json").out)
    assert report["text_to_image"]["R@10"] > 0
    # a word that no caption has, in a script that no caption has
    found = json.loads(limner("search", store, "斑马 passport", "--json").out)
    assert len(found["hits"]) == 10
    key = found["hits"][0]["id"]
    explained = json.loads(limner("explain", store, "a red square", key, "--json").out)
    attention = explained["attention"]
    assert attention["words"] == ["a", "red", "square"]
    # patches of 8 pixels in a square of 32, each word's attention over them sums to 1
    for word in attention["of_regions"]:
        assert [len(row) for row in word] == [4, 4, 4, 4]
        assert sum(map(sum, word)) == pytest.approx(1, abs=1e-5)


def test_a_pair_is_tuned_and_calibrated(
    limner: Limner, imported: Path, pictures: Path, tmp_path: Path
) -> None:
    data, run = f"folder:{pictures}", tmp_path / "tuned"
    settings = ("stages.tune.epochs=12", "stages.tune.batch=12", "stages.tune.optimiser.rate=0.003")
    options = [part for setting in settings for part in ("--set", setting)]
    result = limner("train", "fine-tune", "--from", imported, "--data", data, "--out", run, *options)
    assert result.code == 0, result.err
    again = limner("train", "fine-tune", "--from", imported, "--data", data, "--out", run, *options)
    assert again.code == 2
    assert "--resume" in again.err
    # on the training pictures, the only ones that so small a pair tells apart; never so in earnest
    store = tmp_path / "store"
    assert limner("index", run, store, "--data", data, "--split", "train").code == 0
    fitted = limner("calibrate", run, "--data", data, "--split", "val")
    # a calibration, or the refusal of scores that tell nothing
    assert fitted.code == 0 or "no probability can be made" in fitted.err


def test_explanations_read_the_patches_that_a_store_keeps(
    limner: Limner, imported: Path, pictures: Path, tmp_path: Path
) -> None:
    explained = []
    for folder, options in (("kept", ["--regions"]), ("read", [])):
        assert limner("index", imported, tmp_path / folder, pictures, *options).code == 0
        found = json.loads(limner("search", tmp_path / folder, "a red square", "--json").out)
        key = found["hits"][0]["id"]
        explained.append(json.loads(limner("explain", tmp_path / folder, "a red square", key, "--json").out))
        kept = json.loads(limner("store", "info", tmp_path / folder, "--json").out)
        assert bool(kept["map"]) == (folder == "kept")
    first, second = (found["attention"]["of_regions"] for found in explained)
    # half precision lies between them
    assert all(
        a == pytest.approx(b, abs=2e-2)
        for one, other in zip(first, second, strict=True)
        for row, beside in zip(one, other, strict=True)
        for a, b in zip(row, beside, strict=True)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing-here"], "no such folder"),
        (["{pair}", "--size", "384"], "HEIGHTxWIDTH"),
        (["{pair}", "--words", "400"], "reads 2 to 16 tokens"),
    ],
)
def test_refused_imports(
    limner: Limner, pair: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    given = [argument.format(pair=pair) for argument in arguments]
    result = limner("import", given[0], tmp_path / "run", *given[1:])
    result = type(result)(result.code, result.out, result.err.removeprefix(f"reading {given[0]}\n"))
    refused(result, message)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_files_is_not_written_into(limner: Limner, pair: Path, imported: Path) -> None:
    result = limner("import", pair, imported)
    assert result.code == 2
    assert "not empty" in result.err


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local cache of the hub that holds one tiny model by its name."""
    home = tmp_path_factory.mktemp("hub")
    towers.save_in_cache(home, NAME)
    return home


def apart(home: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: the hub's library reads where its cache is when it is imported."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "limner", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_the_store_holds_the_model_of_the_hub(hub: Path, pictures: Path, tmp_path: Path) -> None:
    store, moved = tmp_path / "store", tmp_path / "moved"
    done = apart(hub, "index", f"hf:{NAME}", store, pictures)
    assert done.returncode == 0, done.stderr
    assert json.loads((store / "store.json").read_text())["run"] == IN_STORE
    # moved, and without the hub's cache
    shutil.move(store, moved)
    empty = tmp_path / "empty"
    found = apart(empty, "search", moved, "zebra", "--json")
    assert found.returncode == 0, found.stderr
    assert len(json.loads(found.stdout)["hits"]) == 10
    again = apart(empty, "index", f"hf:{NAME}", moved, pictures, "--json")
    assert json.loads(again.stdout)["unchanged"] == 36
    # the vectors are the model's own
    model = library.load(moved / "model", device="cpu")
    with library.open_store(moved) as opened:
        assert opened.files.fingerprint == model.fingerprint
    refusal = apart(empty, "index", "hf:another/model", moved, pictures)
    assert refusal.returncode == 2
    assert refusal.stderr.count("\n") == 1
    assert f"built with hf:{NAME}" in refusal.stderr


def test_offline_and_without_weights_one_line_says_what_to_do(pictures: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    done = apart(tmp_path / "empty", "index", "hf:somebody/else", store, pictures)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "hf download somebody/else" in done.stderr
    assert not store.exists()


def test_an_interrupted_import_is_begun_anew(hub: Path, pictures: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "model").mkdir(parents=True)
    (store / "model" / "imported.safetensors.part").write_bytes(b"half of it")
    done = apart(hub, "index", f"hf:{NAME}", store, pictures)
    assert done.returncode == 0, done.stderr
    # a folder of somebody's own is left alone
    other = tmp_path / "other"
    (other / "model").mkdir(parents=True)
    (other / "model" / "thesis.txt").write_text("mine")
    done = apart(hub, "index", f"hf:{NAME}", other, pictures)
    assert done.returncode == 2
    assert (other / "model" / "thesis.txt").read_text() == "mine"
