import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import limner as library
from limner.inference.checkpoint import read_description
from limner.inference.import_model import import_model
from limner.inference.run_file import checkpoint_path
from limner.models.known import KNOWN
from limner.store.files import StoreFiles
from limner.store.manifest import IN_STORE
from tests import towers
from tests.cli.command import Limner, Result, refused

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


def test_a_pair_is_imported_at_the_size_of_the_recipe_and_tuned_by_one_command(
    limner: Limner, pair: Path, pictures: Path, tmp_path: Path
) -> None:
    run, start = tmp_path / "tuned", tmp_path / "tuned-start"

    def tune(*options: str, height: int = 64) -> Result:
        settings = (
            *("stages.tune.epochs=1", "stages.tune.batch=12"),
            *(f"images.resize=[{height},32]", f"images.crop=[{height},32]"),
        )
        changes = [part for setting in settings for part in ("--set", setting)]
        return limner(
            "train", "clip-cuhk-pedes", "--data", f"folder:{pictures}", "--out", run, *changes, *options
        )

    # before anything is fetched or written
    assert tune("--from", str(pair), "--set", "stages.tune.epoch=1").code == 2
    assert not start.exists()
    result = tune("--from", str(pair))
    assert result.code == 0, result.err
    tuned, before = (read_description(checkpoint_path(folder, None)) for folder in (run, start))
    assert tuned["images"]["crop"] == before["images"]["crop"] == [64, 32]
    assert tuned["images"]["train_crop"] == "pad"
    # what was imported is taken again, if it is what was asked for
    again = tune("--from", str(pair), "--resume")
    assert again.code == 0, again.err
    refused(tune("--from", str(pair), height=32), "another pair or size")


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


Use = Callable[[Path], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes a folder the local cache of the hub, which cannot be reached.

    The hub's library has read its variables when it was imported.
    """
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return lambda home: monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))


@pytest.fixture
def hub(tmp_path: Path, use: Use) -> None:
    """A local cache of the hub that holds one tiny model by its name."""
    towers.save_in_cache(tmp_path / "home", NAME)
    use(tmp_path / "home")


@pytest.mark.usefixtures("hub")
def test_the_store_holds_the_model_of_the_hub(
    limner: Limner, pictures: Path, tmp_path: Path, use: Use
) -> None:
    store, moved = tmp_path / "store", tmp_path / "moved"
    done = limner("index", f"hf:{NAME}", store, pictures)
    assert done.code == 0, done.err
    assert StoreFiles.open(store).manifest.run == IN_STORE
    # moved, and without the hub's cache
    shutil.move(store, moved)
    use(tmp_path / "empty")
    found = limner("search", moved, "zebra", "--json")
    assert found.code == 0, found.err
    assert len(json.loads(found.out)["hits"]) == 10
    again = limner("index", f"hf:{NAME}", moved, pictures, "--json")
    assert json.loads(again.out)["unchanged"] == 36
    # the vectors are the model's own
    model = library.load(moved / "model", device="cpu")
    with library.open_store(moved) as opened:
        assert opened.files.fingerprint == model.fingerprint
    refusal = limner("index", "hf:another/model", moved, pictures)
    assert refusal.code == 2
    assert refusal.err.count("\n") == 1
    assert f"built with hf:{NAME}" in refusal.err


def test_offline_and_without_weights_one_line_says_what_to_do(pictures: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    # in a process of its own: with the variables that a user sets
    environment = {**os.environ, "HF_HOME": str(tmp_path / "empty"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "limner", "index", "hf:somebody/else", str(store), str(pictures)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "hf download somebody/else" in done.stderr
    assert not store.exists()


@pytest.mark.usefixtures("hub")
def test_an_interrupted_import_is_begun_anew(limner: Limner, pictures: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    half = store / "model" / "imported.safetensors.part" / "imported.safetensors"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half of it")
    done = limner("index", f"hf:{NAME}", store, pictures)
    assert done.code == 0, done.err
    # a folder of somebody's own is left alone
    other = tmp_path / "other"
    (other / "model").mkdir(parents=True)
    (other / "model" / "thesis.txt").write_text("mine")
    done = limner("index", f"hf:{NAME}", other, pictures)
    assert done.code == 2
    assert (other / "model" / "thesis.txt").read_text() == "mine"
