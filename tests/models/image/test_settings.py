from typing import Any

import pytest

from limner.documented import field_docstrings
from limner.errors import SettingsError
from limner.models.image import BackboneSettings


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"name": "resnet-152", "weights": "imagenet"},
        {"name": "resnet-50", "weights": "runs/a.pth", "last_stride": 1},
        {"name": "mobilenet-v2", "weights": "a.safetensors", "padding": "same", "normalise": "tensorflow"},
        {"name": "auto", "auto_model": "microsoft/resnet-50"},
        {"name": "vgg-16", "width": 0.25},
    ],
)
def test_accepts(values: dict[str, Any]) -> None:
    settings = BackboneSettings.parse(values)
    assert BackboneSettings.parse(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": "resnet-51"}, "resnet-50"),
        ({"weights": "imagnet"}, ".safetensors"),
        ({"weights": "model.bin"}, ".safetensors"),
        ({"width": 0}, "greater than 0"),
        ({"weight": None}, "did you mean 'weights'"),
        ({"name": "vgg-16", "padding": "same"}, "mobilenet-v2 only"),
        ({"name": "googlenet", "last_stride": 1}, "ResNets only"),
        ({"name": "resnet-50", "last_stride": 3}, "1 or 2"),
        ({"name": "auto"}, "needs auto_model"),
        ({"name": "resnet-50", "auto_model": "x"}, "needs name='auto'"),
        ({"name": "auto", "auto_model": "x", "weights": "a.pth"}, "leave weights out"),
        ({"name": "auto", "auto_model": "x", "width": 0.5}, "leave it at 1"),
        ({"name": "auto", "auto_model": "x", "normalise": "tensorflow"}, "leave normalise out"),
        ({"weights": "imagenet", "width": 0.5}, "width 1 only"),
        ({"name": "mobilenet-v2", "weights": "imagenet", "padding": "same"}, "padding='symmetric'"),
        ({"weights": "imagenet", "normalise": "tensorflow"}, "normalise='imagenet'"),
    ],
)
def test_refuses(values: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        BackboneSettings.parse(values)
    assert "\n" not in str(caught.value)


def test_every_field_is_documented() -> None:
    assert field_docstrings(BackboneSettings).keys() == BackboneSettings.model_fields.keys()
