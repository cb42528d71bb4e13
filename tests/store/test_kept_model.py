"""A store holds the checkpoint that it was built with, whatever becomes of its run."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import limner
from limner.data.records import Dataset
from limner.errors import StoreError
from limner.inference.calibration import write_calibration
from limner.inference.checkpoint import SELECTED_ON, TRAINED_ON, read_checkpoint, write_checkpoint
from limner.search.repair import repair
from limner.store import kept_model
from limner.store.calibration import write_store_calibration
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.manifest import IN_STORE
from limner.store.verify import verify
from limner.training.log import EpochEnded, Event
from limner.training.loop import train
from tests.going_on import going_on
from tests.search.fake import calibration
from tests.toy import toy_recipe

QUERY = "a red square on white"


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(toy_run, tmp_path / "run")


@pytest.fixture
def pictures(toys: Dataset, tmp_path: Path) -> list[Path]:
    return [record.image for record in toys.records[:4]]


def found(store: Path) -> list[tuple[str, float]]:
    with limner.open_store(store, device="cpu") as opened:
        return [(hit.name, hit.score) for hit in opened.search(QUERY, k=4)]


def best(run: Path) -> Path:
    return run / str(json.loads((run / "run.json").read_text(encoding="utf-8"))["best"])


def replace_best(run: Path) -> None:
    """A better epoch: written as training writes it."""
    going_on(run)
    tensors, description = read_checkpoint(best(run))
    description.pop("format")
    # as of a training that has not written run.json yet
    description["selected"]["epoch"] += 1
    changed = {name: one * 1.01 if one.is_floating_point() else one for name, one in tensors.items()}
    write_checkpoint(best(run), changed, description)


def test_a_better_epoch_later_leaves_the_store_as_it_is(
    toys: Dataset, pictures: list[Path], tmp_path: Path
) -> None:
    run, store = tmp_path / "trained", tmp_path / "store"
    recipe = toy_recipe()
    # another epoch is better than the first: which one depends on the seed and on the processor
    recipe = recipe.replace(stages=(recipe.stages[0].replace(epochs=6),), seed=3)
    before: list[object] = []

    def indexing_meanwhile(event: Event) -> None:
        if isinstance(event, EpochEnded) and not before:
            assert limner.index(run, store, pictures).added == 4
            before.append(found(store))
            before.append(best(run).read_bytes())

    train(recipe, toys.split("train"), toys.split("val"), run, listener=indexing_meanwhile, cpu=True)
    # the point of this test: training has replaced the file of the same name
    assert best(run).read_bytes() != before[1]
    assert found(store) == before[0]
    # whoever names the run means its model of now
    with pytest.raises(
        StoreError, match=r"another checkpoint of this run.*limner index .*store/model .*reindex"
    ):
        limner.index(run, store, pictures)
    assert limner.index(store / "model", store, pictures).unchanged == 4


@pytest.mark.parametrize("damage", ["bit", "other model", "gone", "calibration"])
def test_verify_reads_the_model(run: Path, pictures: list[Path], tmp_path: Path, damage: str) -> None:
    limner.index(run, tmp_path / "store", pictures)
    files = StoreFiles.open(tmp_path / "store")
    assert verify(files).found == {}
    kept = best(tmp_path / "store" / "model")
    content = bytearray(kept.read_bytes())
    # the link goes first: the run keeps its own bytes
    kept.unlink()
    if damage == "bit":
        content[-100] ^= 1
        kept.write_bytes(content)
    elif damage == "other model":
        replace_best(run)
        shutil.copyfile(best(run), kept)
    elif damage == "calibration":
        kept.write_bytes(content)
        files.rows.set_text("calibration", "{}")
    report = verify(files)
    assert not report.sound
    kind = "calibration" if damage == "calibration" else "model"
    assert list(report.found) == [kind]
    # another model is no longer the run's either: with the first two it is, and with the calibration nothing is wrong
    taken_back = damage in ("bit", "gone")
    # the rows are not written anew for it
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    opened = StoreFiles.open(tmp_path / "store")
    repaired = repair(opened, lambda: pytest.fail("nothing to encode"))
    assert (repaired.pictures, repaired.repaired, repaired.loses) == (4, (), False)
    assert repaired.model_from == (str(run) if taken_back else None)
    assert verify(StoreFiles.open(tmp_path / "store")).sound == taken_back
    if taken_back:
        assert (repaired.beside, kept.read_bytes()) == ((), best(run).read_bytes())
        assert len(found(tmp_path / "store")) == 4
        return
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before
    [said] = repaired.beside
    assert re.search("fit it anew.*calibration" if kind == "calibration" else "takes it back.*model", said)


@pytest.mark.parametrize("links", [True, False])
def test_the_run_may_be_replaced_moved_and_deleted(
    run: Path, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    store = tmp_path / "store"
    if not links:
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    limner.index(run, store, pictures)
    kept = store / "model" / best(run).name
    assert kept.samefile(best(run)) == links
    assert (StoreFiles.open(store).manifest.run, StoreFiles.open(store).manifest.kept_from) == (
        IN_STORE,
        str(run),
    )
    before, content = found(store), kept.read_bytes()
    replace_best(run)
    assert (found(store), kept.read_bytes()) == (before, content)
    run.rename(tmp_path / "moved")
    assert found(store) == before
    shutil.rmtree(tmp_path / "moved")
    assert found(store) == before
    # the store moves with its model
    store.rename(tmp_path / "elsewhere")
    assert found(tmp_path / "elsewhere") == before
    assert limner.evaluate(
        str(tmp_path / "elsewhere" / "model"), f"folder:{pictures[0].parent}"
    ).text_to_image


def test_without_a_model_the_store_needs_its_run(run: Path, pictures: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    limner.index(run, store, pictures, keep_model=False)
    assert not (store / "model").exists()
    assert StoreFiles.open(store).manifest.run == str(run)
    before = found(store)
    run.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="cannot be loaded"):
        found(store)
    with limner.open_store(store, run=tmp_path / "moved", device="cpu") as opened:
        assert [(hit.name, hit.score) for hit in opened.search(QUERY, k=4)] == before


def test_a_checkpoint_that_is_replaced_while_it_is_kept_is_refused(
    run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    model = limner.load(run, device="cpu")
    replace_best(run)
    with pytest.raises(StoreError, match="no longer the checkpoint that was loaded"):
        limner.index(model, tmp_path / "store", pictures)
    assert {path.name for path in (tmp_path / "store").iterdir()} <= {".store.lock"}
    limner.index(run, tmp_path / "store", pictures)
    found(tmp_path / "store")


def test_a_full_disk_is_one_line_and_leaves_nothing(
    run: Path, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", full)
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(
        StoreError, match=r"cannot be kept in the store .No space left on device.; .*--no-model"
    ):
        limner.index(run, tmp_path / "store", pictures)
    assert {path.name for path in (tmp_path / "store").iterdir()} <= {".store.lock"}


def test_a_folder_of_the_users_is_left_alone(run: Path, pictures: list[Path], tmp_path: Path) -> None:
    mine = tmp_path / "store" / "model"
    mine.parent.mkdir()
    shutil.copytree(run, mine)
    for named in (run, mine):
        with pytest.raises(StoreError, match=r"not empty .holds 'model'."):
            limner.index(named, tmp_path / "store", pictures)
    assert best(mine).read_bytes() == best(run).read_bytes()


def test_its_files_are_on_the_disk_before_the_folder_has_its_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave a model's folder with files of no content."""
    kept, synced = tmp_path / "model", set[str]()

    def noted(path: Path) -> None:
        # of what comes after the rename nothing is asked
        if not kept.exists():
            synced.add(path.name)

    monkeypatch.setattr("limner.durable.sync", noted)
    kept_model.keep(limner.load(run, device="cpu"), kept)
    assert {path.name for path in kept.iterdir()} <= synced


_KILLED = """
import os, signal, sys
from pathlib import Path
import limner
from limner.store import kept_model
from limner.store import files as store_files

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(source, target):
    Path(target).write_bytes(Path(source).read_bytes()[:2000])
    kill()

at, run, store, *pictures = sys.argv[1:]
if at == "copying":
    kept_model._link_or_copy = half
elif at == "naming":
    kept_model.sealed = kill
else:
    store_files.SqliteRows.create = kill
limner.index(run, store, pictures)
"""


@pytest.mark.parametrize("at", ["copying", "naming", "manifest"])
def test_killed_while_the_model_is_kept(run: Path, pictures: list[Path], tmp_path: Path, at: str) -> None:
    store = tmp_path / "store"
    command = [sys.executable, "-c", _KILLED, at, str(run), str(store), *map(str, pictures)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    # a folder of this name holds all of a model, and without a manifest there is no store yet
    assert (store / "model" / "run.json").exists() == (store / "model").exists() == (at == "manifest")
    with pytest.raises(StoreError, match="not a store"):
        limner.open_store(store)
    # meanwhile the run has trained on: the next call keeps what it builds with
    replace_best(run)
    assert limner.index(run, store, pictures).added == 4
    assert (store / "model" / best(run).name).samefile(best(run))
    assert not (store / ".model.partial").exists()
    found(store)


def threshold(store: Path) -> float | None:
    made = limner.open_store(store, device="cpu").engine.calibration
    return None if made is None else made.threshold


def test_the_calibration_of_the_store_then_the_run_then_the_kept_one(
    run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    limner.index(run, tmp_path / "first", pictures)
    opened = limner.open_store(tmp_path / "first", device="cpu")
    assert threshold(tmp_path / "first") is None
    write_calibration(run, calibration(opened.files.fingerprint, threshold=0.1))
    # of the run, which was calibrated after the store was made
    assert threshold(tmp_path / "first") == 0.1
    limner.index(run, tmp_path / "second", pictures)
    write_calibration(run, calibration(opened.files.fingerprint, threshold=0.2))
    assert threshold(tmp_path / "second") == 0.2
    shutil.rmtree(run)
    # as it was when the store was made
    assert (threshold(tmp_path / "first"), threshold(tmp_path / "second")) == (None, 0.1)
    write_store_calibration(
        opened.files, calibration(opened.files.fingerprint, threshold=0.3).replace(split="store")
    )
    assert threshold(tmp_path / "first") == 0.3


def test_what_was_loaded_is_compared_to_the_last_bit(run: Path, tmp_path: Path) -> None:
    model = limner.load(run, device="cpu")
    kept_model.keep(model, tmp_path / "model")
    assert limner.load(tmp_path / "model", device="cpu").fingerprint == model.fingerprint
    with torch.no_grad():
        next(iter(model.model.parameters())).view(-1)[0] += 1e-3
    with pytest.raises(StoreError, match="no longer the checkpoint"):
        kept_model.keep(model, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("model", ["kept", "in the run", "gone", "of before", "damaged"])
def test_an_erasure_says_what_the_model_has_learnt_from(
    toys: Dataset, run: Path, tmp_path: Path, model: str
) -> None:
    """Eight bytes of their digests stay in its checkpoint."""
    names = {
        split: [record.image for record in toys.split(split).records] for split in ("train", "val", "test")
    }
    if model == "of before":
        tensors, description = read_checkpoint(best(run))
        del description["format"], tensors[TRAINED_ON], tensors[SELECTED_ON]
        write_checkpoint(best(run), tensors, description)
        (run / "run.json").write_text(
            json.dumps({"best": best(run).name, "stages": [{"name": "stage-1", "file": best(run).name}]})
        )
    store = tmp_path / "store"
    limner.index(
        run,
        store,
        [one for some in names.values() for one in some[:3]],
        keep_model=model in ("kept", "damaged"),
    )
    if model == "gone":
        shutil.rmtree(run)
    if model == "damaged":
        # one bit of a number: by the others alone it would be one image less
        file = best(store / "model")
        whole = bytearray(file.read_bytes())
        number = read_checkpoint(file, only=(TRAINED_ON,))[0][TRAINED_ON][0].numpy().tobytes()
        whole[whole.rindex(number)] ^= 1
        file.write_bytes(whole)
    chosen = [*names["train"][:2], names["val"][0], names["test"][0]]
    report = erase(StoreFiles.open(store), paths=chosen)
    assert report.pictures == 4
    assert report.learnt == (3 if model in ("kept", "in the run") else None)
    assert erase(StoreFiles.open(store), paths=[names["test"][1]]).learnt == (
        None if report.learnt is None else 0
    )
