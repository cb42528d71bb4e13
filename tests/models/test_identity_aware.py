import torch

from limner.models.identity_aware import IdentityAware, IdentityAwareSettings
from limner.models.image import BackboneSettings
from limner.models.text_lstm import TextLSTMSettings


def tiny(name: str = "resnet-18") -> IdentityAware:
    torch.manual_seed(0)
    settings = IdentityAwareSettings(
        backbone=BackboneSettings.parse({"name": name, "width": 0.125}),
        text=TextLSTMSettings(words=8, word_dim=12, hidden=10),
        dim=16,
    )
    return IdentityAware(settings, 30)


def test_both_paths_end_in_one_space_and_learn() -> None:
    for name in ("resnet-18", "vgg-16", "googlenet"):
        model = tiny(name)
        images = model.embed_images(model.pool_images(torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8)))
        texts = model.encode_texts(torch.randint(1, 30, (4, 8)))
        assert images.shape == texts.shape == (4, 16)
        torch.autograd.backward((images * texts).sum())
        for part, parameters in model.parts().items():
            assert all(parameter.grad is not None for parameter in parameters), (name, part)
