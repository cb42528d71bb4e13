"""A tower is taken from an earlier test only if it is the same in all that is recorded of it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from limner.data.transforms import ImageSettings
from limner.export import onnx_files
from limner.export.onnx_files import write_onnx
from limner.models.text_tower import TextTowerSettings
from tests.recordings import digest_of, keep_recordings, keep_translations


class _Tower(nn.Module):
    def __init__(self, images: ImageSettings, bias: float = 0.0) -> None:
        super().__init__()
        self.layer, self.images = nn.Linear(2, 2), images
        with torch.no_grad():
            self.layer.weight.fill_(1)
            self.layer.bias.fill_(bias)


def test_another_weight_setting_or_input_is_recorded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[nn.Module] = []

    def record(tower: nn.Module, inputs: object, outputs: object, path: Path) -> None:
        del inputs, outputs
        assert not tower.training
        recorded.append(tower)
        path.write_text(str(len(recorded)))

    monkeypatch.setattr(onnx_files, "write_graph", record)
    keep_recordings(tmp_path / "kept", monkeypatch)
    images, example = ImageSettings(resize=(4, 4), crop=(4, 4)), torch.zeros(2, 2)
    different = (
        (_Tower(images), example, "pixels"),
        (_Tower(images, bias=1e-6), example, "pixels"),
        (_Tower(images.replace(flip=not images.flip)), example, "pixels"),
        (_Tower(images), torch.zeros(2, 3), "pixels"),
        (_Tower(images), example, "image"),
    )
    for count, (tower, given, name) in enumerate(different, start=1):
        # the second time it is another module of the same content
        for one in (tower, _Tower(tower.images, bias=tower.layer.bias.tolist()[0])):
            write_onnx(one, given, name, tmp_path / "tower.onnx")
            assert len(recorded) == count
            assert (tmp_path / "tower.onnx").read_text() == str(count)
    write_onnx(_Tower(images), example, "pixels", tmp_path / "tower.onnx", any_length=True)
    assert len(recorded) == len(different) + 1


class _Pretrained(_Tower):
    """Its settings name the folder from which it was read."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(ImageSettings(resize=(4, 4), crop=(4, 4)))
        self.name, self.kind = str(folder / "run" / "backbone"), kind
        self.settings = TextTowerSettings(words=16, model=str(folder / "run" / "text"))
        # of equal texts, one object or two
        self.kinds = [kind, "".join([*kind])]


def test_the_temporary_folder_of_a_tower_is_no_content(tmp_path: Path) -> None:
    one, other, another_kind, another_name = (
        digest_of(_Pretrained(folder, kind))
        for folder, kind in (
            (tmp_path / "one", "gelu"),
            (tmp_path / "other", "gelu"),
            (tmp_path / "one", "relu"),
            (Path("/srv/models"), "gelu"),
        )
    )
    assert one == other
    assert len({one, another_kind, another_name}) == 3


def test_a_translation_of_one_recording_is_not_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript")
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    whole = ONNXRegistry.from_torchlib()
    keep_translations(monkeypatch)
    own = ONNXRegistry.from_torchlib()
    for operation in (torch.ops.aten.relu.default, torch.ops.aten.channel_shuffle.default):
        own.register_op(operation, lambda rows: rows)
    for registry in (ONNXRegistry.from_torchlib(), ONNXRegistry().from_torchlib(whole.opset_version)):
        assert registry.opset_version == whole.opset_version
        assert registry.functions == whole.functions
        assert registry.functions != own.functions
