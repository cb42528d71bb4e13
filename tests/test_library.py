"""What `import limner` gives: one call to train, one to evaluate, and nothing heavy until it is asked for."""

import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import limner
from limner.data.records import Dataset, group_numbers
from limner.errors import DataError, LimnerError, SettingsError
from limner.inference.calibration_file import read_calibration
from tests.agreeing import agreeing
from tests.toy import toy_recipe


def test_import_is_light_and_names_are_listed() -> None:
    """Neither torch nor LanceDB nor numpy, also when a name is looked at that needs none of them."""
    script = (
        "import sys, limner; limner.__version__, limner.LimnerError, dir(limner)\n"
        "print({'torch', 'lancedb', 'numpy', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_name_is_there() -> None:
    assert set(limner.__all__) <= set(dir(limner))
    assert all(getattr(limner, name) is not None for name in limner.__all__)
    assert limner.__version__ == version("limner")
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = limner.tarin


def test_train_is_the_commands_training(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    """Settings as text or as values; the checkpoint is that of the loop itself."""
    recipe = toy_recipe()
    run = limner.train(recipe, toys, tmp_path / "run", cpu=True, settings={"seed": recipe.seed})
    ours, theirs = load_file(run.path), load_file(toy_run / run.path.name)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert run.encode_texts(["a red bar on grey"]).shape == (1, run.dim)
    with pytest.raises(LimnerError, match="there is a run in this folder"):
        limner.train(recipe, toys, tmp_path / "run", cpu=True)
    before = run.path.stat().st_mtime_ns
    again = limner.train(recipe, toys, tmp_path / "run", cpu=True, resume=True)
    assert again.fingerprint == run.fingerprint
    assert run.path.stat().st_mtime_ns == before, "a finished run is left as it is"


def test_train_is_never_given_the_test_split(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Dataset] = []

    def stop(recipe: object, train: Dataset, val: Dataset, *_: object, **__: object) -> Path:
        seen.extend([train, val])
        raise KeyboardInterrupt

    monkeypatch.setattr("limner.library.run_stages", stop)
    with pytest.raises(KeyboardInterrupt):
        limner.train(toy_recipe(), toys, tmp_path / "run")
    assert [{record.split for record in part.records} for part in seen] == [{"train"}, {"val"}]


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("dual-path-poeple", (), "did you mean 'dual-path-people'"),
        ("none.json", (), "no such recipe"),
        ("dual-path-people", ["sead=1"], "unknown setting 'sead'; did you mean 'seed'"),
        ("dual-path-people", {"seed": "many"}, "setting 'seed'"),
    ],
)
def test_mistakes_in_training(
    recipe: str, settings: object, message: str, toys: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=message):
        limner.train(recipe, toys, tmp_path / "run", settings=settings)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_evaluate_takes_a_run_its_folder_or_its_embeddings(toys: Dataset, toy_run: Path) -> None:
    run = limner.load(toy_run, device="cpu")
    test = toys.split("test")
    report = limner.evaluate(run, toys)
    again = limner.evaluate(toy_run, toys.source)
    # the run counts how often a split was looked at
    looks = [one.provenance["evaluations_of_split"] for one in (report, again)]
    assert looks[1] == looks[0] + 1
    assert again.replace(provenance=report.provenance) == report
    assert report.counts["images"] == len(test)
    images = run.encode_images([record.image for record in test.records])
    sentences = run.encode_texts([sentence for record in test.records for sentence in record.sentences])
    by_arrays = limner.evaluate((images, sentences), toys)
    assert by_arrays.image_to_text == report.image_to_text
    assert by_arrays.text_to_image == report.text_to_image
    assert by_arrays.protocol == report.protocol
    assert by_arrays.provenance["split_fingerprint"] == report.provenance["split_fingerprint"]
    given = limner.evaluate(limner.Results(*group_numbers(test), images, sentences))
    assert given.text_to_image == report.text_to_image
    few = limner.evaluate(run, toys, split="val", measures="R@1 mAP")
    assert (few.split, set(few.text_to_image)) == ("val", {"R@1", "mAP"})


def test_evaluate_by_labels(toys: Dataset, toy_run: Path) -> None:
    labelled = replace(
        toys, records=tuple(replace(one, labels=(one.group.split()[0],)) for one in toys.records)
    )
    test = labelled.split("test")
    run = limner.load(toy_run, device="cpu")
    images = run.encode_images([record.image for record in test.records])
    sentences = run.encode_texts([sentence for record in test.records for sentence in record.sentences])
    report = limner.evaluate((images, sentences), labelled, protocol="labels")
    assert report.text_to_image == limner.evaluate(run, labelled, protocol="labels").text_to_image
    with pytest.raises(DataError, match="have no labels"):
        limner.evaluate((images, sentences), toys, protocol="labels")


def test_mistakes_in_evaluation(toys: Dataset, toy_run: Path) -> None:
    images, sentences = np.eye(7, 5), np.ones((14, 5))
    with pytest.raises(SettingsError, match="a dataset is missing"):
        limner.evaluate(toy_run)
    with pytest.raises(DataError, match=r"has 7 images, got an array of shape \(6, 5\)"):
        limner.evaluate((images[1:], sentences), toys)
    with pytest.raises(DataError, match=r"has 14 sentences, got an array of shape \(70,\)"):
        limner.evaluate((images, sentences.ravel()), toys)
    with pytest.raises(SettingsError, match="embeddings have no reranker"):
        limner.evaluate((images, sentences), toys, rerank=5)
    with pytest.raises(SettingsError, match="leave out the dataset"):
        limner.evaluate(limner.Results(np.arange(2), np.arange(2), np.eye(2), np.eye(2)), toys)
    with pytest.raises(SettingsError, match="unknown protocol 'flickr9k'; did you mean 'flickr8k'"):
        limner.evaluate((images, sentences), toys, protocol="flickr9k")


def test_export_takes_a_run_folder_and_a_reindexed_store_its_facts(
    toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    export = limner.export_run(toy_run, tmp_path / "export")
    store = str(tmp_path / "store")
    limner.index(toy_run, store, data=toys, split="val")
    new = str(tmp_path / "new")
    report = limner.reindex(store, export, new)
    count = len(toys.split("val").records)
    assert (report.added, report.others) == (count, 0)
    with limner.open_store(store) as old, limner.open_store(new) as other:
        assert [(one.path, one.metadata) for one in old.items()] == [
            (one.path, one.metadata) for one in other.items()
        ]
    # an open store, an open model, and what the new store has alone
    extra = toys.split("train").records[0].image
    limner.index(export, new, [extra])
    assert limner.reindex(limner.open_store(store), export, new).others == 1
    assert limner.reindex(store, limner.load(toy_run), str(tmp_path / "third")).added == count
    assert limner.reindex(store, export, new, delete=True).others == 1
    with limner.open_store(new) as other:
        assert len(other) == count


def test_calibrate_writes_what_the_command_writes(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    # as one that does not say what it has learnt from, on sentences that it finds
    model = replace(limner.load(run, device="cpu"), learnt={})
    val = agreeing(model, toys, "val")
    made = limner.calibrate(model, val, question="fits")
    assert read_calibration(run) == made
    assert made.question == "fits"
    for wrong in ({}, {"data": toys, "store": str(tmp_path / "store")}):
        with pytest.raises(SettingsError, match="a dataset or a store, and not both"):
            limner.calibrate(run, **wrong)  # type: ignore[arg-type]
    with pytest.raises(LimnerError, match="no such store"):
        limner.calibrate(run, store=str(tmp_path / "missing"))
