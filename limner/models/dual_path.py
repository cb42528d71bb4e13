"""The dual-path network: an image CNN and a text CNN that meet in one space.

Source: dual-path TOMM 2020, section 3 and Figure 2. Where the authors' released MATLAB differs from the text, the
text is the default and the release is a named variant (`head="released"`, `text.text_blocks="released"`).
"""

from typing import Literal

from pydantic import Field
from torch import nn

from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.image import BackboneSettings, build_backbone
from limner.models.text_cnn import TextCNN, TextCNNSettings

Head = Literal["paper", "released", "linear"]


class DualPathSettings(DualEncoderSettings):
    """The settings of the dual-path network: both encoders and their heads."""

    system: Literal["dual-path"] = "dual-path"
    """The published system."""
    backbone: BackboneSettings = BackboneSettings(name="resnet-50", weights="imagenet")
    """The image CNN before the head."""
    text: TextCNNSettings = TextCNNSettings()
    """The text CNN below the head."""
    dim: int = Field(default=2048, ge=1)
    """Width of both fully connected layers and of the embedding."""
    head: Head = "paper"
    """"paper": FC, BN, ReLU, FC; "released": a further BN and ReLU behind; "linear": one FC (not in the paper)."""


class DualPath(DualEncoder):
    """`f_img = F_img(I)` and `f_text = F_text(T)` (Eq. 1 and 3).

    Our name = their symbol: `embed_images` = F_img above the pooled feature, `encode_texts` = F_text, `dim` = 2048.

    The dropout before the classifier belongs to `limner.losses.InstanceLoss`, since the features that are
    ranked and searched go without it. `load_weights=False` leaves the backbone random, for a checkpoint to fill.
    """

    def __init__(
        self, settings: DualPathSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        # the order of these lines is the order of the random draws: another order gives every seed other weights
        backbone = build_backbone(settings.backbone, load_weights=load_weights)
        image_projection = _head(backbone.channels, settings)
        text = TextCNN(settings.text, vocabulary_size)
        super().__init__(backbone, image_projection, text, _head(text.channels, settings), settings.dim)
        self.settings = settings


def _head(inputs: int, settings: DualPathSettings) -> nn.Sequential:
    """FC, BN, ReLU, FC (section 3.1); He initialisation as the paper's convolutions have it."""
    if settings.head == "linear":
        return nn.Sequential(nn.Linear(inputs, settings.dim))
    layers: list[nn.Module] = [
        # the batch norm behind it subtracts any bias again
        nn.Linear(inputs, settings.dim, bias=False),
        nn.BatchNorm1d(settings.dim),
        nn.ReLU(),
        nn.Linear(settings.dim, settings.dim, bias=settings.head == "paper"),
    ]
    nn.init.kaiming_normal_(layers[0].weight, nonlinearity="relu")  # type: ignore[arg-type]
    # the paper does not say; He's factor of 2 is for a ReLU behind the layer, and none follows the last one
    nn.init.xavier_normal_(layers[3].weight)  # type: ignore[arg-type]
    # f is taken behind these, so cosines of the released head lie in 0 … 1
    if settings.head == "released":
        layers += [nn.BatchNorm1d(settings.dim), nn.ReLU()]
    return nn.Sequential(*layers)
