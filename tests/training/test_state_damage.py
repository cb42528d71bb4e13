"""A state file with a flipped bit, and one that says what cannot be: refused, and the folder stays as it was."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from limner.data.records import Dataset
from limner.durable import sealed
from limner.errors import CheckpointError
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.inference.run_file import read_listing
from limner.inference.source import STATE_FILE
from limner.training.loop import train
from limner.training.state import read_progress, write_state
from tests.toy import toy_recipe
from tests.training.interrupted import KilledError, killer, same_run
from tests.training.test_run_files import changed, rewrite_state

# Within the first stage, between both, within the second, and at the end.
KILLED_AT = (7, 10, 14, None)


@pytest.fixture(scope="module", params=KILLED_AT)
def stopped(
    request: pytest.FixtureRequest, toys: Dataset, toy_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that was killed at an event, or that is finished."""
    if request.param is None:
        return toy_run
    out = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(KilledError):
        train(
            toy_recipe(),
            toys.split("train"),
            toys.split("val"),
            out,
            cpu=True,
            listener=killer(request.param),
        )
    # of the epoch that was not complete; it is cut off when the run is resumed
    with (out / "metrics.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"stage": "sta')
    return out


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def progress_bits(state: bytes) -> list[int]:
    """Places of the bits of all that the description says of the progress."""
    # the description is a text within the JSON of the header, so its quotes are escaped
    begin = state.index(rb"\"progress\"")
    return list(range(8 * begin, 8 * state.index(rb"\"identity\"", begin)))


def flipped(state: bytes, bit: int) -> bytes:
    return state[: bit // 8] + bytes([state[bit // 8] ^ 1 << bit % 8]) + state[bit // 8 + 1 :]


def put(file: Path, place: int, byte: bytes) -> None:
    """Write a byte in its place: a file that is written anew goes to the disk each time."""
    with file.open("r+b") as handle:
        handle.seek(place)
        handle.write(byte)


def test_every_flipped_bit_of_the_progress_is_refused(stopped: Path, tmp_path: Path) -> None:
    """And of a sample of all bytes: no value of a damaged state comes out of its file."""
    # With few tensors, as each bit is a file.
    write_state(tmp_path, torch.nn.Linear(5, 3), (), *read_progress(stopped))
    state = (tmp_path / STATE_FILE).read_bytes()
    bits = progress_bits(state)
    assert b"log_bytes" in state[bits[0] // 8 : bits[-1] // 8]
    header = 8 * (8 + int.from_bytes(state[:8], "little"))
    drawn = random.Random(3)
    bits += drawn.sample(range(header), 300) + drawn.sample(range(header, 8 * len(state)), 50)
    for bit in bits:
        place = bit // 8
        put(tmp_path / STATE_FILE, place, bytes([state[place] ^ 1 << bit % 8]))
        with pytest.raises(CheckpointError) as refused:
            read_progress(tmp_path)
        assert "\n" not in str(refused.value)
        put(tmp_path / STATE_FILE, place, state[place : place + 1])
    assert (tmp_path / STATE_FILE).read_bytes() == state


@pytest.mark.parametrize("listed", [True, False])
def test_a_damaged_state_is_not_resumed_and_nothing_is_written(
    toys: Dataset, stopped: Path, tmp_path: Path, listed: bool
) -> None:
    """With `run.json` and without it, which resuming would write anew from the state."""
    run = shutil.copytree(stopped, tmp_path / "run")
    if not listed:
        (run / "run.json").unlink(missing_ok=True)
    state = (run / STATE_FILE).read_bytes()
    # The last bit makes another digit of a digit, and of a sign another sign.
    digits = [bit for bit in progress_bits(state)[::8] if chr(state[bit // 8]).isdigit()]
    others = random.Random(4).sample(progress_bits(state), 8)
    told = {value: state.index(value) for value in (rb"\"stage\": ", rb"\"log_bytes\": ")}
    named = [8 * (place + len(value)) + 1 for value, place in told.items()]
    for bit in [*random.Random(5).sample(digits, 8), *others, *named]:
        (run / STATE_FILE).write_bytes(flipped(state, bit))
        before = content(run)
        with pytest.raises(CheckpointError, match=r"last\.safetensors") as refused:
            train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
        assert "\n" not in str(refused.value)
        assert content(run) == before


def test_put_back_it_ends_as_the_whole_run(
    toys: Dataset, stopped: Path, toy_run: Path, tmp_path: Path
) -> None:
    """Refusals have not changed anything that the next resume needs."""
    run = shutil.copytree(stopped, tmp_path / "run")
    state = (run / STATE_FILE).read_bytes()
    arguments = (toy_recipe(), toys.split("train"), toys.split("val"), run)
    (run / STATE_FILE).write_bytes(flipped(state, progress_bits(state)[200]))
    with pytest.raises(CheckpointError, match=r"last\.safetensors"):
        train(*arguments, resume=True, cpu=True)
    (run / STATE_FILE).write_bytes(state)
    train(*arguments, resume=True, cpu=True)
    same_run(run, toy_run)


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": 2, "finished": False},
        {"stage": -1, "finished": False},
        {"stage": 0, "finished": True},
        {"stage": 0, "epoch": 9, "finished": False},
        {"best": []},
        {"best": "of three stages"},
    ],
)
def test_a_place_that_the_recipe_does_not_have_is_refused(
    toys: Dataset, toy_run: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    """Also where the digest is right, as of a state that a program has changed."""
    run = shutil.copytree(toy_run, tmp_path / "run")
    best = read_checkpoint(run / STATE_FILE, only=())[1]["state"]["progress"]["best"]
    if "best" in changes:
        changes = {"best": [*best, best[-1]] if changes["best"] else []}
    rewrite_state(run, {"best": best[:1] if changes.get("stage") == 0 else best, **changes})
    before = content(run)
    with pytest.raises(CheckpointError, match=r"where a training of this recipe cannot be; put back"):
        train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
    assert content(run) == before


def other_score(run: Path) -> None:
    best = read_checkpoint(run / STATE_FILE, only=())[1]["state"]["progress"]["best"]
    rewrite_state(run, {"best": [{**best[0], "score": best[0]["score"] + 50}, best[1]]})


def damaged_checkpoint(run: Path) -> None:
    file = run / "stage-1.safetensors"
    whole = file.read_bytes()
    file.write_bytes(flipped(whole, 8 * len(whole) - 1))


@pytest.mark.parametrize("change", [other_score, damaged_checkpoint])
def test_no_run_json_is_made_of_files_that_disagree(
    toys: Dataset, toy_run: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """The score of a stage stands in the state and in its checkpoint, and chooses the best stage."""
    run = shutil.copytree(toy_run, tmp_path / "run")
    (run / "run.json").unlink()
    change(run)
    before = content(run)
    with pytest.raises(CheckpointError, match=r"stage-1\.safetensors: (is not the file|damaged)"):
        train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
    assert content(run) == before


def test_a_stage_that_cannot_begin_leaves_the_log(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    """The files from which a stage begins are read after the state, and may be those of another run."""
    run = shutil.copytree(toy_run, tmp_path / "run")
    rows = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    best = read_checkpoint(run / STATE_FILE, only=())[1]["state"]["progress"]["best"]
    ended = sum(json.loads(row)["stage"] == "stage-1" for row in rows)
    bytes_then = sum(map(len, rows[:ended]))
    rewrite_state(run, {"stage": 0, "epoch": 3, "finished": False, "best": best[:1], "log_bytes": bytes_then})
    changed(run / "stage-1-classifier.safetensors")
    # as where a run was killed behind its first checkpoint of the second stage, which no state knows
    (run / "run.json").write_text(sealed({**read_listing(run), "finished": False}), encoding="utf-8")
    before = content(run)
    with pytest.raises(CheckpointError, match=r"classifier\.safetensors: is not the file"):
        train(toy_recipe(), toys.split("train"), toys.split("val"), run, resume=True, cpu=True)
    assert content(run) == before


def test_the_digest_is_compared_whatever_is_asked_for(toy_run: Path, tmp_path: Path) -> None:
    """Also where no tensor is asked for, and where the digest's name is damaged."""
    tensors, description = read_checkpoint(toy_run / STATE_FILE)
    del description["format"]
    write_checkpoint(tmp_path / STATE_FILE, tensors, description)
    assert read_checkpoint(tmp_path / STATE_FILE, only=("objective",))[0] == {}
    name = next(iter(tensors))
    assert read_checkpoint(tmp_path / STATE_FILE, only=(name, "no such"))[0].keys() == {name}
    whole = (tmp_path / STATE_FILE).read_bytes()
    (tmp_path / STATE_FILE).write_bytes(whole.replace(b'"digest"', b'"digesu"'))
    with pytest.raises(CheckpointError, match="its digest is another"):
        read_checkpoint(tmp_path / STATE_FILE, only=())
