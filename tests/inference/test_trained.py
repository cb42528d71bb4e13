import dataclasses
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from limner.data.records import Dataset
from limner.errors import CheckpointError, DataError, ImageError
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.inference.encoding import Encoding
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.image import BackboneSettings
from limner.training.loop import train
from limner.types import PADDING, Encoder
from tests.toy import toy_recipe

SENTENCES = ["a red square on white", "on black ground, a bar in blue", "a green zebra", "a"]


@pytest.fixture(scope="module")
def run(toy_run: Path) -> TrainedModel:
    return load_model(toy_run, device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def paths(toys: Dataset) -> list[Path]:
    return [record.image for record in toys.records[:7]]


def test_a_run_is_an_encoder(run: TrainedModel) -> None:
    assert isinstance(run, Encoder)
    assert run.dim == 16
    assert len(run.fingerprint) == 64


def test_embeddings_are_float32_rows_of_unit_length(run: TrainedModel, paths: list[Path]) -> None:
    for rows, count in ((run.encode_images(paths), 7), (run.encode_texts(SENTENCES), 4)):
        assert rows.dtype == np.float32
        assert rows.shape == (count, 16)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert run.encode_images([]).shape == run.encode_texts([]).shape == (0, 16)


def test_pictures_are_decoded_while_the_network_runs(
    run: TrainedModel, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first batch's encoding the pictures of a later one are decoded, without being waited for."""
    monkeypatch.setattr(run.encoding, "batch", 1)
    expected = run.encode_images(paths)
    fifth = threading.Event()
    seen: list[bool] = []
    prepare, encode = TrainedModel.prepare_image, TrainedModel.encode_pixels

    def prepared(run: TrainedModel, image: str | Path | bytes) -> np.ndarray:
        pixels = prepare(run, image)
        if image == paths[4]:
            fifth.set()
        return pixels

    def encoded(run: TrainedModel, pixels: np.ndarray) -> np.ndarray:
        seen.append(fifth.wait(20))
        return encode(run, pixels)

    monkeypatch.setattr(TrainedModel, "prepare_image", prepared)
    monkeypatch.setattr(TrainedModel, "encode_pixels", encoded)
    np.testing.assert_array_equal(run.encode_images(paths), expected)
    assert seen == [True] * 7


def test_order_is_kept_and_twice_is_the_same(run: TrainedModel, paths: list[Path]) -> None:
    rows = run.encode_images(paths)
    np.testing.assert_array_equal(rows, run.encode_images(paths))
    np.testing.assert_allclose(run.encode_images(paths[::-1]), rows[::-1], atol=1e-6)
    np.testing.assert_allclose(run.encode_images([str(paths[3])])[0], rows[3], atol=1e-6)
    texts = run.encode_texts(SENTENCES)
    np.testing.assert_array_equal(texts, run.encode_texts(SENTENCES))
    np.testing.assert_allclose(run.encode_texts(SENTENCES[::-1]), texts[::-1], atol=1e-6)


@pytest.mark.parametrize("batch", [1, 2, 5, 100])
def test_batch_size_changes_rounding_only(run: TrainedModel, paths: list[Path], batch: int) -> None:
    other = dataclasses.replace(run, encoding=Encoding(run.model, "fp32", batch=batch))
    np.testing.assert_allclose(other.encode_images(paths), run.encode_images(paths), atol=1e-6)


def test_progress_is_told_after_each_batch(
    run: TrainedModel, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    small = dataclasses.replace(run, encoding=Encoding(run.model, "fp32", batch=3))
    rows = small.encode_images(paths, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(3, 7), (6, 7), (7, 7)]
    np.testing.assert_array_equal(rows, small.encode_images(paths))
    calls.clear()
    monkeypatch.setattr("limner.inference.trained.SENTENCES", 3)
    run.encode_texts(SENTENCES, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(3, 4), (4, 4)]


def test_image_embedding_is_the_mean_of_plain_and_flipped(run: TrainedModel, paths: list[Path]) -> None:
    """Written out from section 6.2: both features, their mean, then the norm."""
    for path in paths[:3]:
        with Image.open(path) as picture:
            resized = picture.convert("RGB").resize((36, 36), Image.Resampling.BILINEAR)
        cropped = np.asarray(resized)[2:34, 2:34]
        both = []
        for view in (cropped, cropped[:, ::-1]):
            pixels = torch.from_numpy(np.ascontiguousarray(view)).permute(2, 0, 1)[None]
            with torch.no_grad():
                both.append(run.model.embed_images(run.model.pool_images(pixels)))
        expected = F.normalize((both[0] + both[1]) / 2, dim=1)[0].numpy()
        np.testing.assert_allclose(run.encode_images([path])[0], expected, atol=1e-5)
        assert not torch.allclose(both[0], both[1], atol=1e-4)  # else the test would show nothing
        plain = Encoding(run.model, "fp32", flip=False).pixels(cropped[None])
        np.testing.assert_allclose(plain[0].numpy(), F.normalize(both[0], dim=1)[0].numpy(), atol=1e-5)


def test_image_embedding_can_be_the_mean_over_sizes(run: TrainedModel, paths: list[Path]) -> None:
    """Written out: each size of the crop, plain and mirrored, their mean, then the norm."""
    scales, sides = (1.0, 0.5, 1.26), (32, 16, 40)
    several = dataclasses.replace(run, encoding=Encoding(run.model, "fp32", scales=scales))
    images = dataclasses.replace(run, images=run.images.replace(test_scales=scales))
    assert images.fingerprint != run.fingerprint
    for path in paths[:3]:
        with Image.open(path) as picture:
            resized = picture.convert("RGB").resize((36, 36), Image.Resampling.BILINEAR)
        cropped = resized.crop((2, 2, 34, 34))
        total = torch.zeros(run.dim)
        for side in sides:
            sized = np.array(cropped.resize((side, side), Image.Resampling.BILINEAR))
            for view in (sized, sized[:, ::-1]):
                pixels = torch.from_numpy(np.ascontiguousarray(view)).permute(2, 0, 1)[None]
                with torch.no_grad():
                    total += run.model.embed_images(run.model.pool_images(pixels))[0]
        expected = F.normalize(total, dim=0).numpy()
        found = several.encode_images([path])[0]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert not np.allclose(found, run.encode_images([path])[0], atol=1e-4)


def test_text_embedding_can_be_the_mean_over_all_places(
    run: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = ["a red square on white", "red", ""]
    left = run.encode_texts(sentences, check=False)
    monkeypatch.setattr(run.model.text, "test_positions", 0)
    length = run.model.settings.text.words
    expected = []
    for sentence in sentences[:2]:
        known = list(run.tokenizer.tokenize([sentence], length)[0].token_ids)
        total = torch.zeros(run.dim)
        for start in range(length - len(known) + 1):
            row = torch.tensor([[0] * start + known + [0] * (length - len(known) - start)])
            with torch.no_grad():
                total += run.model.encode_texts(row)[0]
        expected.append(F.normalize(total, dim=0).numpy())
    found = run.encode_texts(sentences, check=False)
    np.testing.assert_allclose(found[:2], expected, atol=1e-5)
    assert not np.allclose(found[:2], left[:2], atol=1e-3)
    np.testing.assert_allclose(found[2], left[2], atol=1e-5)  # the same zeros everywhere


def test_text_embedding_is_left_aligned_without_unknown_words(run: TrainedModel) -> None:
    known = {word: number for number, word in enumerate(run.tokenizer.entries, start=1)}
    numbers = torch.full((1, 10), PADDING)
    numbers[0, :4] = torch.tensor([known[word] for word in ("a", "red", "square", "on")])
    with torch.no_grad():
        expected = F.normalize(run.model.encode_texts(numbers), dim=1)[0].numpy()
    np.testing.assert_allclose(run.encode_texts(["A red, huge SQUARE on"])[0], expected, atol=1e-6)


def test_encoding_leaves_the_network_as_it_was(run: TrainedModel, paths: list[Path]) -> None:
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    run.model.train()
    try:
        run.encode_images(paths)
        run.encode_texts(SENTENCES)
        assert run.model.training
    finally:
        run.model.eval()
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_bf16_is_near(toy_run: Path, run: TrainedModel, paths: list[Path]) -> None:
    half = load_model(toy_run, device="cpu", precision="bf16")
    cosine = (half.encode_images(paths) * run.encode_images(paths)).sum(axis=1)
    assert (cosine > 0.99).all()
    assert half.encode_images(paths).dtype == np.float32


def test_an_unreadable_picture_is_named(run: TrainedModel, paths: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"broken\.jpg: not a picture"):
        run.encode_images([*paths, broken])


def test_a_query_without_a_known_word_is_refused(run: TrainedModel) -> None:
    run.check_query("an unknown thing, but red")
    assert run.unknown_words("An unknown thing, but RED, an unknown one") == [
        "an",
        "unknown",
        "thing",
        "but",
        "one",
    ]
    with pytest.raises(
        DataError, match=r"knows no word of the query 'zebra crossing'; it has learnt \d+ words"
    ):
        run.check_query("zebra crossing")
    with pytest.raises(
        DataError, match=r"'红色的圆' is written without blanks between words, and the model reads whole"
    ):
        run.check_query("红色的圆")
    with pytest.raises(DataError, match="the query is empty"):
        run.check_query(" \n")


def test_a_sentence_alone_is_one_row(run: TrainedModel) -> None:
    sentence = "a red square"
    assert run.encode_texts(sentence).shape == (1, run.dim)
    np.testing.assert_array_equal(run.encode_texts(sentence), run.encode_texts([sentence]))
    np.testing.assert_array_equal(run.encode_queries(sentence), run.encode_queries([sentence]))
    assert run.encode_texts([]).shape == (0, run.dim)


@pytest.mark.parametrize(
    "asked", ["zebra crossing", "", " \n", ["a red bar", "zebra crossing"], ["", "a red bar"]]
)
def test_what_means_nothing_is_the_same_error_in_the_library_and_in_search(
    run: TrainedModel, asked: str | list[str]
) -> None:
    bad = asked if isinstance(asked, str) else next(one for one in asked if "red" not in one)
    with pytest.raises(DataError) as of_search:
        run.check_query(bad)
    for encode in (run.encode_texts, run.encode_queries):
        with pytest.raises(DataError) as of_library:
            encode(asked)
        assert str(of_library.value) == str(of_search.value)
    # evaluation measures a dataset with every sentence it has
    rows = run.encode_texts(asked, check=False)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(
        rows, run.encode_texts(["" if one == bad else one for one in _list(asked)], check=False)
    )


def _list(asked: str | list[str]) -> list[str]:
    return [asked] if isinstance(asked, str) else asked


def test_images_come_as_files_bytes_pillow_images_and_pixels(run: TrainedModel, paths: list[Path]) -> None:
    expected = run.encode_images(paths[:3])
    pixels = [np.array(Image.open(path).convert("RGB")) for path in paths[:3]]
    with Image.open(paths[2]) as opened:
        mixed = run.encode_images([str(paths[0]), paths[1].read_bytes(), opened])
    np.testing.assert_array_equal(mixed, expected)
    np.testing.assert_array_equal(run.encode_images(pixels), expected)
    np.testing.assert_array_equal(run.encode_images(np.stack(pixels)), expected)
    for one in (paths[0], str(paths[0]), paths[0].read_bytes(), Image.fromarray(pixels[0]), pixels[0]):
        alone = run.encode_images(one)
        assert alone.shape == (1, run.dim)
        np.testing.assert_allclose(alone, expected[:1], rtol=1e-4, atol=1e-6)
    assert run.encode_images([]).shape == (0, run.dim)


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((8, 8, 3), np.float32),
        np.zeros((8, 8), np.uint8),
        np.zeros((8, 8, 4), np.uint8),
        np.zeros((0, 8, 3), np.uint8),
    ],
)
def test_other_arrays_are_no_images(run: TrainedModel, pixels: np.ndarray) -> None:
    with pytest.raises(
        ImageError, match=r"uint8 \(height, width, 3\), were expected, got (uint8|float32) \("
    ):
        run.encode_images(pixels)


def test_a_model_prints_as_one_short_line(run: TrainedModel) -> None:
    assert "\n" not in repr(run)
    assert len(repr(run)) < 300 + len(str(run.path))
    assert "system='dual-path', dim=16" in repr(run)


@pytest.fixture
def copy(toy_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_run, tmp_path / "copy"))


def _best(folder: Path) -> Path:
    return folder / str(json.loads((folder / "run.json").read_text(encoding="utf-8"))["best"])


def _rewritten(folder: Path, change: dict[str, Any], *, nudge: bool = False) -> TrainedModel:
    """The run after its checkpoint's description, and with `nudge` one weight, was changed."""
    path = _best(folder)
    tensors, description = read_checkpoint(path)
    if nudge:
        name = next(name for name in tensors if name.endswith("weight"))
        tensors[name].view(-1)[0] += 1e-3
    write_checkpoint(path, tensors, {**description, **change})
    # the file itself: run.json names another
    return load_model(path, device="cpu", precision="fp32")


def test_fingerprint_changes_with_what_changes_embeddings(run: TrainedModel, copy: Path) -> None:
    words = list(run.tokenizer.entries)
    images = run.images.model_dump(mode="json")
    seen = {run.fingerprint}
    for change, nudge in (
        ({}, True),
        ({"tokenizer": {"kind": "words", "words": [words[1], words[0], *words[2:]]}}, False),
        ({"images": {**images, "resize": [40, 40]}}, False),
        ({"images": {**images, "crop": [24, 24]}}, False),
        ({"images": {**images, "flip": False}}, False),
    ):
        seen.add(_rewritten(copy, {**_description(run), **change}, nudge=nudge).fingerprint)
    assert len(seen) == 6


def test_fingerprint_changes_with_nothing_else(run: TrainedModel, copy: Path, tmp_path: Path) -> None:
    described = _description(run)
    model = {**described["model"], "backbone": {**described["model"]["backbone"], "weights": "elsewhere.pth"}}
    images = {**described["images"], "train_crop": "pad", "pad": 3}
    change = {
        "seed": 99,
        "versions": {},
        "selected": {},
        "data": {},
        "recipe": {},
        "model": model,
        "images": images,
    }
    assert _rewritten(copy, change).fingerprint == run.fingerprint
    moved = copy.rename(tmp_path / "moved")
    assert load_model(_best(moved), device="cpu", precision="bf16").fingerprint == run.fingerprint


def _description(run: TrainedModel) -> dict[str, Any]:
    return {name: value for name, value in run.description.items() if name != "format"}


def test_one_stage_the_best_and_a_file(toy_run: Path) -> None:
    first, second = load_model(toy_run, stage="stage-1"), load_model(toy_run, stage="stage-2")
    assert first.path.name == "stage-1.safetensors"
    assert first.description["selected"]["stage"] == "stage-1"
    assert first.fingerprint != second.fingerprint
    best = load_model(toy_run)
    assert best.path == _best(toy_run)
    assert load_model(_best(toy_run)).fingerprint == best.fingerprint
    with pytest.raises(
        CheckpointError, match="no checkpoint of stage 'stage-3'; there are: stage-1, stage-2"
    ):
        load_model(toy_run, stage="stage-3")


def test_folders_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no trained run here"):
        load_model(tmp_path)
    with pytest.raises(CheckpointError, match="no trained run here"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "{}", '{"stages": 3, "best": "x"}', '{"stages": [1], "best": "x"}']
)
def test_a_damaged_listing_is_refused(copy: Path, text: str) -> None:
    (copy / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"run\.json: damaged"):
        load_model(copy)


def test_a_listing_that_names_a_lost_checkpoint(copy: Path) -> None:
    _best(copy).unlink()
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_model(copy)


def test_files_that_are_no_model_are_refused(toy_run: Path) -> None:
    for name in ("stage-1-classifier.safetensors", "last.safetensors"):
        with pytest.raises(CheckpointError, match=r"not the checkpoint of a model .* lacks 'tokenizer'"):
            load_model(toy_run / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"dim": 0}}, r"does not fit this limner \(setting 'model.dim'"),
        ({"model": {"dimm": 16}}, r"unknown setting 'model.dimm'; did you mean 'dim'"),
        ({"model": 5}, "does not fit this limner"),
        ({"images": {"crop": 5}}, "does not fit this limner"),
        ({"tokenizer": 5}, "does not fit this limner"),
        ({"files": 5}, "does not fit this limner"),
        ({"files": {"text": {}}}, "files of a text encoder that reads none"),
        ({"tokenizer": {"kind": "words", "words": ["one"]}}, r"tensor 'text\.table\.weight' has shape"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    copy: Path, run: TrainedModel, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        _rewritten(copy, {**_description(run), **change})
    assert "\n" not in str(caught.value)


def test_a_run_on_a_transformers_backbone_needs_nothing_but_its_folder(toys: Dataset, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    source = tmp_path / "source"
    transformers.ResNetBackbone(config).save_pretrained(source)
    means = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2], "rescale_factor": 1 / 255}
    (source / "preprocessor_config.json").write_text(json.dumps(means))
    recipe = toy_recipe()
    backbone = BackboneSettings(name="auto", auto_model=str(source))
    recipe = recipe.replace(
        model=recipe.model.replace(backbone=backbone), stages=(recipe.stages[0].replace(epochs=1),)
    )
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    there = load_model(out, device="cpu", precision="fp32")
    shutil.rmtree(source)
    moved = load_model(out.rename(tmp_path / "moved"), device="cpu", precision="fp32")
    picture = toys.records[0].image
    np.testing.assert_array_equal(moved.encode_images([picture]), there.encode_images([picture]))
    torch.testing.assert_close(moved.model.backbone.pixel_mean.flatten(), torch.tensor([127.5, 102.0, 76.5]))
    assert moved.fingerprint == there.fingerprint


def test_a_query_is_encoded_the_same_in_any_company(toy_run: Path) -> None:
    run = load_model(toy_run, device="cpu", precision="bf16")
    sentences = [
        f"a {colour} {shape} on white" for colour in ("red", "blue") for shape in ("bar", "circle")
    ] * 9
    together = run.encode_queries(sentences)
    alone = np.concatenate([run.encode_queries([sentence]) for sentence in sentences])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    exact = load_model(toy_run, device="cpu", precision="fp32").encode_texts(sentences)
    np.testing.assert_allclose(together, exact, atol=1e-6)
