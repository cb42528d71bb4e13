import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import limner
from limner.data.images import decode
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.export.run import export_run
from limner.export.sentence_transformers import CHECKPOINT, write_sentence_transformers
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.hub_correction import HubCorrectionSettings
from limner.training.loop import train
from tests import towers
from tests.toy import toy_recipe

sentence_transformers: Any

TEXTS = ["a red square on white", "on grey ground, a circle in blue", "zebra", "a green bar"]


@pytest.fixture(autouse=True, scope="module")
def _library() -> None:
    """Imported where these tests run: each worker collects them, and the import takes 6 s."""
    global sentence_transformers
    sentence_transformers = pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def toy(toy_run: Path) -> TrainedModel:
    return load_model(toy_run, device="cpu", precision="fp32")


def opened(model: TrainedModel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The exported model as sentence-transformers loads it."""
    # it copies the folder's code there, by default below the user's home
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder.parent / "modules"))
    monkeypatch.syspath_prepend(folder.parent / "modules")
    write_sentence_transformers(model, folder)
    return load(folder)


def load(folder: Path) -> Any:
    return sentence_transformers.SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


def pictures(dataset: Dataset) -> list[Image.Image]:
    return [Image.fromarray(decode(record.image)) for record in dataset.records[:5]]


def expect_the_same(loaded: Any, model: TrainedModel, images: list[Image.Image]) -> None:
    texts = model.encode_texts(TEXTS, check=False)
    np.testing.assert_allclose(loaded.encode(TEXTS), texts, atol=1e-5)
    rows = model.encode_images(images)
    np.testing.assert_allclose(loaded.encode(images), rows, atol=1e-5)
    # one list of both, out of order
    mixed = loaded.encode(
        [images[0], TEXTS[0], TEXTS[2], images[3], {"text": TEXTS[1]}, {"image": images[1]}]
    )
    np.testing.assert_allclose(mixed, [rows[0], texts[0], texts[2], rows[3], texts[1], rows[1]], atol=1e-5)
    np.testing.assert_allclose(loaded.encode(TEXTS[0]), texts[0], atol=1e-5)
    np.testing.assert_allclose(loaded.encode(images[0]), rows[0], atol=1e-5)


def test_embeddings_are_those_of_limner(
    toy: TrainedModel, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = opened(toy, tmp_path / "out", monkeypatch)
    # the average over the mirrored picture is in them
    assert toy.images.flip
    expect_the_same(loaded, toy, pictures(toys))
    assert loaded.get_embedding_dimension() == toy.dim
    assert loaded.similarity_fn_name == "cosine"
    assert {"text", "image"} <= set(loaded.modalities)
    assert loaded.max_seq_length == 10
    similar = loaded.similarity(loaded.encode(pictures(toys)), loaded.encode(TEXTS))
    np.testing.assert_allclose(
        similar, toy.encode_images(pictures(toys)) @ toy.encode_texts(TEXTS, check=False).T, atol=1e-5
    )


def test_a_corrected_network_of_several_sizes(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = toy_recipe()
    recipe = recipe.replace(
        model=recipe.model.replace(hub_correction=HubCorrectionSettings(items=3)),
        images=recipe.images.replace(test_scales=(0.75, 1.0)),
        stages=(recipe.stages[0].replace(epochs=1, views=0),),
    )
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    model = load_model(tmp_path / "run", device="cpu", precision="fp32")
    loaded = opened(model, tmp_path / "out", monkeypatch)
    assert loaded.get_embedding_dimension() == model.dim > recipe.model.dim
    expect_the_same(loaded, model, pictures(toys))


def test_an_imported_pair(tmp_path: Path, toys: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(towers.clip_run(tmp_path / "clip"), device="cpu", precision="fp32")
    expect_the_same(opened(model, tmp_path / "out", monkeypatch), model, pictures(toys))


def test_a_saved_model_is_the_same_again(
    toy: TrainedModel, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = opened(toy, tmp_path / "out", monkeypatch)
    loaded.save_pretrained(str(tmp_path / "again"))
    again = load(tmp_path / "again")
    expect_the_same(again, toy, pictures(toys))
    # and a third time, from what was saved
    again.save_pretrained(str(tmp_path / "third"))
    expect_the_same(load(tmp_path / "third"), toy, pictures(toys))
    assert limner.load(tmp_path / "third" / CHECKPOINT).fingerprint == toy.fingerprint


def test_the_checkpoint_in_the_folder_is_the_run(toy: TrainedModel, toys: Dataset, tmp_path: Path) -> None:
    write_sentence_transformers(toy, tmp_path / "out")
    found = limner.load(tmp_path / "out" / CHECKPOINT)
    assert found.fingerprint == toy.fingerprint
    # with the images that it has learnt from: an evaluation still tells leaks
    assert found.learnt.keys() == toy.learnt.keys()
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert toy.fingerprint in text
    assert "trust_remote_code=True" in text


def test_its_code_is_not_run_untrusted(toy: TrainedModel, tmp_path: Path) -> None:
    write_sentence_transformers(toy, tmp_path / "out")
    with pytest.raises(ValueError, match="trust_remote_code"):
        sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")


def test_a_string_is_a_sentence_whatever_it_looks_like(
    toy: TrainedModel, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = opened(toy, tmp_path / "out", monkeypatch)
    # sentence-transformers itself takes such strings for pictures, and would fetch an address
    for text in (str(toys.records[0].image), "https://example.invalid/red.png"):
        np.testing.assert_allclose(loaded.encode(text), toy.encode_texts(text, check=False)[0], atol=1e-5)


def test_an_input_of_both_kinds_is_refused(
    toy: TrainedModel, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = opened(toy, tmp_path / "out", monkeypatch)
    with pytest.raises(ValueError, match="one sentence or one image"):
        loaded.encode([{"text": TEXTS[0], "image": pictures(toys)[0]}])


def test_a_folder_that_holds_something_is_refused(toy: TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(SettingsError, match="not empty"):
        write_sentence_transformers(toy, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_export_run_writes_it_whole(
    toy: TrainedModel, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    expect_the_same(
        load(export_run(toy, tmp_path / "out", format="sentence-transformers")), toy, pictures(toys)
    )


def test_its_settings_name_the_module(toy: TrainedModel, tmp_path: Path) -> None:
    write_sentence_transformers(toy, tmp_path / "out")
    modules = json.loads((tmp_path / "out" / "modules.json").read_text(encoding="utf-8"))
    assert [module["type"] for module in modules] == ["limner_module.LimnerModule"]
