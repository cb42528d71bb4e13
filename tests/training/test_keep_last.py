import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError
from limner.recipes.change import change
from limner.training.loop import train
from tests.toy import toy_recipe
from tests.training.interrupted import STATE, same_run, stopped_and_resumed

KEEP = ["stages.stage-1.keep_last=true", "stages.stage-2.keep_last=true"]


@pytest.fixture(scope="module")
def kept(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("kept") / "run"
    return train(change(toy_recipe(), KEEP), toys.split("train"), toys.split("val"), folder, cpu=True)


def test_it_is_the_last_epoch_and_the_best_stays(kept: Path, toy_run: Path) -> None:
    rows = [json.loads(line) for line in (kept / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for stage in ("stage-1", "stage-2"):
        last = limner.load(kept / f"{stage}.last.safetensors")
        selected = last.description["selected"]
        ends = [row for row in rows if row["stage"] == stage][-1]
        assert (selected["stage"], selected["epoch"], selected["score"]) == (
            stage,
            ends["epoch"],
            ends["score"],
        )
        # no split has chosen it
        assert (selected["split"], selected["by"]) == (None, "last epoch")
        best, without = (load_file(folder / f"{stage}.safetensors") for folder in (kept, toy_run))
        assert all(torch.equal(best[name], without[name]) for name in without)
    # the weights with which training ended, and not those of the best epoch
    state = load_file(kept / STATE)
    for name, weight in last.model.state_dict().items():
        assert torch.equal(weight, state[f"objective.model.{name}"]), name
    assert not (toy_run / "stage-1.last.safetensors").exists()


@pytest.mark.parametrize("kill_at", [4, 10])
def test_stopped_and_resumed(toys: Dataset, kept: Path, tmp_path: Path, kill_at: int) -> None:
    stopped_and_resumed(toys, change(toy_recipe(), KEEP), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", kept)
    for stage in ("stage-1", "stage-2"):
        one, other = (load_file(folder / f"{stage}.last.safetensors") for folder in (tmp_path / "run", kept))
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_it_is_the_epoch_at_which_patience_ends(toys: Dataset, tmp_path: Path) -> None:
    # a rate that moves nothing: the first epoch stays the best
    still = [
        f"stages.{stage}.{what}" for stage in ("stage-1", "stage-2") for what in ("patience=2", "epochs=9")
    ]
    rates = [f"stages.{stage}.optimiser.rate=1e-30" for stage in ("stage-1", "stage-2")]
    recipe = change(toy_recipe(), [*KEEP, *still, *rates])
    run = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    for stage in ("stage-1", "stage-2"):
        epochs = [
            limner.load(run / f"{stage}{kind}.safetensors").description["selected"]["epoch"]
            for kind in ("", ".last")
        ]
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        assert epochs[1] == max(row["epoch"] for row in rows if row["stage"] == stage) < 9
        assert epochs[0] < epochs[1]


def test_a_damaged_one_is_refused(kept: Path, tmp_path: Path) -> None:
    content = bytearray((kept / "stage-2.last.safetensors").read_bytes())
    content[-1000] ^= 1
    (tmp_path / "stage-2.last.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"stage-2\.last\.safetensors"):
        limner.load(tmp_path / "stage-2.last.safetensors")


def test_it_is_measured_as_a_run(kept: Path, toys: Dataset) -> None:
    file = kept / "stage-2.last.safetensors"
    # bf16, which a CPU of today takes by itself, can turn two pictures that are nearly alike
    report = limner.evaluate(limner.load(file, precision="fp32"), toys, split="val")
    assert report.provenance["checkpoint"] == file.name
    # what validation saw of it
    assert report.text_to_image["R@1"] == report.provenance["selected"]["text_to_image"]["R@1"]
