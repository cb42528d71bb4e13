import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args
from urllib.error import URLError

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from limner.errors import CheckpointError
from limner.models.image import (
    BackboneName,
    BackboneSettings,
    MobileNetV2,
    ResNet,
    build_backbone,
    load_state,
    published_state,
)
from limner.models.image.weights import PUBLISHED
from limner.models.weight_files import read_state


def small(seed: int) -> ResNet:
    torch.manual_seed(seed)
    encoder = ResNet(18, width=0.125)
    encoder.bn1.bias.data.uniform_()
    return encoder


def same(first: ResNet, second: ResNet) -> bool:
    ours, theirs = first.state_dict(), second.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def save(state: dict[str, Tensor], path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("file", ["w.safetensors", "w.pth", "w.pt"])
def test_round_trip(tmp_path: Path, file: str) -> None:
    source = small(0)
    path = save(source.state_dict(), tmp_path / file)
    built = build_backbone(BackboneSettings(name="resnet-18", width=0.125, weights=str(path)))
    assert isinstance(built, ResNet)
    assert same(source, built)


def with_classifier(state: dict[str, Tensor]) -> Any:
    return {**state, "fc.weight": torch.zeros(10, 64), "fc.bias": torch.zeros(10)}


def without_counters(state: dict[str, Tensor]) -> Any:
    return {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}


def data_parallel(state: dict[str, Tensor]) -> Any:
    return {f"module.{name}": value for name, value in state.items()}


def training_checkpoint(state: dict[str, Tensor]) -> Any:
    return {"state_dict": data_parallel(state), "epoch": 3, "arch": "resnet18"}


@pytest.mark.parametrize("form", [with_classifier, without_counters, data_parallel, training_checkpoint])
def test_forms_of_public_files(tmp_path: Path, form: Callable[[dict[str, Tensor]], Any]) -> None:
    source, encoder = small(0), small(1)
    torch.save(form(source.state_dict()), tmp_path / "w.pth")
    load_state(encoder, read_state(tmp_path / "w.pth"), source="w.pth")
    assert same(source, encoder)


def test_half_precision_files_load_as_float32(tmp_path: Path) -> None:
    source, encoder = small(0), small(1)
    halved = {n: v.half() if v.is_floating_point() else v for n, v in source.state_dict().items()}
    load_state(encoder, read_state(save(halved, tmp_path / "w.safetensors")), source="w")
    assert encoder.conv1.weight.dtype == torch.float32
    torch.testing.assert_close(encoder.conv1.weight, source.conv1.weight, atol=1e-3, rtol=1e-3)


def missing(state: dict[str, Tensor]) -> None:
    del state["layer3.0.bn2.weight"]
    del state["layer4.0.bn2.weight"]


def misshapen(state: dict[str, Tensor]) -> None:
    state["layer3.0.conv1.weight"] = torch.zeros(3, 3)


def unexpected(state: dict[str, Tensor]) -> None:
    state["layer3.0.conv9.weight"] = torch.zeros(1)


def not_a_number(state: dict[str, Tensor]) -> None:
    state["layer3.0.bn2.running_var"][3] = float("nan")


def quantised(state: dict[str, Tensor]) -> None:
    state["conv1.weight"] = state["conv1.weight"].to(torch.uint8)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (missing, "'layer3.0.bn2.weight' is missing"),
        (misshapen, r"'layer3.0.conv1.weight' has shape \(3, 3\), expected \(32, 16, 3, 3\)"),
        (unexpected, "'layer3.0.conv9.weight' is unexpected"),
        (not_a_number, "'layer3.0.bn2.running_var' should hold finite"),
        (quantised, "'conv1.weight' should hold finite"),
    ],
)
def test_misfits_name_the_first_entry_and_change_nothing(
    damage: Callable[[dict[str, Tensor]], None], says: str
) -> None:
    state = {name: value.clone() for name, value in small(0).state_dict().items()}
    damage(state)
    encoder = small(1)
    with pytest.raises(CheckpointError, match=says) as caught:
        load_state(encoder, state, source="file.pth")
    assert "file.pth" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert same(encoder, small(1))


def test_file_of_another_width(tmp_path: Path) -> None:
    path = save(ResNet(18, width=0.25).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(CheckpointError, match=r"'conv1\.weight' has shape"):
        build_backbone(BackboneSettings(name="resnet-18", width=0.125, weights=str(path)))


class RunsCode:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


def test_no_code_of_a_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.pth").write_bytes(pickle.dumps({"conv1.weight": RunsCode()}))
    torch.save({"conv1.weight": RunsCode()}, "zip.pth")
    for file in ("bad.pth", "zip.pth"):
        with pytest.raises(CheckpointError, match="plain tensors"):
            read_state(file)
    assert not Path("ran").exists()


def test_unusable_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        read_state(tmp_path / "absent.pth")
    with pytest.raises(CheckpointError, match="no such file"):
        read_state(tmp_path)
    for file in ("empty.pth", "empty.safetensors"):
        (tmp_path / file).write_bytes(b"")
        with pytest.raises(CheckpointError, match="failed"):
            read_state(tmp_path / file)
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="got list"):
        read_state(tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "number.pth")
    with pytest.raises(CheckpointError, match="'epoch' is a int"):
        read_state(tmp_path / "number.pth")


@pytest.mark.parametrize("file", ["w.safetensors", "w.pth"])
@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_load_or_are_refused(tmp_path: Path, file: str, data: st.DataObject) -> None:
    path = save({"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.zeros(2)}, tmp_path / file)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    for _ in range(data.draw(st.integers(1, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    # Anything but a CheckpointError, or a value that is no tensor, fails.
    with suppress(CheckpointError):
        assert all(isinstance(value, Tensor) for value in read_state(path).values())


def test_every_network_has_a_published_file() -> None:
    assert set(PUBLISHED) == set(get_args(BackboneName)) - {"auto"}


def test_published_weights_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    source = MobileNetV2()
    state = {**source.state_dict(), "classifier.1.weight": torch.zeros(1000, 1280)}
    torch.save(state, folder / "mobilenet_v2-b0353104.pth")
    built = build_backbone(BackboneSettings(name="mobilenet-v2", weights="imagenet"))
    assert torch.equal(built.state_dict()["features.0.0.weight"], source.state_dict()["features.0.0.weight"])


def test_published_weights_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: str, **options: Any) -> None:
        assert url.endswith("/resnet50-0676ba61.pth")
        assert options["check_hash"]
        assert options["weights_only"]
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fetch)
    with pytest.raises(CheckpointError, match="no route to host") as caught:
        published_state("resnet-50")
    assert "\n" not in str(caught.value)
    assert "checkpoints" in str(caught.value)
