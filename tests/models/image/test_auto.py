import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from limner.errors import CheckpointError
from limner.models.image import AutoEncoder, BackboneSettings, build_backbone

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ResNet classifier of transformers, two small stages, random values."""
    folder = tmp_path_factory.mktemp("resnet")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    return folder


def copy_of(folder: Path, target: Path) -> Path:
    target.mkdir()
    for file in ("config.json", "model.safetensors"):
        (target / file).write_bytes((folder / file).read_bytes())
    return target


def built(folder: Path, **options: Any) -> AutoEncoder:
    encoder = build_backbone(BackboneSettings(name="auto", auto_model=str(folder)), **options)
    assert isinstance(encoder, AutoEncoder)
    return encoder


def test_a_local_folder_loads_with_its_weights(saved: Path) -> None:
    encoder = built(saved).eval()
    classifier = transformers.ResNetForImageClassification.from_pretrained(saved).eval()
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    images = (pixels / 255 - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor(
        [0.229, 0.224, 0.225]
    ).view(3, 1, 1)
    with torch.no_grad():
        expected = classifier.resnet(images).pooler_output.flatten(1)
        assert encoder.forward_map(pixels).shape == (2, 16, 8, 8)
        torch.testing.assert_close(encoder(pixels), expected, atol=1e-4, rtol=1e-4)
    assert encoder.channels == encoder.map_channels == 16


def test_its_own_normalisation_is_used(saved: Path, tmp_path: Path) -> None:
    folder = copy_of(saved, tmp_path / "own")
    values = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2], "rescale_factor": 1 / 255}
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    encoder = built(folder)
    torch.testing.assert_close(encoder.pixel_mean.flatten(), torch.tensor([127.5, 102.0, 76.5]))
    torch.testing.assert_close(encoder.pixel_std.flatten(), torch.tensor([127.5, 63.75, 51.0]))
    (folder / "preprocessor_config.json").write_text("{'image_mean'")
    with pytest.raises(CheckpointError, match=r"preprocessor_config.json cannot be used"):
        built(folder)


def test_freezing_and_gradients(saved: Path) -> None:
    encoder = built(saved)
    pixels = torch.rand(2, 3, 32, 32) * 255
    encoder.train()(pixels).sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())
    encoder.set_frozen(True).train()
    assert not any(module.training for module in encoder.modules())
    assert not encoder(pixels).requires_grad


def test_fresh_stage_norms_are_allowed(tmp_path: Path) -> None:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    transformers.ConvNextForImageClassification(config).save_pretrained(tmp_path)
    encoder = built(tmp_path)
    assert encoder(torch.zeros(1, 3, 32, 32)).shape == (1, 16)


def test_configuration_alone_is_refused_unless_no_weights_are_wanted(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((saved / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match="weights cannot be read") as caught:
        built(tmp_path)
    assert "\n" not in str(caught.value)
    assert built(tmp_path, load_weights=False).channels == 16


def test_missing_weights_are_not_replaced_by_random_ones(saved: Path, tmp_path: Path) -> None:
    folder = copy_of(saved, tmp_path / "less")
    state = load_file(folder / "model.safetensors")
    name = min(name for name in state if name.endswith("convolution.weight"))
    del state[name]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"convolution\.weight' is missing"):
        built(folder)


def test_damaged_weights(saved: Path, tmp_path: Path) -> None:
    folder = copy_of(saved, tmp_path / "cut")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="weights cannot be read"):
        built(folder)


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        built(tmp_path / "nothing" / "here")


def test_a_text_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "distilbert"}))
    with pytest.raises(CheckpointError, match="'distilbert' is not a backbone"):
        built(tmp_path)


def test_a_network_for_grey_pictures_is_refused(tmp_path: Path) -> None:
    config = transformers.ResNetConfig(num_channels=1, embedding_size=8, hidden_sizes=[8], depths=[1])
    config.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="1 channels"):
        built(tmp_path, load_weights=False)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CheckpointError, match=r"limner\[transformers\]"):
        build_backbone(BackboneSettings(name="auto", auto_model="any"))
