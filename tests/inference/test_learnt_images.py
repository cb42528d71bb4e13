"""Measuring on what a run has learnt from is found by content, wherever the images lie and whatever they are called."""

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from limner.data.composed import ComposedGallery, ComposedSet, Triplet
from limner.data.minimal_pairs import MinimalPair, PairSet
from limner.data.readers import open_dataset
from limner.data.records import Dataset, Record
from limner.data.splits import assign_splits
from limner.durable import sealed
from limner.errors import CheckpointError, DataError
from limner.inference.bench_run import bench_run
from limner.inference.calibration import calibrate_run
from limner.inference.checkpoint import SELECTED_ON, TRAINED_ON, read_checkpoint, write_checkpoint
from limner.inference.evaluate_composed import evaluate_composed
from limner.inference.evaluate_run import evaluate_run
from limner.inference.learnt_images import knows_what_it_learnt, learnt_from, learnt_tensors, named_by
from limner.inference.load import load_model
from limner.inference.run_file import checkpoint_path
from limner.inference.source import RUN_FILE
from limner.inference.trained import TrainedModel
from limner.training.loop import train
from limner.training.prepare import prepare
from tests.toy import toy_recipe

FORMATS = Path(__file__).parent / "formats"


@pytest.fixture(scope="module")
def run(toy_run: Path) -> TrainedModel:
    return load_model(toy_run, device="cpu")


def _place(source: Path, target: Path, how: str) -> Path:
    """The image under another name: copied, linked, or reached from the working folder."""
    if how == "symlink":
        target.symlink_to(source)
    elif how == "hard link":
        target.hardlink_to(source)
    else:
        shutil.copy(source, target)
    return Path(target.name) if how == "relative" else target


def _set_of(placed: Sequence[tuple[Path, str]], source: str = "folder:elsewhere") -> Dataset:
    return Dataset(
        source,
        "identity",
        tuple(
            Record(path, (f"sentence {place}",), f"g{place}", split)
            for place, (path, split) in enumerate(placed)
        ),
    )


@settings(max_examples=60)
@given(data=st.data())
def test_any_images_that_were_learnt_from_are_found_wherever_they_lie(
    data: st.DataObject, toys: Dataset, run: TrainedModel
) -> None:
    trained = [record.image for record in toys.split("train").records]
    chosen = [record.image for record in toys.split("val").records]
    unseen = [record.image for record in toys.split("test").records]
    kinds = {"trained": trained, "selected": chosen, "unseen": unseen}
    pool = [(kind, image) for kind, images in kinds.items() for image in images]
    picked = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=8, unique=True))
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.chdir(name)
        ways = st.sampled_from(["copied", "relative", "symlink", "hard link"])
        paths = [
            _place(
                image, Path(name) / f"{data.draw(st.text('abäz é', max_size=4))}{place}.jpg", data.draw(ways)
            )
            for place, (_, image) in enumerate(picked)
        ]
        dataset = _set_of([(path, "test") for path in paths])
        count = {kind: sum(one == kind for one, _ in picked) for kind in kinds}
        if count["trained"] or count["selected"]:
            what = (
                f"was trained on {count['trained']}"
                if count["trained"]
                else f"was selected on {count['selected']}"
            )
            with pytest.raises(DataError, match=f"the run {what} of these {len(picked)} pictures"):
                learnt_from(run, dataset)
        else:
            found = learnt_from(run, dataset)
            assert found is not None
            assert found.model_dump() == {
                "images": len(picked),
                "trained_on": 0,
                "selected_on": 0,
                "whole": True,
            }


@settings(max_examples=20)
@given(seed=st.integers(1, 10_000))
def test_a_copy_of_the_folder_with_other_splits_is_refused_where_they_overlap(
    seed: int, toys: Dataset, run: TrainedModel
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(shutil.copytree(toys.records[0].image.parent, Path(name) / "copy"))
        drawn = open_dataset(f"folder:{folder}#seed={seed}")
        if "test" not in drawn.split_counts:
            return
        learnt = {record.image.name for record in toys.records if record.split in ("train", "val")}
        test = drawn.split("test")
        if any(record.image.name in learnt for record in test.records):
            with pytest.raises(DataError, match="by their content, the run was"):
                learnt_from(run, test)
        else:
            assert learnt_from(run, test) is not None


def test_a_copy_of_the_set_with_its_own_splits_is_measured(
    toys: Dataset, run: TrainedModel, tmp_path: Path
) -> None:
    copy = open_dataset(f"folder:{shutil.copytree(toys.records[0].image.parent, tmp_path / 'copy')}")
    found = {split: learnt_from(run, copy.split(split)) for split in ("train", "val", "test")}
    counts = {split: len(toys.split(split)) for split in found}
    assert {split: (one.trained_on, one.selected_on) for split, one in found.items() if one} == {
        "train": (counts["train"], 0),
        "val": (0, counts["val"]),
        "test": (0, 0),
    }
    report = evaluate_run(run, copy.split("test"), "test")
    original = evaluate_run(run, toys.split("test"), "test")
    assert report.provenance["learnt_from"]["trained_on"] == 0
    assert report.provenance["images_fingerprint"] == original.provenance["images_fingerprint"]


def test_a_file_that_the_set_holds_twice_is_counted_and_no_reason_to_refuse(
    toys: Dataset, run: TrainedModel, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(toys.records[0].image.parent, tmp_path / "copy"))
    test, trained = toys.split("test").records[0], toys.split("train").records[0]
    shutil.copy(trained.image, folder / test.image.name)
    report = evaluate_run(run, open_dataset(f"folder:{folder}").split("test"), "test")
    assert report.provenance["learnt_from"]["trained_on"] == 1
    # without its own copy in train, the same image has come from elsewhere
    lines = (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if trained.image.name not in line]
    (folder / "captions.jsonl").write_text("\n".join(kept), encoding="utf-8")
    with pytest.raises(DataError, match="the run was trained on 1 of these"):
        evaluate_run(run, open_dataset(f"folder:{folder}").split("test"), "test")


def test_training_images_under_the_name_of_validation_are_refused(
    toys: Dataset, run: TrainedModel, tmp_path: Path
) -> None:
    """Also for a calibration, which the training split itself is no split for."""
    placed = [
        (_place(record.image, tmp_path / f"{place}.png", "copied"), "val")
        for place, record in enumerate(toys.split("train").records[:5])
    ]
    for measured in (evaluate_run, calibrate_run):
        with pytest.raises(DataError, match="the run was trained on 5 of these 5 pictures"):
            measured(run, _set_of(placed), "val")
    own = _set_of([(path, "train") for path, _ in placed]).split("train")
    assert learnt_from(run, own) is not None
    with pytest.raises(DataError, match="the run was trained on 5 of these 5 pictures"):
        calibrate_run(run, own, "train")


def test_an_image_that_was_saved_again_is_not_found(toys: Dataset, run: TrainedModel, tmp_path: Path) -> None:
    """The limit that the documentation states; a change of it belongs there, too."""
    with Image.open(toys.split("train").records[0].image) as image:
        image.save(tmp_path / "again.bmp")
    found = learnt_from(run, _set_of([(tmp_path / "again.bmp", "test")]))
    assert found is not None
    assert found.trained_on == 0


def test_composed_queries_about_pictures_that_were_learnt_from_are_refused(
    toys: Dataset, run: TrainedModel
) -> None:
    def of(pictures: str, split: str) -> ComposedSet:
        images = tuple(record.image for record in toys.split(pictures).records)
        triplets = (Triplet("1", 0, "in red", (1,)),)
        names = tuple(image.name for image in images)
        # CIRR's form has pictures in several galleries or splits; a file counts once
        galleries = [ComposedGallery(name, names, images, triplets, len(images)) for name in ("a", "b")]
        return ComposedSet("cirr:mine", split, "cirr", tuple(galleries))

    count = len(toys.split("train"))
    for split in ("val", "test", "test1"):
        with pytest.raises(
            DataError, match=f"cirr:mine: .* was trained on {count} of these {count} pictures"
        ):
            evaluate_composed(run, None, of("train", split), None)
    with pytest.raises(DataError, match="was selected on"):
        evaluate_composed(run, None, of("val", "test"), None)
    for pictures, split, found in (("train", "train", (count, 0)), ("test", "test", (0, 0))):
        measured = evaluate_composed(run, None, of(pictures, split), None).provenance["learnt_from"]
        assert (measured["trained_on"], measured["selected_on"]) == found
    chosen = evaluate_composed(run, None, of("val", "val"), None).provenance["learnt_from"]
    assert (chosen["trained_on"], chosen["selected_on"]) == (0, len(toys.split("val")))


@pytest.mark.parametrize("as_bytes", [True, False])
def test_minimal_pairs_of_pictures_that_were_trained_on_are_refused(
    toys: Dataset, run: TrainedModel, as_bytes: bool
) -> None:
    def of(split: str) -> PairSet:
        paths = [record.image for record in toys.split(split).records[:2]]
        return PairSet(
            name="mine",
            version="1",
            images=[path.read_bytes() for path in paths] if as_bytes else paths,
            image_names=[path.name for path in paths],
            image_groups=[0, 1],
            sentences=["a red square", "a blue square"],
            sentence_groups=[0, 1],
            pairs=[MinimalPair("colour", "", 0, 0, 0, 0, 1)],
            kinds={"colour": "another colour"},
        )

    with pytest.raises(
        DataError, match=r"mine: by their content, the run was trained on 2 of these 2 .*\.png"
    ):
        bench_run(run, of("train"))
    counted = {split: bench_run(run, of(split)).provenance["learnt_from"] for split in ("val", "test")}
    assert [(one["trained_on"], one["selected_on"]) for one in counted.values()] == [(0, 2), (0, 0)]


def test_a_run_without_digests_is_evaluated_and_says_so(toys: Dataset) -> None:
    old = replace(load_model(FORMATS / "format-4", device="cpu"), learnt={})
    assert not knows_what_it_learnt(old)
    dataset = replace(toys.split("test"), source="folder:other")
    assert learnt_from(old, dataset) is None


def test_what_the_run_before_learnt_stays(toys: Dataset, toy_run: Path, run: TrainedModel) -> None:
    others = assign_splits(toys, 5)
    data = prepare(toy_recipe().replace(start=str(toy_run)), others.split("train"), others.split("val"))
    found = learnt_tensors(data.train_pictures.digests(), data.val_pictures.digests(), data.learnt_before)
    assert data.learnt_whole
    assert set(found[TRAINED_ON].tolist()) > set(run.learnt[TRAINED_ON].tolist())
    assert len(found[TRAINED_ON]) == len(
        {record.image for record in (*toys.split("train").records, *others.split("train").records)}
    )
    # of a run that does not say, no whole list can be made
    old = replace(run, learnt={})
    assert not knows_what_it_learnt(old)
    part = replace(run, description={**run.description, "learnt_images": "part"})
    assert not knows_what_it_learnt(part)


def test_a_checkpoint_names_its_images_sorted_and_in_eight_bytes(toys: Dataset, run: TrainedModel) -> None:
    assert run.description["learnt_images"] == "all"
    for name, split in ((TRAINED_ON, "train"), (SELECTED_ON, "val")):
        held = run.learnt[name]
        assert (held.dtype, len(held)) == (torch.int64, len(toys.split(split)))
        assert (np.diff(held.numpy()) > 0).all()


def test_a_changed_image_is_not_resumed_with(toys: Dataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(toys.records[0].image.parent, tmp_path / "copy"))
    dataset, out = open_dataset(f"folder:{folder}"), tmp_path / "run"
    recipe = toy_recipe().replace(stages=toy_recipe().stages[:1])
    splits = (dataset.split("train"), dataset.split("val"))
    train(recipe, *splits, out, cpu=True)
    # a copy elsewhere is the same data
    other = open_dataset(f"folder:{shutil.copytree(folder, tmp_path / 'other')}")
    assert train(recipe, other.split("train"), other.split("val"), out, resume=True, cpu=True) == out
    Image.new("RGB", (40, 36), "white").save(dataset.split("train").records[0].image)
    with pytest.raises(CheckpointError, match=r"cannot resume, data\.train_content is"):
        train(recipe, *splits, out, resume=True, cpu=True)


def test_a_flipped_bit_of_a_checkpoint_hides_no_image(toy_run: Path, tmp_path: Path) -> None:
    """Every bit of the numbers, and a sample of all bytes: the numbers are those that were written, or refused."""
    # without the weights, as each bit is a file
    run = shutil.copytree(toy_run, tmp_path / "run")
    file = checkpoint_path(run, None)
    found, description = read_checkpoint(file, only=(TRAINED_ON, SELECTED_ON))
    del description["format"]
    write_checkpoint(file, {**found, "weight": torch.ones(3)}, description)
    (run / RUN_FILE).unlink()
    kept = {"best": file.name, "stages": [{"name": file.stem, "file": file.name}]}
    (run / RUN_FILE).write_text(sealed(kept), encoding="utf-8")
    assert named_by(run) == frozenset(number for one in found.values() for number in one.tolist())
    whole = file.read_bytes()
    header = 8 * (8 + int.from_bytes(whole[:8], "little"))
    for bit in [*range(header, 8 * len(whole)), *random.Random(3).sample(range(header), 400)]:
        file.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        with pytest.raises(CheckpointError):
            named_by(run)
