import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.adapters import LoRASettings, add_adapters, hold_adapted, merged_state, remove_adapters
from limner.models.image.auto import load_auto
from limner.models.text_tower import TextTower
from tests import towers
from tests.models.test_transformer_layers import SOURCES, text_tower

pytest.importorskip("transformers")
pytest.importorskip("peft")


def inputs(tower: nn.Module) -> Tensor:
    chance = torch.Generator().manual_seed(2)
    if isinstance(tower, TextTower):
        return torch.randint(1, 100, (3, towers.LENGTH), generator=chance)
    return torch.randint(0, 256, (3, 3, towers.SIDE, towers.SIDE), generator=chance, dtype=torch.uint8)


@pytest.mark.parametrize("side", ["image", "text"])
@pytest.mark.parametrize("kind", SOURCES)
def test_adapters_learn_and_the_merged_tower_is_the_same(kind: str, side: str, tmp_path: Path) -> None:
    SOURCES[kind](tmp_path)

    def made() -> nn.Module:
        return load_auto(str(tmp_path)) if side == "image" else text_tower(tmp_path)

    tower, start = made(), made().state_dict()
    given = inputs(tower)
    with torch.no_grad():
        before = tower.eval()(given)
    add_adapters(tower, LoRASettings(rank=3, alpha=6))
    hold_adapted(tower)
    # α / r times a matrix of zeros; SigLIP's head takes another way where nothing of it learns
    with torch.no_grad():
        torch.testing.assert_close(tower.eval()(given), before, atol=1e-5, rtol=0)
    learning = {name: weight for name, weight in tower.named_parameters() if weight.requires_grad}
    layers = 2
    assert len(learning) == layers * 4 * 2
    assert all("lora_" in name for name in learning)
    for weight in learning.values():
        nn.init.normal_(weight, std=0.2)
    output = tower(given)
    assert float((output - before).detach().abs().max()) > 1e-3
    torch.autograd.backward(output.square().sum())
    # none is dead, as one on SigLIP's pooling head would be
    assert all(weight.grad is not None and float(weight.grad.abs().max()) > 0 for weight in learning.values())
    own = {name: value.clone() for name, value in tower.state_dict().items()}
    merged = merged_state(tower)
    assert set(merged) == set(start)
    assert all(torch.equal(value, own[name]) for name, value in tower.state_dict().items())
    plain = made().eval()
    plain.load_state_dict(merged)
    with torch.no_grad():
        torch.testing.assert_close(plain(given), tower(given), atol=1e-5, rtol=0)
    remove_adapters(tower)
    assert set(tower.state_dict()) == set(start)
    assert all(torch.equal(value, start[name]) for name, value in tower.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(tower(given), before, atol=1e-5, rtol=0)


def test_the_change_is_alpha_over_r_times_the_product(tmp_path: Path) -> None:
    towers.save_clip(tmp_path)
    tower = load_auto(str(tmp_path))
    start = {name: value.clone() for name, value in tower.state_dict().items()}
    add_adapters(tower, LoRASettings(rank=2, alpha=5, targets=("fc1",)))
    moved = {name: nn.init.normal_(weight) for name, weight in tower.named_parameters() if "lora_" in name}
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in moved} == {"fc1"}
    name = next(name for name in moved if "lora_A" in name).split(".lora_A")[0]
    a, b = (moved[f"{name}.lora_{part}.default.weight"] for part in "AB")
    merged = merged_state(tower)
    torch.testing.assert_close(merged[f"{name}.weight"], start[f"{name}.weight"] + 5 / 2 * b @ a)
    unchanged = [key for key in start if torch.equal(start[key], merged[key])]
    assert {key for key in start if key not in unchanged} == {
        key for key in start if key.endswith("fc1.weight")
    }


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    towers.save_clip(tmp_path)
    with pytest.raises(
        SettingsError, match=r"no linear layer called query; there are: mlp\.fc1, mlp\.fc2, se"
    ):
        add_adapters(load_auto(str(tmp_path)), LoRASettings(targets=("query",)))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SettingsError, match=r"lora needs the peft library; .*limner\[lora\]"):
        add_adapters(load_auto(str(tmp_path)), LoRASettings())
