"""`run.json` knows its checkpoints: one of another run, stage or epoch in their place is refused."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from limner.durable import digest_of_values, opened, sealed
from limner.errors import CheckpointError
from limner.inference.checkpoint import read_digest, write_checkpoint
from limner.inference.run_file import checkpoint_path, read_listing
from limner.inference.source import STATE_FILE

RECIPE = {"name": "toy", "rerank": 0}


def checkpoint(folder: Path, stage: str, epoch: int, weight: float, **changes: Any) -> None:
    selected = {"stage": stage, "epoch": epoch, "split": "val", "score": weight}
    facts = {"recipe": RECIPE, "selected": selected, "data": {"train": "t"}, "seed": 1, "origin": "o"}
    write_checkpoint(folder / f"{stage}.safetensors", {"weight": torch.tensor([weight])}, facts | changes)


def run_of(folder: Path, weight: float) -> Path:
    """A run of two stages, without a network."""
    folder.mkdir()
    files = {"stage-1": "stage-1.safetensors", "stage-2": "stage-2.safetensors"}
    for number, stage in enumerate(files):
        checkpoint(folder, stage, 3, weight + number)
    listing = {
        "best": files["stage-2"],
        "stages": [{"name": name, "file": file, "epoch": 3} for name, file in files.items()],
        "digests": {file: read_digest(folder / file) for file in files.values()},
        "recipe_digest": digest_of_values(RECIPE),
        "data": {"train": "t"},
        "seed": 1,
        "origin": "o",
        "finished": False,
    }
    (folder / "run.json").write_text(sealed(listing))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run", 1)


def test_its_own_are_found(run: Path) -> None:
    assert checkpoint_path(run, None) == checkpoint_path(run, "stage-2") == run / "stage-2.safetensors"
    assert checkpoint_path(run, "stage-1") == run / "stage-1.safetensors"


@pytest.mark.parametrize("name", ["stage-1.safetensors", "stage-2.safetensors", "run.json"])
def test_those_of_another_run_are_refused(run: Path, tmp_path: Path, name: str) -> None:
    other = run_of(tmp_path / "other", 5)
    shutil.copy(other / name, run / name)
    stage = "stage-1" if name.startswith("stage-1") else None
    with pytest.raises(CheckpointError, match=r"is not the checkpoint that run\.json names") as refused:
        checkpoint_path(run, stage)
    assert "\n" not in str(refused.value)
    # a checkpoint that is given itself is what is wanted
    assert checkpoint_path(run / "stage-2.safetensors", None) == run / "stage-2.safetensors"


def test_stages_that_are_exchanged_are_refused(run: Path, tmp_path: Path) -> None:
    (run / "stage-1.safetensors").rename(tmp_path / "kept")
    (run / "stage-2.safetensors").rename(run / "stage-1.safetensors")
    (tmp_path / "kept").rename(run / "stage-2.safetensors")
    for stage in ("stage-1", "stage-2"):
        with pytest.raises(CheckpointError, match="another run, stage or epoch"):
            checkpoint_path(run, stage)


def test_a_training_that_goes_on(run: Path) -> None:
    """It writes the checkpoint of a better epoch first, and may be killed before `run.json`."""
    checkpoint(run, "stage-2", 4, 9)
    assert checkpoint_path(run, None) == run / "stage-2.safetensors"
    # an earlier epoch is an older file put back
    checkpoint(run, "stage-2", 2, 9)
    with pytest.raises(CheckpointError, match="stage or epoch"):
        checkpoint_path(run, None)
    # a later epoch of another training
    others: list[dict[str, Any]] = [
        {"seed": 2},
        {"data": {}},
        {"recipe": {"name": "toy", "rerank": 1}},
        # from another start
        {"origin": "p"},
    ]
    for changes in others:
        checkpoint(run, "stage-2", 4, 9, **changes)
        with pytest.raises(CheckpointError, match="another run"):
            checkpoint_path(run, None)
    # a training state has none of this
    write_checkpoint(run / "stage-2.safetensors", {}, {})
    with pytest.raises(CheckpointError, match="another run"):
        checkpoint_path(run, None)


def rewrite_listing(run: Path, changes: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    listing = opened(json.loads((run / "run.json").read_text())) | changes
    (run / "run.json").write_text(sealed({name: one for name, one in listing.items() if name not in without}))


def test_a_finished_training_has_no_later_checkpoint(run: Path) -> None:
    checkpoint(run, "stage-2", 4, 9)
    checkpoint_path(run, None)
    rewrite_listing(run, {"finished": True})
    with pytest.raises(CheckpointError, match="another run"):
        checkpoint_path(run, None)


def test_a_training_of_before_that_goes_on(run: Path) -> None:
    """Its `run.json` says nothing of its start and of its end."""
    rewrite_listing(run, {}, without=("origin", "finished"))
    checkpoint(run, "stage-2", 4, 9)
    assert checkpoint_path(run, None) == run / "stage-2.safetensors"


def state(run: Path, epochs: tuple[int, ...], finished: bool) -> None:
    """The description of a training state, whose best epochs are these."""
    progress = {"best": [{"epoch": epoch} for epoch in epochs], "finished": finished}
    identity = {"recipe": {"stages": [{"name": "stage-1"}, {"name": "stage-2"}]}}
    write_checkpoint(run / STATE_FILE, {}, {"state": {"progress": progress, "identity": identity}})


@pytest.mark.parametrize("epochs", [(3,), (3, 0), (3, 2), (3, 3), (2,)])
def test_a_run_file_that_is_newer_than_the_state(run: Path, epochs: tuple[int, ...]) -> None:
    """A training writes the checkpoint, `run.json` and the state, and may be killed between any two of them."""
    state(run, epochs, finished=False)
    assert checkpoint_path(run, None) == run / "stage-2.safetensors"
    checkpoint(run, "stage-2", 4, 9)
    assert checkpoint_path(run, None) == run / "stage-2.safetensors"


@pytest.mark.parametrize("epochs", [(4,), (4, 3), (3, 4)])
def test_a_run_file_that_is_older_than_the_state(run: Path, epochs: tuple[int, ...]) -> None:
    state(run, epochs, finished=False)
    for stage in (None, "stage-1"):
        with pytest.raises(CheckpointError, match=r"run\.json: is older than last\.safetensors") as refused:
            checkpoint_path(run, stage)
        assert "\n" not in str(refused.value)
    # one that lists a stage less
    state(run, (3, 1), finished=True)
    checkpoint_path(run, None)
    rewrite_listing(
        run, {"best": "stage-1.safetensors", "stages": read_listing(run)["stages"][:1]}, without=()
    )
    with pytest.raises(CheckpointError, match="is older"):
        checkpoint_path(run, None)
    (run / STATE_FILE).unlink()
    assert checkpoint_path(run, None) == run / "stage-1.safetensors"


def test_a_state_that_is_finished_has_no_later_checkpoint(run: Path) -> None:
    """Also where the training was killed before it said so in `run.json`."""
    state(run, (3, 3), finished=True)
    checkpoint_path(run, None)
    checkpoint(run, "stage-2", 4, 9)
    with pytest.raises(CheckpointError, match="another run"):
        checkpoint_path(run, None)


def test_a_state_that_cannot_be_read_is_not_asked(run: Path) -> None:
    """A run is used without its state."""
    (run / STATE_FILE).write_bytes(b"{")
    assert checkpoint_path(run, None) == run / "stage-2.safetensors"
    write_checkpoint(run / STATE_FILE, {}, {"state": {"progress": {"best": 1}}})
    assert checkpoint_path(run, None) == run / "stage-2.safetensors"


def test_a_run_file_of_before_is_read(run: Path) -> None:
    listing = opened(json.loads((run / "run.json").read_text()))
    del listing["digests"], listing["recipe_digest"]
    (run / "run.json").write_text(sealed(listing))
    checkpoint(run, "stage-2", 2, 9)
    assert checkpoint_path(run, None) == run / "stage-2.safetensors"


def test_a_changed_byte_is_found(run: Path) -> None:
    """Wherever it is: in a value, in the key of its digest, in that of the others'."""
    file = run / "run.json"
    whole = file.read_bytes()
    seen = 0
    for place, byte in enumerate(whole):
        # layout is nobody's
        if chr(byte).isspace():
            continue
        file.write_bytes(whole[:place] + bytes([byte ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=r"run\.json: damaged"):
            checkpoint_path(run, None)
        seen += 1
    assert seen > 400


def test_a_pipe_in_its_place(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 1.0)
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")
    with pytest.raises(CheckpointError, match="it is no file"):
        checkpoint_path(run, None)
