import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from limner.errors import CheckpointError, SettingsError
from limner.models.image import AutoEncoder, BackboneSettings, build_backbone, folded
from tests import towers

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


def one_tower(kind: str, folder: Path) -> Any:
    sizes = towers.vision()
    if kind == "vit":
        model = transformers.ViTModel(transformers.ViTConfig(**sizes))
    elif kind == "clip":
        model = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**sizes))
    else:
        model = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**sizes))
    towers.draw_weights(model)
    model.eval().save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["vit", "clip", "siglip"])
def test_a_vision_transformer_alone_is_a_backbone(kind: str, tmp_path: Path) -> None:
    model = one_tower(kind, tmp_path)
    encoder = build_backbone(BackboneSettings(name="auto", auto_model=str(tmp_path))).eval()
    pixels = torch.randint(0, 256, (2, 3, towers.SIDE, towers.SIDE), dtype=torch.uint8)
    mean, std = (
        torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    with torch.no_grad():
        states = model((pixels / 255 - mean) / std).last_hidden_state
        # a class token stands before CLIP's and ViT's patches; CLIP's last norm is applied to it alone
        patches = states if kind == "siglip" else states[:, 1:]
        patches = model.post_layernorm(patches) if kind == "clip" else patches
        assert encoder.forward_map(pixels).shape == (2, 32, 4, 4)
        torch.testing.assert_close(
            encoder.forward_map(pixels).flatten(2).transpose(1, 2), patches, atol=1e-4, rtol=1e-4
        )
        torch.testing.assert_close(encoder(pixels), patches.mean(1), atol=1e-4, rtol=1e-4)
    # every weight learns: a pooler that nothing reads would be left behind in several processes
    encoder.train()(pixels).square().sum().backward()
    without = [name for name, weight in encoder.named_parameters() if weight.grad is None]
    assert without == []
    # another size, by interpolated positions
    assert encoder.forward_map(torch.zeros(1, 3, 48, 16)).shape == (1, 32, 6, 2)


def test_the_tower_of_a_pair_is_a_backbone_that_pools_by_itself(tmp_path: Path) -> None:
    model = towers.save_clip(tmp_path)
    encoder = build_backbone(BackboneSettings(name="auto", auto_model=str(tmp_path))).eval()
    pixels = torch.randint(0, 256, (2, 3, towers.SIDE, towers.SIDE), dtype=torch.uint8)
    images = (pixels - encoder.pixel_mean) / encoder.pixel_std
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels), model.vision_model(images).pooler_output)
    with pytest.raises(SettingsError, match="pools by itself"):
        encoder.pool(encoder.forward_map(pixels))


def test_the_copy_for_inference_shares_a_towers_weights(tmp_path: Path) -> None:
    one_tower("vit", tmp_path)
    encoder = build_backbone(BackboneSettings(name="auto", auto_model=str(tmp_path))).train()
    copied = folded(encoder)
    assert encoder.training
    assert not copied.training
    assert all(weight is copy for weight, copy in zip(encoder.parameters(), copied.parameters(), strict=True))
    assert all(weight.requires_grad for weight in encoder.parameters())
