"""Sources of `limner import` that are more, less or other than they seem: read as their library does, or one line."""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from limner.errors import LimnerError
from limner.inference import checkpoint, import_pair
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.models import open_clip
from limner.search.open_source import open_source
from tests import towers
from tests.inference.test_import_pair import imported, pictures, theirs

transformers = pytest.importorskip("transformers")

NAN = float("nan")
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    10**9,
    10**30,
    0.5,
    NAN,
    math.inf,
    "x",
    "",
    [],
    {},
    [1, 2],
    {"a": 1},
    [[[]]],
]
"""What a field may hold that its reader does not expect."""

LIMIT = 20
"""Seconds of a process in which a refusal is certain; half a second is usual, hours are what it must not be."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    towers.save_clip(tmp_path / "source")
    return tmp_path / "source"


def refused(source: Path | str, out: Path) -> str:
    """The one line of an import that leaves nothing behind."""
    began = time.process_time()
    with pytest.raises(LimnerError) as caught:
        import_model(str(source), out)
    assert time.process_time() - began < LIMIT
    assert not out.exists()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 600
    return line


def changed(file: Path, *at: Any, to: Any) -> None:
    content = json.loads(file.read_text())
    inner = content
    for name in at[:-1]:
        inner = inner[name]
    inner[at[-1]] = to
    file.write_text(json.dumps(content))


def fields(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in JSON; of a list the first two."""
    if at:
        yield at
    inside = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for name, one in inside:
        yield from fields(one, (*at, name))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "a",
            "/b",
            "a/",
            " a/b",
            "a/b ",
            "a/b c",
            "a/b\n",
            "../b",
            "a/..",
            "a/./b",
            "a/b/c",
            "a/b/",
            "a//b",
        ),
        *(
            "-a/b",
            "a--b/c",
            "a/b..c",
            "a/b.git",
            "ä/b",
            "a\\b",
            f"{'x' * 200}/b",
            "https://huggingface.co/a/b",
        ),
        *("a/b@", "a/b@main", "a/b@x@y", "a@main", "~/a", "a/b?c", "a/b#c", "a/b\0"),
    ],
)
def test_what_is_no_name_of_the_hub_is_told_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is asked of the network")

    monkeypatch.setattr("socket.socket.connect", fetch)
    for line in (refused(f"hf:{name}", tmp_path / "out"), refused(f"st:{name}", tmp_path / "out")):
        assert repr(name)[1:-1][:40] in line
    # of a run a revision may be given, and a path is one name however many slashes it has
    if "@main" in name or Path(f"hf:{name}").as_posix() != f"hf:{name}":
        return
    for use in (load_model, lambda source: open_source(source, tmp_path / "store")):
        with pytest.raises(LimnerError) as caught:
            use(f"hf:{name}")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json", "open_clip_config.json"])
def test_odd_values_of_every_field_are_one_line_or_read(file: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "run"
    source.mkdir()
    (towers.save_open_clip if file.startswith("open_clip") else towers.save_clip)(source)
    whole = (source / file).read_text()
    places = list(fields(json.loads(whole)))
    read = 0
    # each field with another two values; all of them are 17,000 imports, which were tried once (docs/log)
    for number, place in enumerate(places):
        for odd in (ODD[number % len(ODD)], ODD[(7 * number + 5) % len(ODD)]):
            changed(source / file, *place, to=odd)
            try:
                import_model(str(source), out)
            except LimnerError:
                refused(source, out)
            else:
                # who says that it is done can be opened, and has finite embeddings
                assert np.isfinite(load_model(out).encode_texts("a dog")).all()
                for written in out.iterdir():
                    written.unlink()
                out.rmdir()
                read += 1
            (source / file).write_text(whole)
    assert 0 < read < len(places)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("text_config", "num_hidden_layers"), 10**9),
        (("vision_config", "num_hidden_layers"), 10**9),
        (("vision_config", "num_hidden_layers"), -1),
        (("text_config", "num_hidden_layers"), 0),
        (("projection_dim",), 0),
        (("projection_dim",), -4),
        (("text_config", "hidden_size"), 10**12),
        (("text_config", "vocab_size"), True),
        (("vision_config", "image_size"), 0),
        (("vision_config", "patch_size"), [8, -8]),
        (("text_config", "max_position_embeddings"), 1e9),
    ],
)
def test_a_size_that_no_network_has_is_named(
    place: tuple[str, ...], value: Any, source: Path, tmp_path: Path
) -> None:
    changed(source / "config.json", *place, to=value)
    assert place[-1] in refused(source, tmp_path / "run")
    (source / "modules.json").write_text('[{"path": "", "type": "sentence_transformers.models.Transformer"}]')
    assert place[-1] in refused(f"st:{source}", tmp_path / "run")


def test_a_network_that_is_far_larger_than_its_weights_is_not_filled(source: Path, tmp_path: Path) -> None:
    for side in ("text_config", "vision_config"):
        changed(source / "config.json", side, "hidden_size", to=16_384)
        changed(source / "config.json", side, "intermediate_size", to=65_536)
    assert "the files have" in refused(source, tmp_path / "run")


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["clip", "open_clip"])
def test_weights_that_are_no_numbers_are_named(bad: float, kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (towers.save_clip if kind == "clip" else towers.save_open_clip)(source)
    file = next(source.glob("*.safetensors"))
    state = load_file(file)
    name = next(name for name in state if "ln_pre.bias" in name or "pre_layrnorm.bias" in name)
    state[name][1] = bad
    save_file(state, file, metadata={"format": "pt"})
    line = refused(source, tmp_path / "run")
    assert "pre_layrnorm.bias" in line
    assert ("NaN" if math.isnan(bad) else "infinity") in line


@pytest.mark.parametrize("beside", [False, True])
def test_an_adapter_is_told_from_a_model(beside: bool, source: Path, tmp_path: Path) -> None:
    adapter = {
        "peft_type": "LORA",
        "base_model_name_or_path": "openai/clip-vit-base-patch32",
        "r": 2,
        "lora_alpha": 4,
    }
    (source / "adapter_config.json").write_text(json.dumps(adapter))
    name = "base_model.model.text_model.encoder.layers.0.self_attn.q_proj.lora_"
    save_file(
        {f"{name}A.weight": torch.ones(2, 32), f"{name}B.weight": torch.ones(32, 2)},
        source / "adapter_model.safetensors",
    )
    if not beside:
        for file in ("config.json", "model.safetensors"):
            (source / file).unlink()
    line = refused(source, tmp_path / "run")
    assert "openai/clip-vit-base-patch32" in line
    assert "merge_and_unload" in line


def test_an_adapter_within_a_model_of_sentence_transformers_is_told(source: Path, tmp_path: Path) -> None:
    (source / "modules.json").write_text("[]")
    (source / "0_Transformer").mkdir()
    (source / "0_Transformer" / "adapter_config.json").write_text("[]")
    assert "merge_and_unload" in refused(f"st:{source}", tmp_path / "run")


PLAIN: dict[str, dict[str, Any]] = {
    "model": {
        "init_logit_bias": -10,
        "init_logit_scale": 2.3,
        "nonscalar_logit_scale": True,
        "cast_dtype": None,
    },
    "vision_cfg": {
        "pool_type": "tok",
        "patch_dropout": 0.5,
        "output_tokens": True,
        "no_ln_pre": False,
        "in_chans": 3,
    }
    | {
        "ls_init_value": None,
        "timm_pool": "avg",
        "timm_model_name": "",
        "act_kwargs": {},
        "attentional_pool": False,
    },
    "text_cfg": {
        "pool_type": "argmax",
        "proj_type": "linear",
        "text_arch": "clip",
        "pad_id": 0,
        "embed_cls": False,
    }
    | {
        "hf_tokenizer_name": "openai/clip-vit-large-patch14",
        "tokenizer_kwargs": None,
        "no_causal_mask": False,
    },
}


def test_open_clip_in_its_longest_form(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    model = towers.save_open_clip(source, custom_text=True)
    file = source / "open_clip_config.json"
    content = json.loads(file.read_text())
    own = content["model_cfg"]
    own |= {**PLAIN["model"], "vision_cfg": own["vision_cfg"] | PLAIN["vision_cfg"]}
    own |= {"text_cfg": own["text_cfg"] | PLAIN["text_cfg"], "custom_text": True}
    own["vision_cfg"]["image_size"] = [towers.SIDE] * 2
    # its size is another: open_clip takes the tower's
    content["preprocess_cfg"] = {
        "size": [99, 99],
        "mode": "RGB",
        "mean": 0.4,
        "std": None,
        "interpolation": "random",
    }
    content["preprocess_cfg"] |= {"resize_mode": None, "fill_color": 7}
    file.write_text(json.dumps(content))
    weights = source / "open_clip_model.safetensors"
    state = load_file(weights)
    state |= {"logit_scale": state["logit_scale"].reshape(1), "logit_bias": torch.zeros(1)}
    save_file(state, weights)
    run = imported(tmp_path, source)
    towers.save_preprocessor(source, image_mean=[0.4] * 3, image_std=[0.26862954, 0.26130258, 0.27577711])
    text_rows, image_rows = theirs(model, source, list(towers.SENTENCES), pictures())
    np.testing.assert_allclose(run.encode_texts(list(towers.SENTENCES)), text_rows, atol=1e-6)
    np.testing.assert_allclose(run.encode_images(pictures()), image_rows, atol=1e-5)


def test_open_clip_in_its_shortest_form() -> None:
    """Its own defaults are those of ViT-B-16."""
    empty = {"model_cfg": {"embed_dim": 512, "vision_cfg": {}, "text_cfg": {}}}
    config = open_clip.to_config(empty, "any")
    vision, text = config["vision_config"], config["text_config"]
    assert (vision["hidden_size"], vision["num_hidden_layers"], vision["num_attention_heads"]) == (
        768,
        12,
        12,
    )
    assert (vision["image_size"], vision["patch_size"], vision["intermediate_size"]) == (224, 16, 3072)
    assert (text["hidden_size"], text["num_hidden_layers"], text["num_attention_heads"]) == (512, 12, 8)
    assert (text["vocab_size"], text["max_position_embeddings"], text["intermediate_size"]) == (
        49408,
        77,
        2048,
    )
    assert open_clip.to_preprocessing(empty, "any")["size"] == {"shortest_edge": 224}


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        *(
            ("vision_cfg", name, True)
            for name in ("attentional_pool", "no_ln_pre", "final_ln_after_pool", "qk_norm")
        ),
        *(
            ("vision_cfg", name, "other")
            for name in ("timm_model_name", "pool_type", "pos_embed_type", "block_type")
        ),
        *(("text_cfg", name, True) for name in ("embed_cls", "no_causal_mask", "proj_bias", "variable_text")),
        *(("text_cfg", name, "other") for name in ("pool_type", "proj_type", "hf_model_name", "text_arch")),
        ("text_cfg", "tokenizer_kwargs", {"clean": "canonicalize"}),
        ("vision_cfg", "layers", [2, 2, 2, 2]),
        ("vision_cfg", "image_size", [32, 40]),
        (None, "multimodal_cfg", {"width": 32}),
        ("preprocess_cfg", "resize_mode", "longest"),
        ("preprocess_cfg", "interpolation", "nearest"),
        ("preprocess_cfg", "mode", "L"),
    ],
)
def test_another_open_clip_is_named(part: str | None, name: str, value: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    towers.save_open_clip(source)
    place = (
        ("preprocess_cfg", name)
        if part == "preprocess_cfg"
        else ("model_cfg", *([part] if part else []), name)
    )
    changed(source / "open_clip_config.json", *place, to=value)
    line = refused(source, tmp_path / "run")
    said = {"layers": "a ResNet", "image_size": "32×40"}.get(name, name)
    assert said in line


FORMS: dict[str, dict[str, Any]] = {
    "no values of its own": dict.fromkeys(
        ("image_mean", "image_std", "do_rescale", "rescale_factor", "resample")
    ),
    "one number for all colours": {"image_mean": 0.5, "image_std": 0.25},
    "height and width as a list": {"size": [40, 36]},
    "a square by the class": {
        "image_processor_type": "ViTImageProcessor",
        "size": 32,
        "do_center_crop": None,
    },
    "an extractor of before": {
        "image_processor_type": None,
        "feature_extractor_type": "CLIPFeatureExtractor",
    },
    "no class": {"image_processor_type": None, "size": 40, "crop_size": 32},
    "padding of nothing": {"do_pad": True},
    "another factor": {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3},
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", FORMS)
def test_a_processor_is_read_as_transformers_reads_it(
    kind: str, nested: bool, source: Path, tmp_path: Path
) -> None:
    model = transformers.CLIPModel.from_pretrained(source).eval()
    towers.save_preprocessor(source, **FORMS[kind])
    if nested:
        values = json.loads((source / "preprocessor_config.json").read_text())
        (source / "processor_config.json").write_text(json.dumps({"image_processor": values}))
        # transformers reads the other one first
        towers.save_preprocessor(source, image_mean=[0.1] * 3)
    run = imported(tmp_path, source)
    _, image_rows = theirs(model, source, ["dog"], pictures())
    np.testing.assert_allclose(run.encode_images(pictures()), image_rows, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"size": {"longest_edge": 32}}, "longest_edge"),
        ({"size": {"shortest_edge": 32, "longest_edge": 64}}, "longest_edge"),
        ({"size": {"max_height": 32, "max_width": 32}}, "max_height"),
        ({"crop_size": {"height": 40, "width": 32}}, "40×32"),
        ({"crop_size": 33}, "33×33"),
        ({"do_center_crop": False}, "no crop"),
        ({"do_resize": False}, "do_resize"),
        ({"do_pad": True, "pad_size": {"height": 64, "width": 64}}, "pad_size"),
        ({"resample": 4}, "resample 4"),
        ({"resample": "bicubic"}, "resample 'bicubic'"),
        ({"size": -3}, "-3"),
        ({"image_processor_type": "SiglipImageProcessor", "size": 32, "do_center_crop": None}, "no crop"),
        ({"size": {"height": 10**6, "width": 32}}, "1000000"),
        ({"image_std": 0}, "image_std"),
        ({"image_std": [0.2, 0.0, 0.2]}, "image_std"),
        ({"image_mean": [0.2, 0.2]}, "image_mean"),
        ({"image_mean": [0.2, NAN, 0.2]}, "image_mean"),
        ({"rescale_factor": 0}, "rescale_factor"),
        ({"image_processor_type": "ConvNextImageProcessor"}, "ConvNextImageProcessor"),
        ({"image_processor_type": "TheirImageProcessor"}, "preprocessor_config.json"),
    ],
)
def test_what_is_not_read_of_a_processor_is_named(
    changes: dict[str, Any], says: str, source: Path, tmp_path: Path
) -> None:
    towers.save_preprocessor(source, **changes)
    assert says in refused(source, tmp_path / "run")


def test_a_run_is_opened_and_tried_before_it_is_there(source: Path, tmp_path: Path) -> None:
    # finite weights, and no embedding: found by no look at a file
    changed(source / "config.json", "vision_config", "layer_norm_eps", to=-1.0)
    assert "embedding of a picture is not finite" in refused(source, tmp_path / "run")


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("where", ["write_checkpoint", "sync", "load_model", "read_digest", "write_text"])
def test_nothing_is_left_behind_an_interrupt(
    where: str, there: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in the middle of a checkpoint, or behind a step
    module: Any = checkpoint if where == "sync" else import_pair
    plain = getattr(module, where)

    def interrupted(*given: Any) -> None:
        plain(*given)
        raise KeyboardInterrupt

    out = tmp_path / "run"
    if there:
        out.mkdir()
    monkeypatch.setattr(module, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_model(str(source), out)
    assert out.exists() == there
    assert not there or not list(out.iterdir())
    monkeypatch.undo()
    import_model(str(source), out)


def test_an_error_of_another_library_is_one_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("inner text\nof several lines, see https://example.org")

    monkeypatch.setattr(import_pair, "build_network", fails)
    line = refused(source, tmp_path / "run")
    assert "RuntimeError" in line
    assert "inner" not in line
