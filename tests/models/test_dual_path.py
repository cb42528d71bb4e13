import pytest
import torch
from torch import nn

from limner.models import dual_path
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


def test_both_paths_end_in_one_space_and_learn() -> None:
    model = tiny()
    images = model.embed_images(model.pool_images(torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)))
    texts = model.encode_texts(torch.randint(30, (4, 8)))
    assert images.shape == texts.shape == (4, 16)
    torch.autograd.backward((images * texts).sum())
    for name, parameters in model.parts().items():
        assert all(parameter.grad is not None for parameter in parameters), name


_ONCE: list[type[nn.Module]] = [nn.Linear, nn.BatchNorm1d, nn.ReLU]


@pytest.mark.parametrize(
    ("head", "of_images", "of_texts"),
    [
        ("paper", [*_ONCE, nn.Linear], [*_ONCE, nn.Linear]),
        # fc1 and fc1_1 of the authors' files, and fc5_2
        ("released", _ONCE * 2, _ONCE),
        ("linear", [nn.Linear], [nn.Linear]),
    ],
)
def test_heads(head: str, of_images: list[type[nn.Module]], of_texts: list[type[nn.Module]]) -> None:
    model = tiny(head=head)
    assert [type(layer) for layer in model.image_projection.children()] == of_images
    assert [type(layer) for layer in model.text_projection.children()] == of_texts
    # the released code has no bias in any of them
    biases = [
        layer.bias is not None
        for projection in (model.image_projection, model.text_projection)
        for layer in projection.children()
        if isinstance(layer, nn.Linear)
    ]
    assert not (head.startswith("released") and any(biases))


def test_the_draws_of_a_head_keep_their_order() -> None:
    """As they were when results were measured: another order gives every seed other weights."""
    torch.manual_seed(0)
    made = dual_path._head(6, 4, "paper")
    torch.manual_seed(0)
    first, last = nn.Linear(6, 4, bias=False), nn.Linear(4, 4)
    nn.init.kaiming_normal_(first.weight, nonlinearity="relu")
    nn.init.xavier_normal_(last.weight)
    for layer, twin in ((made[0], first), (made[3], last)):
        for value, expected in zip(layer.parameters(), twin.parameters(), strict=True):
            assert torch.equal(value, expected)


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
