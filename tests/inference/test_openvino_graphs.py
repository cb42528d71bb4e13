"""Graphs kept in the cache: taken where they are of the same module, made anew where they are damaged or of another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.inference import openvino_graphs
from limner.inference.image_engine import OpenVINOModule
from limner.inference.openvino_library import require_openvino

try:
    require_openvino()
except SettingsError as missing:
    pytest.skip(str(missing), allow_module_level=True)

SIZE = (8, 6)
PICTURES = np.arange(2 * 3 * 8 * 6, dtype=np.uint8).reshape(2, 3, 8, 6)


class Small(nn.Module):
    """A convolution of pictures, and a number that is no parameter."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(3, 4, 3)
        self.factor = factor
        self.register_buffer("mean", torch.zeros(3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """The convolution's mean over positions."""
        found: Tensor = self.convolution(pixels.float() - self.get_buffer("mean")).mean((2, 3)) * self.factor
        return found


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A cache of its own; the list grows by one for each conversion."""
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    calls: list[tuple[int, int]] = []
    convert = openvino_graphs._converted

    def counted(openvino: Any, module: nn.Module, size: tuple[int, int]) -> bytes:
        calls.append(size)
        return convert(openvino, module, size)

    monkeypatch.setattr(openvino_graphs, "_converted", counted)
    return calls


def _run(module: nn.Module) -> np.ndarray:
    return np.asarray(OpenVINOModule(module, SIZE, "fp32")(PICTURES).numpy())


def _entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache/openvino").iterdir())


def test_kept_graph_computes_the_same(converted: list[tuple[int, int]], tmp_path: Path) -> None:
    first, second = _run(Small()), _run(Small())
    assert converted == [SIZE]
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(
        first, Small()(torch.from_numpy(PICTURES)).detach().numpy(), rtol=1e-4, atol=1e-4
    )
    assert [file.suffix for file in _entries(tmp_path)] == [".graph"]


@pytest.mark.parametrize("what", ["weights", "buffer", "setting", "size", "version", "source"])
def test_another_module_has_another_graph(
    converted: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = openvino_graphs._file(Small().eval(), SIZE)
    other, size = Small(), SIZE
    if what == "weights":
        with torch.no_grad():
            other.convolution.weight[0, 0, 0, 0] += 1e-3
    elif what == "buffer":
        other.get_buffer("mean")[0] = 1
    elif what == "setting":
        other = Small(factor=2.0)
    elif what == "size":
        size = (8, 7)
    elif what == "version":
        monkeypatch.setattr(openvino_graphs, "version", lambda name: "1.0")
    else:
        source = tmp_path / "__init__.py"
        source.write_text("# another network of the same name\n")
        monkeypatch.setattr("limner.models.image.__file__", str(source))
    after = openvino_graphs._file(other.eval(), size)
    assert before is not None
    assert after is not None
    assert before != after


@pytest.mark.parametrize("damage", ["cut", "bit", "empty"])
def test_damaged_entry_is_made_anew(converted: list[tuple[int, int]], tmp_path: Path, damage: str) -> None:
    expected = _run(Small())
    (entry,) = _entries(tmp_path)
    whole = entry.read_bytes()
    turned = bytearray(whole)
    turned[-3] ^= 1
    entry.write_bytes({"cut": whole[:-5], "bit": bytes(turned), "empty": b""}[damage])
    np.testing.assert_array_equal(_run(Small()), expected)
    assert converted == [SIZE, SIZE]
    np.testing.assert_array_equal(_run(Small()), expected)
    assert converted == [SIZE, SIZE]
    assert _entries(tmp_path) == [entry]


def test_without_a_place_for_the_cache(
    converted: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "file"))
    expected = _run(Small())
    np.testing.assert_array_equal(_run(Small()), expected)
    assert converted == [SIZE, SIZE]


def test_those_used_last_stay(
    converted: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_graphs, "KEPT", 2)
    for factor in (1.0, 2.0, 1.0, 3.0):
        _run(Small(factor))
    assert len(_entries(tmp_path)) == 2
    _run(Small(1.0))
    assert len(converted) == 3
    _run(Small(2.0))
    assert len(converted) == 4
