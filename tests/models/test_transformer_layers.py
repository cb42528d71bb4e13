from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from limner.models.image import BackboneSettings, build_backbone
from limner.models.image.auto import load_auto
from limner.models.text_tower import TextTower, TextTowerSettings
from limner.models.transformer_layers import layers_above, set_checkpointing, transformer_layers
from tests import towers

pytest.importorskip("transformers")

SOURCES: dict[str, Callable[[Path], Any]] = {
    "clip": towers.save_clip,
    "siglip": towers.save_siglip,
    "siglip2": towers.save_siglip2,
    "altclip": towers.save_altclip,
    "chinese_clip": towers.save_chinese_clip,
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    SOURCES[request.param](tmp_path)
    return tmp_path


def text_tower(source: Path) -> TextTower:
    return TextTower(TextTowerSettings(model=str(source), words=towers.LENGTH, filled="right"), 100)


def test_the_layers_of_each_pair_are_found(source: Path) -> None:
    for tower in (load_auto(str(source)), text_tower(source)):
        layers = transformer_layers(tower)
        above = layers_above([tower])
        assert set(above) == set(tower.parameters())
        assert len(layers) >= 2
        for place, layer in enumerate(layers):
            assert {above[weight] for weight in layer.parameters()} == {len(layers) - place}
        names = dict(tower.named_parameters())
        embeddings = [name for name in names if ".embeddings." in name]
        assert embeddings
        assert {above[names[name]] for name in embeddings} == {len(layers) + 1}
        behind = [name for name in names if "post_layernorm" in name or "final_layer_norm" in name]
        assert {above[names[name]] for name in behind} <= {0}


def test_a_network_without_transformer_layers_has_none() -> None:
    backbone = build_backbone(BackboneSettings(name="resnet-18", width=0.125), load_weights=False)
    assert not transformer_layers(backbone)
    assert layers_above([backbone]) == {}
    # two rows of layers have no one order
    fresh = TextTowerSettings(words=8, width=16, heads=2, feature="mean")
    pair = nn.ModuleList([TextTower(fresh, 20), TextTower(fresh, 20)])
    assert not transformer_layers(pair)
    set_checkpointing(backbone, True)


def kept_bytes(tower: nn.Module, *inputs: Tensor) -> tuple[int, Tensor]:
    """The bytes that a forward pass keeps for the backward pass, and the output."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        seen[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.manual_seed(4)
        output = tower(*inputs)
    return sum(seen.values()), output


def gradients(tower: nn.Module, output: Tensor) -> dict[str, Tensor]:
    tower.zero_grad()
    torch.autograd.backward(output.square().sum())
    return {name: weight.grad for name, weight in tower.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("kind", ["image", "text", "dropout"])
def test_checkpointing_keeps_less_and_changes_no_gradient(kind: str, tmp_path: Path) -> None:
    towers.save_clip(tmp_path)
    chance = torch.Generator().manual_seed(0)
    if kind == "image":
        tower: nn.Module = load_auto(str(tmp_path))
        inputs = torch.randint(0, 256, (6, 3, 32, 32), generator=chance, dtype=torch.uint8)
    else:
        settings = TextTowerSettings(words=12, width=32, heads=2, layers=3, feature="mean")
        tower = text_tower(tmp_path) if kind == "text" else TextTower(settings, 100)
        inputs = torch.randint(1, 100, (6, 12), generator=chance)
    tower.train()
    plain, output = kept_bytes(tower, inputs)
    expected = gradients(tower, output)
    assert len(expected) > 10
    set_checkpointing(tower, True)
    less, output = kept_bytes(tower, inputs)
    found = gradients(tower, output)
    assert less < 0.7 * plain
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient), name
    # a frozen tower is in eval mode, where nothing is computed twice
    assert kept_bytes(tower.eval(), inputs)[0] > less
    set_checkpointing(tower.train(), False)
    assert kept_bytes(tower, inputs)[0] == pytest.approx(plain, rel=0.05)
