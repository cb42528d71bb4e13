"""Files of a run folder that are exchanged, or of a training that was killed: noticed, or no matter."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import limner
import limner.training.loop
from limner.data.records import Dataset
from limner.durable import sealed
from limner.errors import CheckpointError
from limner.inference.checkpoint import read_checkpoint, read_description, write_checkpoint
from limner.inference.run_file import read_listing
from limner.inference.source import STATE_FILE
from limner.training.log import EpochEnded, Event
from limner.training.loop import train
from limner.training.prepare import Prepared
from limner.training.run_files import write_run_file, write_stage_checkpoint
from limner.training.state import Progress
from tests.toy import toy_recipe
from tests.training.interrupted import KilledError, same_run

CLASSIFIER = "stage-1-classifier.safetensors"


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(toy_run, tmp_path / "run")


def rewrite_state(run: Path, progress: dict[str, Any]) -> None:
    """The run's state with other progress."""
    tensors, description = read_checkpoint(run / STATE_FILE)
    del description["format"]
    description["state"]["progress"] |= progress
    write_checkpoint(run / STATE_FILE, tensors, description)


def changed(file: Path) -> None:
    tensors, description = read_checkpoint(file)
    del description["format"]
    write_checkpoint(file, {name: tensor * 2 for name, tensor in tensors.items()}, description)


@pytest.fixture(scope="module")
def of_seed_4(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("seed-4") / "run"
    return train(toy_recipe().replace(seed=4), toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.mark.parametrize("listed", ["own", "the state's", "none"])
@pytest.mark.parametrize("seed", [3, 4])
def test_the_state_of_another_run_is_refused(
    toys: Dataset, run: Path, of_seed_4: Path, seed: int, listed: str
) -> None:
    """Whichever of both recipes is given, and whatever `run.json` says: seed 4's state is in the folder of seed 3."""
    shutil.copy(of_seed_4 / STATE_FILE, run)
    if listed != "own":
        (run / "run.json").unlink()
    if listed == "the state's":
        shutil.copy(of_seed_4 / "run.json", run)
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(
        CheckpointError,
        match=r"stage-1\.safetensors: is not the file of epoch \d that last\.safetensors names, and one of both is of "
        "another run",
    ) as refused:
        train(
            toy_recipe().replace(seed=seed),
            toys.split("train"),
            toys.split("val"),
            run,
            resume=True,
            cpu=True,
        )
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("file", [CLASSIFIER, "stage-1.safetensors"])
def test_a_stage_does_not_begin_with_files_of_another_run(toys: Dataset, run: Path, file: str) -> None:
    progress = read_description(run / STATE_FILE)["state"]["progress"]
    rewrite_state(run, {"stage": 0, "epoch": 3, "finished": False, "best": progress["best"][:1]})
    changed(run / file)
    with pytest.raises(CheckpointError, match=rf"{file}: is not the file of epoch .*put that back"):
        train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)


def kill_before_run_json(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Kill a training that has written the checkpoint of this epoch."""

    def killing(out: Path, data: Prepared, progress: Progress) -> None:
        if progress.epoch == epoch:
            raise KilledError
        write_run_file(out, data, progress)

    monkeypatch.setattr("limner.training.loop.write_run_file", killing)


def test_resumed_with_another_spelling_and_killed_before_run_json(
    toys: Dataset, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset lies elsewhere now, so the checkpoint describes it otherwise than `run.json` did."""
    best = read_description(run / STATE_FILE)["state"]["progress"]["best"]
    first = {"epoch": 1, "score": -1.0}
    tensors, description = read_checkpoint(run / "stage-2.safetensors")
    del description["format"]
    description["selected"] |= first
    files = {"stage-2.safetensors": write_checkpoint(run / "stage-2.safetensors", tensors, description)}
    reached = {"stage": 1, "epoch": 1, "finished": False, "best": [best[0], {**first, "files": files}]}
    rewrite_state(run, reached)
    listing = read_listing(run)
    listing |= {"stages": [listing["stages"][0], {**listing["stages"][1], **first}], "finished": False}
    listing["best"] = "stage-1.safetensors"
    (run / "run.json").write_text(sealed(listing), encoding="utf-8")
    kill_before_run_json(monkeypatch, epoch=2)
    # the toy state of a finished run holds no moments, which SGD without momentum does not miss
    train_split = dataclasses.replace(toys.split("train"), source="folder:/elsewhere")
    with pytest.raises(KilledError):
        train(toy_recipe(), train_split, toys.split("val"), run, resume=True, cpu=True)
    selected = read_description(run / "stage-2.safetensors")["selected"]
    assert selected["epoch"] == 2
    now = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert (now["data"]["source"], now["stages"]) == ("folder:/elsewhere", listing["stages"])
    assert limner.load(run, stage="stage-2", device="cpu").description["selected"] == selected


def test_begun_anew_with_another_recipe_and_killed_before_run_json(
    toys: Dataset, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that was killed before its first state leaves a `run.json`, which is not the next one's."""
    (run / STATE_FILE).unlink()
    kill_before_run_json(monkeypatch, epoch=1)
    with pytest.raises(KilledError):
        train(
            toy_recipe().replace(seed=4), toys.split("train"), toys.split("val"), run, resume=True, cpu=True
        )
    with pytest.raises(CheckpointError, match=r"no trained run here \(run\.json is missing\)"):
        limner.load(run, device="cpu")


def killed(*_: object) -> None:
    raise KilledError


@pytest.mark.parametrize("text", [None, "{", '{"best": "stage-1.safetensors"}'])
def test_a_finished_run_gets_its_run_json_again(toys: Dataset, run: Path, text: str | None) -> None:
    file = run / "run.json"
    before = json.loads(file.read_text(encoding="utf-8"))
    file.unlink() if text is None else file.write_text(text, encoding="utf-8")
    train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
    after = json.loads(file.read_text(encoding="utf-8"))
    for listing in (before, after):
        del listing["digest"]
    assert after == before
    limner.load(run)


def test_a_run_json_is_not_made_of_other_checkpoints(toys: Dataset, run: Path) -> None:
    file = run / "stage-1.safetensors"
    tensors, description = read_checkpoint(file)
    del description["format"]
    arguments = (toy_recipe(), toys.split("train"), toys.split("val"), run)
    for changes in (
        {"recipe": {**description["recipe"], "seed": 4}},
        {"selected": {**description["selected"], "epoch": 0}},
        {"selected": {**description["selected"], "stage": "stage-2"}},
        {"data": {**description["data"], "train": "other"}},
    ):
        (run / "run.json").unlink(missing_ok=True)
        write_checkpoint(file, tensors, {**description, **changes})
        with pytest.raises(CheckpointError, match=r"stage-1\.safetensors: is not the file of epoch"):
            train(*arguments, resume=True, cpu=True)
        assert not (run / "run.json").exists()
    file.unlink()
    with pytest.raises(CheckpointError, match=r"stage-1\.safetensors: no such checkpoint"):
        train(*arguments, resume=True, cpu=True)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("file", ["stage-1.safetensors", "stage-2.safetensors"])
def test_checkpoints_of_another_epoch_are_refused(
    toys: Dataset, run: Path, file: str, finished: bool, listed: bool
) -> None:
    """As in a folder that was copied while the run went on: the state is newer than a checkpoint and `run.json`."""
    progress = read_description(run / STATE_FILE)["state"]["progress"]
    rewrite_state(run, {"epoch": progress["epoch"] if finished else 1, "finished": finished})
    tensors, description = read_checkpoint(run / file)
    del description["format"]
    number = int(file == "stage-2.safetensors")
    # of the stage that is trained a later epoch would be that of a run that was killed behind its checkpoint
    description["selected"]["epoch"] = progress["best"][number]["epoch"] - 1
    write_checkpoint(run / file, tensors, description)
    if not listed:
        (run / "run.json").unlink()
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(CheckpointError, match=rf"{file}: is not the file of epoch"):
        train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("file", ["stage-1.safetensors", CLASSIFIER])
def test_a_file_that_was_exchanged_while_the_run_went_on_gets_no_digest(
    toys: Dataset, run: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """`run.json` is written at each better epoch, and names the files as this training wrote them."""
    listed = json.loads((run / "run.json").read_text(encoding="utf-8"))["digests"]
    (run / STATE_FILE).unlink()
    written = write_stage_checkpoint

    def exchanging(out: Path, data: Prepared, stage: str, *others: Any) -> Any:
        found = written(out, data, stage, *others)
        if stage == "stage-2":
            changed(run / file)
        return found

    monkeypatch.setattr("limner.training.loop.write_stage_checkpoint", exchanging)
    train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["digests"][file] == listed[file]


def test_without_run_json_a_stage_does_not_begin_with_a_foreign_classifier(toys: Dataset, run: Path) -> None:
    progress = read_description(run / STATE_FILE)["state"]["progress"]
    rewrite_state(run, {"stage": 0, "epoch": 3, "finished": False, "best": progress["best"][:1]})
    changed(run / CLASSIFIER)
    (run / "run.json").unlink()
    with pytest.raises(CheckpointError, match=rf"{CLASSIFIER}: is not the file of epoch"):
        train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)


@pytest.fixture(scope="module")
def listings(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run, and its `run.json` after each epoch."""
    out = tmp_path_factory.mktemp("listings") / "run"
    found: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, EpochEnded):
            found.append((out / "run.json").read_text(encoding="utf-8"))

    train(toy_recipe(), toys.split("train"), toys.split("val"), out, listener=listen, cpu=True)
    return out, found


def test_an_older_run_json_is_refused_and_mended(
    toys: Dataset, listings: tuple[Path, list[str]], tmp_path: Path
) -> None:
    out, older = listings
    run = shutil.copytree(out, tmp_path / "run")
    newest = (run / "run.json").read_text(encoding="utf-8")
    limner.load(run, device="cpu")
    # those of the second stage say all but that the training is finished
    for text in (older[0], older[2]):
        (run / "run.json").write_text(text, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"run\.json: is older than last\.safetensors"):
            limner.load(run, device="cpu")
        train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
        assert (run / "run.json").read_text(encoding="utf-8") == newest
    (run / "run.json").write_text(older[-1], encoding="utf-8")
    train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
    assert (run / "run.json").read_text(encoding="utf-8") == newest
    (run / STATE_FILE).unlink()
    limner.load(run, device="cpu")


def test_a_killed_run_is_not_built_on_an_older_run_json(
    toys: Dataset, listings: tuple[Path, list[str]], tmp_path: Path
) -> None:
    out, older = listings
    run = tmp_path / "run"
    seen = 0

    def listen(event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, EpochEnded)
        if seen == 4:
            raise KilledError

    arguments = (toy_recipe(), toys.split("train"), toys.split("val"), run)
    with pytest.raises(KilledError):
        train(*arguments, listener=listen, cpu=True)
    (run / "run.json").write_text(older[0], encoding="utf-8")
    train(*arguments, resume=True, cpu=True)
    assert read_listing(run) == read_listing(out)


def expect_to_load(run: Path) -> None:
    for stage in (None, *(one["name"] for one in read_listing(run)["stages"])):
        limner.load(run, stage=stage, device="cpu")


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("function", ["write_run_file", "write_state"])
def test_killed_between_checkpoint_run_json_and_state(
    toys: Dataset,
    listings: tuple[Path, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    behind: bool,
    finished: bool,
) -> None:
    """At the first epoch of the second stage, and at the end: the run loads, and resumes to the same files."""
    out, _ = listings
    run = tmp_path / "run"
    written = getattr(limner.training.loop, function)

    def killing(*arguments: Any, **more: Any) -> None:
        progress = next(one for one in arguments if isinstance(one, Progress))
        now = progress.finished if finished else progress.stage == progress.epoch == 1
        if behind or not now:
            written(*arguments, **more)
        if now:
            raise KilledError

    arguments = (toy_recipe(), toys.split("train"), toys.split("val"), run)
    with monkeypatch.context() as patched:
        patched.setattr(f"limner.training.loop.{function}", killing)
        with pytest.raises(KilledError):
            train(*arguments, cpu=True)
    expect_to_load(run)
    monkeypatch.setattr("limner.training.loop.EmbeddingStage", killed)
    if not finished:
        # killed once more, when `run.json` says what the state says and the checkpoint may be newer
        with pytest.raises(KilledError):
            train(*arguments, resume=True, cpu=True)
        expect_to_load(run)
    monkeypatch.undo()
    train(*arguments, resume=True, cpu=True)
    assert read_listing(run) == read_listing(out)
    same_run(run, out)
