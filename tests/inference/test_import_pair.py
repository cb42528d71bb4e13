import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from limner.errors import CheckpointError, LimnerError
from limner.inference.encoding import Encoding
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.pretrained_source import unusable
from tests import towers

transformers = pytest.importorskip("transformers")

PAIRS: dict[str, Callable[[Path], Any]] = {
    "clip": towers.save_clip,
    "old clip": lambda folder: towers.save_clip(folder, eos=2),
    "half precision": lambda folder: towers.save_clip(folder, dtype=torch.float16),
    "siglip": towers.save_siglip,
    "siglip, padding left": lambda folder: towers.save_siglip(folder, padding_side="left"),
    "siglip, masked": lambda folder: towers.save_siglip(
        folder, model_input_names=["input_ids", "attention_mask"]
    ),
    "siglip 1": towers.save_siglip1,
    "siglip2": towers.save_siglip2,
    "altclip": towers.save_altclip,
    "chinese_clip": towers.save_chinese_clip,
}

PREPROCESSING: dict[str, dict[str, Any]] = {
    "as it is": {},
    "bilinear": {"resample": 2},
    "lanczos": {"resample": 1},
    "nearest": {"resample": 0},
    "squash": {"size": {"height": 32, "width": 32}, "do_center_crop": False, "crop_size": None},
    "squash, then crop": {"size": {"height": 40, "width": 36}},
    "larger, then crop": {"size": {"shortest_edge": 45}},
    "numbers": {"size": 37, "crop_size": 32},
    "no mean": {"do_normalize": False},
    "no rescale": {"do_rescale": False, "image_mean": [120.0, 110.0, 100.0], "image_std": [60.0, 61.0, 62.0]},
}


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    sizes = ((80, 120), (124, 68), (64, 64), (36, 92), (101, 203))
    return [
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8).repeat(2, 0)) for size in sizes
    ]


def sentences(tokenizer: Any) -> list[str]:
    spells_all = tokenizer.cls_token is None and tokenizer.is_fast
    more = ["zebra", "PASSPORT office", "dog"] if spells_all else []
    return [*towers.SENTENCES, *more, " ".join(towers.SENTENCES)]


def theirs(model: Any, folder: Path, texts: list[str], images: list[Image.Image]) -> list[np.ndarray]:
    """transformers' own way from sentences and images to unit embeddings."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    length = min(tokenizer.model_max_length, 64)
    # the padding of SigLIP's processor; of the others it changes nothing
    batch = tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    batch = {name: value for name, value in batch.items() if name in tokenizer.model_input_names}
    pixels = transformers.AutoImageProcessor.from_pretrained(folder)(images, return_tensors="pt")
    with torch.no_grad():
        found = model.get_text_features(**batch), model.get_image_features(**pixels)
    return [torch.nn.functional.normalize(one.pooler_output, dim=1).numpy() for one in found]


def imported(tmp_path: Path, source: Path) -> TrainedModel:
    import_model(str(source), tmp_path / "run")
    return load_model(tmp_path / "run", precision="fp32")


@pytest.mark.parametrize("pair", PAIRS)
def test_embeddings_equal_those_of_transformers(pair: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    model = PAIRS[pair](source)
    if pair == "half precision":
        # the file's rounding, which both read
        model = type(model).from_pretrained(source, dtype=torch.float32).eval()
    run = imported(tmp_path, source)
    texts = sentences(transformers.AutoTokenizer.from_pretrained(source))
    images = pictures()
    if pair == "siglip2":
        # naflex keeps the ratio of the sides; limner sees squares (a departure named in `ImageTower`)
        images = [image.resize((towers.SIDE, towers.SIDE), Image.Resampling.BILINEAR) for image in images]
    # SigLIP's training text was in lower case, which its files do not say
    lower = [text.lower() for text in texts] if "siglip" in pair else texts
    text_rows, image_rows = theirs(model, source, lower, images)
    np.testing.assert_allclose(run.encode_texts(texts), text_rows, atol=1e-6)
    np.testing.assert_allclose(run.encode_images(images), image_rows, atol=1e-5)
    # the tiny towers tell sentences and images apart, so that the equalities above mean something
    assert (text_rows @ text_rows.T)[np.triu_indices(len(texts), 1)].min() < 0.999
    assert (image_rows @ image_rows.T)[np.triu_indices(len(images), 1)].min() < 0.999


@pytest.mark.parametrize("kind", PREPROCESSING)
def test_preprocessing_equals_that_of_transformers(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    model = towers.save_clip(source)
    towers.save_preprocessor(source, **PREPROCESSING[kind])
    run = imported(tmp_path, source)
    _, image_rows = theirs(model, source, ["dog"], pictures())
    np.testing.assert_allclose(run.encode_images(pictures()), image_rows, atol=1e-5)


@pytest.mark.parametrize("quick_gelu", [False, True])
@pytest.mark.parametrize("custom_text", [False, True])
def test_open_clip_names(quick_gelu: bool, custom_text: bool, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    model = towers.save_open_clip(source, quick_gelu=quick_gelu, custom_text=custom_text)
    run = imported(tmp_path, source)
    # for transformers' processor, which reads no open_clip file
    towers.save_preprocessor(source)
    texts = [*towers.SENTENCES, "zebra"]
    text_rows, image_rows = theirs(model, source, texts, pictures())
    np.testing.assert_allclose(run.encode_texts(texts), text_rows, atol=1e-6)
    np.testing.assert_allclose(run.encode_images(pictures()), image_rows, atol=1e-5)


def test_a_run_needs_its_source_no_more_and_names_no_folder(tmp_path: Path) -> None:
    source = tmp_path / "somebody's pair"
    source.mkdir()
    towers.save_clip(source)
    run = imported(tmp_path, source)
    before = run.encode_texts("a red hat")
    for file in source.iterdir():
        file.unlink()
    again = load_model(tmp_path / "run", precision="fp32")
    np.testing.assert_array_equal(again.encode_texts("a red hat"), before)
    assert again.fingerprint == run.fingerprint
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    assert run.description["data"]["source"] == "somebody's pair"
    assert str(tmp_path).encode() not in written


def test_two_imports_of_one_pair_are_one_model(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    towers.save_siglip(source)
    first = import_model(str(source), tmp_path / "first")
    copied = tmp_path / "copied"
    source.rename(copied)
    assert import_model(str(copied), tmp_path / "second").fingerprint == first.fingerprint


def test_the_fingerprint_covers_the_tokenizer_and_every_weight(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    towers.save_siglip(source)
    run = import_model(str(source), tmp_path / "run")
    content = json.loads((source / "tokenizer.json").read_text())
    content["model"]["merges"] = content["model"]["merges"][:-1]
    (source / "tokenizer.json").write_text(json.dumps(content))
    assert import_model(str(source), tmp_path / "other").fingerprint != run.fingerprint
    again = load_model(tmp_path / "run")
    for name, weight in again.model.state_dict().items():
        last = weight.view(-1)[-1].clone()
        weight.view(-1)[-1] += 1
        # computed once and kept, so asked of a copy
        assert dataclasses.replace(again).fingerprint != run.fingerprint, name
        weight.view(-1)[-1] = last
    assert again.fingerprint == run.fingerprint


def test_another_size_and_fewer_words(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    model = towers.save_clip(source)
    import_model(str(source), tmp_path / "run", size=(48, 16), words=6)
    run = load_model(tmp_path / "run", precision="fp32")
    images = [image.resize((16, 48), Image.Resampling.BICUBIC) for image in pictures()]
    pixels = torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in ((0.48, 0.46, 0.41), (0.27, 0.26, 0.28)))
    with torch.no_grad():
        expected = model.get_image_features((pixels / 255 - mean) / std, interpolate_pos_encoding=True)
    expected = torch.nn.functional.normalize(expected.pooler_output, dim=1).numpy()
    np.testing.assert_allclose(run.encode_images(pictures()), expected, atol=1e-5)
    assert run.tokenize(towers.SENTENCES[:2]).token_ids.shape == (2, 6)


def broken(folder: Path, kind: str) -> None:
    if kind == "no configuration":
        (folder / "config.json").unlink()
    elif kind == "cut configuration":
        (folder / "config.json").write_text("{")
    elif kind == "no weights":
        (folder / "model.safetensors").unlink()
    elif kind == "cut weights":
        (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-500])
    elif kind == "no preprocessing":
        (folder / "preprocessor_config.json").unlink()
    elif kind == "cut preprocessing":
        (folder / "preprocessor_config.json").write_text("[1, 2")
    elif kind == "no size":
        towers.save_preprocessor(folder, size={"longest_edge": 32}, do_center_crop=False)
    elif kind == "no tokenizer":
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink()
    elif kind == "cut tokenizer":
        (folder / "tokenizer.json").write_text("{}")
    elif kind == "another tokenizer":
        config = json.loads((folder / "config.json").read_text())
        config["text_config"]["vocab_size"] = 20
        (folder / "config.json").write_text(json.dumps(config))
    elif kind == "text alone":
        towers.save_bert_tokenizer(folder)
        config = transformers.BertConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        config.save_pretrained(folder)
    elif kind == "another open_clip":
        (folder / "config.json").unlink()
        vision = {"timm_model_name": "vit_x", "image_size": 32}
        described = {"model_cfg": {"embed_dim": 4, "vision_cfg": vision, "text_cfg": {}}}
        (folder / "open_clip_config.json").write_text(json.dumps(described))
    else:
        raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *("no configuration", "cut configuration", "no weights", "cut weights", "no preprocessing"),
        *("cut preprocessing", "no size", "no tokenizer", "cut tokenizer", "another tokenizer"),
        *("text alone", "another open_clip"),
    ],
)
def test_a_folder_with_wrong_or_missing_files_is_one_line(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    towers.save_clip(source)
    broken(source, kind)
    with pytest.raises(LimnerError) as caught:
        import_model(str(source), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert "source" in str(caught.value)
    # no half of a run is left
    assert not (tmp_path / "run").exists()


def _in_shards(folder: Path, model: Any) -> None:
    model.save_pretrained(folder, max_shard_size="20KB")


def _as_pickle(folder: Path, model: Any) -> None:
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def _as_pickles(folder: Path, model: Any) -> None:
    files = {name: f"pytorch_model-{place % 2}.bin" for place, name in enumerate(model.state_dict())}
    for file in set(files.values()):
        part = {name: value for name, value in model.state_dict().items() if files[name] == file}
        torch.save(part, folder / file)
    index = {"metadata": {}, "weight_map": files}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("write", [_in_shards, _as_pickle, _as_pickles])
def test_weights_in_other_files(write: Callable[[Path, Any], None], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    model = towers.save_siglip(source)
    import_model(str(source), tmp_path / "before")
    (source / "model.safetensors").unlink()
    write(source, model)
    assert not (source / "model.safetensors").exists()
    run = imported(tmp_path, source)
    assert run.fingerprint == load_model(tmp_path / "before").fingerprint
    for file in source.glob("*model-*"):
        file.unlink()
        with pytest.raises(CheckpointError, match="source") as caught:
            import_model(str(source), tmp_path / "again")
        assert "\n" not in str(caught.value)
        break


class _Runs:
    def __reduce__(self) -> Any:
        return print, ("this ran",)


def test_a_pickle_with_more_than_tensors_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    towers.save_siglip(source)
    (source / "model.safetensors").unlink()
    torch.save({"weight": _Runs()}, source / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="more than plain tensors") as caught:
        import_model(str(source), tmp_path / "run")
    # the library's own text has colours of a terminal and advice to run it
    assert str(caught.value).isprintable()
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.parametrize("save", [towers.save_siglip, towers.save_siglip1])
def test_a_siglip_without_its_tokenizer_is_told_the_files(
    save: Callable[[Path], Any], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    save(source)
    for name in ("tokenizer_config.json", "spiece.model"):
        (source / name).unlink(missing_ok=True)
    with pytest.raises(LimnerError, match=r"tokenizer_config\.json.*spiece\.model") as caught:
        import_model(str(source), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_name_of_the_hub_that_is_not_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # the hub's library has read the variable when it was imported, and would ask twelve times
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="not in the local cache, and HF_HUB_OFFLINE is set") as caught:
        import_model("hf:nobody/none-such", tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(LimnerError, match="not empty"):
        import_model("hf:any/name", tmp_path / "run")


def test_a_torchvision_that_does_not_fit_is_named() -> None:
    cause = RuntimeError("operator torchvision::nms does not exist")
    error = ModuleNotFoundError(
        "Could not import module 'CLIPModel'. Are this object's requirements defined?"
    )
    error.__cause__ = cause
    found = str(unusable("any", "its weights cannot be read", error))
    assert "torchvision" in found
    assert "pip uninstall torchvision" in found
    assert "\n" not in found


def test_sizes_at_test_interpolate_the_positions_of_a_vision_tower(tmp_path: Path) -> None:
    """Written out, of a size with whole patches and one without."""
    model = load_model(towers.clip_run(tmp_path))
    pixels = np.random.default_rng(0).integers(0, 255, (2, towers.SIDE, towers.SIDE, 3), dtype=np.uint8)
    found = Encoding(model.model, "fp32", flip=False, scales=(1.0, 1.25, 1.3)).pixels(pixels)
    total = torch.zeros(2, model.dim)
    for side in (32, 40, 42):
        views = [Image.fromarray(one).resize((side, side), Image.Resampling.BILINEAR) for one in pixels]
        sized = np.stack([np.asarray(view) for view in views])
        with torch.no_grad():
            images = torch.from_numpy(sized).permute(0, 3, 1, 2)
            total += model.model.embed_images(model.model.pool_images(images))
    torch.testing.assert_close(found, F.normalize(total, dim=1), atol=1e-5, rtol=1e-4)
