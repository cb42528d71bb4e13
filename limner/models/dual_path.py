"""The dual-path network: an image CNN and a text CNN that meet in one space.

Source: dual-path TOMM 2020, section 3 and Figure 2. Where the authors' released MATLAB differs from the text, the
text is the default and the release is a named variant (`head="released"`, `text.text_blocks="released"`).
"""

from collections.abc import Iterable
from typing import Literal

from jaxtyping import Float, Int64, UInt8
from pydantic import Field
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.backbones import BackboneSettings, build_backbone
from limner.models.text_encoder import TextEncoder, TextEncoderSettings
from limner.settings import Settings

Head = Literal["paper", "released", "linear"]


class DualPathSettings(Settings):
    """Both paths and the heads on them."""

    backbone: BackboneSettings = BackboneSettings(name="resnet-50", weights="imagenet")
    """The image CNN below the head."""
    text: TextEncoderSettings = TextEncoderSettings()
    """The text CNN below the head."""
    dim: int = Field(default=2048, ge=1)
    """Width of both fully connected layers and of the embedding."""
    head: Head = "paper"
    """"paper": FC, BN, ReLU, FC; "released": a further BN and ReLU behind; "linear": one FC (not in the paper)."""


class DualPath(nn.Module):
    """`f_img = F_img(I)` and `f_text = F_text(T)` (Eq. 1 and 3).

    Our name = their symbol: `embed_images` = F_img above the pooled feature, `encode_texts` = F_text, `dim` = 2048.

    The dropout before the classifier belongs to `limner.losses.InstanceLoss`, since the features that are
    ranked and searched go without it. `load_weights=False` leaves the backbone random, for a checkpoint to fill.
    """

    def __init__(
        self, settings: DualPathSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        super().__init__()
        self.settings = settings
        self.backbone = build_backbone(settings.backbone, load_weights=load_weights)
        self.image_head = _head(self.backbone.channels, settings)
        self.text = TextEncoder(settings.text, vocabulary_size)
        self.text_head = _head(self.text.channels, settings)

    @property
    def dim(self) -> int:
        """Width of the embedding."""
        return self.settings.dim

    def pool_images(
        self, pixels: UInt8[Tensor, "batch 3 height width"] | Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch channels"]:
        """The backbone's pooled features of RGB pixels in 0 … 255."""
        pooled: Tensor = self.backbone(pixels)
        return pooled

    def pool_cached(
        self,
        cached: Float[Tensor, "batch channels"] | Float[Tensor, "batch height width map_channels"],
    ) -> Float[Tensor, "batch channels"]:
        """The backbone's pooled features of what the feature cache keeps.

        These are the features themselves while the backbone is frozen, and maps, channels last, for the layer
        `backbone.learns_from` while it learns from there on.
        """
        if cached.dim() == 2:
            return cached.float()
        if self.backbone.learns_from is None:
            raise SettingsError("cached maps need a backbone that is frozen up to some layer")
        return self.backbone.forward_from(cached.permute(0, 3, 1, 2).float(), self.backbone.learns_from)

    def embed_images(self, pooled: Float[Tensor, "batch channels"]) -> Float[Tensor, "batch dim"]:
        """`f_img` of pooled features, not normalised."""
        out: Tensor = self.image_head(pooled)
        return out

    def encode_texts(self, numbers: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch dim"]:
        """`f_text` of word numbers, not normalised."""
        out: Tensor = self.text_head(self.text(numbers))
        return out

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The parameters by the names that stages freeze and scale rates by; every one is in exactly one part."""
        return {
            name: [parameter for module in modules for parameter in module.parameters()]
            for name, modules in self._modules_of_parts().items()
        }

    def eval_parts(self, names: Iterable[str]) -> None:
        """Put parts into eval mode, so that their batch norm neither uses nor gathers the batch's statistics."""
        modules = self._modules_of_parts()
        for name in names:
            for module in modules.get(name, ()):
                module.eval()

    def _modules_of_parts(self) -> dict[str, list[nn.Module]]:
        return {
            "backbone": [self.backbone],
            "image_head": [self.image_head],
            "words": [self.text.table],
            "text": [self.text.word_norm, self.text.blocks],
            "text_head": [self.text_head],
        }


def _head(inputs: int, settings: DualPathSettings) -> nn.Sequential:
    """FC, BN, ReLU, FC (section 3.1); He initialisation as the paper's convolutions have it."""
    if settings.head == "linear":
        return nn.Sequential(nn.Linear(inputs, settings.dim))
    layers: list[nn.Module] = [
        nn.Linear(inputs, settings.dim, bias=False),
        nn.BatchNorm1d(settings.dim),
        nn.ReLU(),
        nn.Linear(settings.dim, settings.dim, bias=settings.head == "paper"),
    ]
    nn.init.kaiming_normal_(layers[0].weight, nonlinearity="relu")  # type: ignore[arg-type]
    nn.init.xavier_normal_(layers[3].weight)  # type: ignore[arg-type]
    if settings.head == "released":
        layers += [nn.BatchNorm1d(settings.dim), nn.ReLU()]
    return nn.Sequential(*layers)
