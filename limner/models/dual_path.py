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
    """"paper": FC, BN, ReLU, FC; "released": FC, BN, ReLU twice above the image CNN and once above the text CNN;
    "linear": one FC (not in the paper)."""


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
        image_projection = _head(backbone.channels, settings.dim, settings.head)
        text = TextCNN(settings.text, vocabulary_size)
        # resnet52_new_hope_word2_pool.m, coco_word2_pool.m and cuhk_word2_pool.m have fc1 and fc1_1 above the
        # image CNN, and fc5_2 alone above the text CNN
        of_text = "released-once" if settings.head == "released" else settings.head
        super().__init__(
            backbone, image_projection, text, _head(text.channels, settings.dim, of_text), settings.dim
        )
        self.settings = settings


def _head(inputs: int, dim: int, kind: str) -> nn.Sequential:
    """FC, BN, ReLU, FC (section 3.1); He initialisation as the paper's convolutions have it."""
    if kind == "linear":
        return nn.Sequential(nn.Linear(inputs, dim))
    layers: list[nn.Module] = [
        # the batch norm behind it subtracts any bias again
        nn.Linear(inputs, dim, bias=False),
        nn.BatchNorm1d(dim),
        nn.ReLU(),
    ]
    if kind != "released-once":
        layers.append(nn.Linear(dim, dim, bias=kind == "paper"))
    # after all layers are made: their making draws, too, and another order gives every seed other weights
    nn.init.kaiming_normal_(layers[0].weight, nonlinearity="relu")  # type: ignore[arg-type]
    if kind == "released-once":
        return nn.Sequential(*layers)
    # the paper does not say; He's factor of 2 is for a ReLU behind the layer, and none follows the last one
    nn.init.xavier_normal_(layers[3].weight)  # type: ignore[arg-type]
    # f is taken behind these, so cosines of the released head lie in 0 … 1
    if kind == "released":
        layers += [nn.BatchNorm1d(dim), nn.ReLU()]
    return nn.Sequential(*layers)
