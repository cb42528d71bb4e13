import pytest
import torch
from torch import nn

from limner.models.dual_path import DualPath, DualPathSettings
from limner.models.image import BackboneSettings
from limner.models.text_cnn import TextCNNSettings


def tiny(**changes: object) -> DualPath:
    torch.manual_seed(0)
    return DualPath(
        DualPathSettings(
            backbone=BackboneSettings(name="resnet-18", width=0.125),
            text=TextCNNSettings(words=8, word_dim=12, width=1 / 32),
            dim=16,
        ).replace(**changes),
        30,
    )


def test_every_parameter_is_in_exactly_one_part() -> None:
    model = tiny()
    listed = [id(parameter) for part in model.parts().values() for parameter in part]
    assert len(listed) == len(set(listed))
    assert set(listed) == {id(parameter) for parameter in model.parameters()}


def test_both_paths_end_in_one_space_and_learn() -> None:
    model = tiny()
    images = model.embed_images(model.pool_images(torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)))
    texts = model.encode_texts(torch.randint(30, (4, 8)))
    assert images.shape == texts.shape == (4, 16)
    torch.autograd.backward((images * texts).sum())
    for name, parameters in model.parts().items():
        assert all(parameter.grad is not None for parameter in parameters), name


@pytest.mark.parametrize(
    ("head", "kinds"),
    [
        ("paper", [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]),
        ("released", [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear, nn.BatchNorm1d, nn.ReLU]),
        ("linear", [nn.Linear]),
    ],
)
def test_heads(head: str, kinds: list[type[nn.Module]]) -> None:
    assert [type(layer) for layer in tiny(head=head).image_projection.children()] == kinds


def test_released_features_are_not_negative() -> None:
    model = tiny(head="released")
    assert model.encode_texts(torch.randint(30, (4, 8))).min() >= 0


def test_frozen_backbone_keeps_its_statistics() -> None:
    model = tiny()
    model.backbone.set_frozen(True)
    model.train()
    before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
    model.pool_images(torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8))
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(before[name], value), name
