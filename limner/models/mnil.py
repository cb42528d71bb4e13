"""MNiL's network: a CNN and a two-layer LSTM, each with a feature-map layer into one space.

Source: Zhang et al., "Multi-Networks Joint Learning for Large-Scale Cross-Modal Retrieval", MM 2017, sections 3.1 to
3.3, implementation section 4.1.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.image import BackboneSettings, build_backbone
from limner.models.lstm_encoder import LSTMEncoder, LSTMEncoderSettings
from limner.models.text_lstm import TextLSTM, TextLSTMSettings


class MNiLSettings(LSTMEncoderSettings):
    """The settings of MNiL's network: both encoders and their feature-map layers."""

    system: Literal["mnil"] = "mnil"
    """The published system."""
    backbone: BackboneSettings = BackboneSettings(name="resnet-50", weights="imagenet")
    """The image CNN (section 4.1: ResNet-50)."""
    text: TextLSTMSettings = TextLSTMSettings(words=20, layers=2, feature="mean")
    """The LSTM (section 4.1: two layers, 20 words on MSCOCO and 15 on Flickr30k)."""
    dim: int = Field(default=128, ge=1)
    """K, width of the embedding (released code: 128)."""
    projection: Literal["free", "orthonormal"] = "free"
    """Weights of the feature-map layers: free, or with orthonormal rows after each step (released code)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of a feature that is dropped in training before its feature-map layer (not in the paper)."""

    def identity(self) -> dict[str, Any]:
        """Without dropout, which changes no embedding of a trained network."""
        found = super().identity()
        del found["dropout"]
        return found


class MNiL(LSTMEncoder):
    """p = the feature map of the CNN's feature x, t = that of the mean y of the LSTM's word features.

    Our name = their symbol: `pool_images` = x and `text` = y, both L2-normalised before the feature-map layers (the
    released code normalises x, and each word's state in place of their mean); `embed_images` = p and `encode_texts` =
    t; `dim` = K.

    **Decided**: p and t are L2-normalised where they are compared, as everywhere in limner, so that the dot product f
    is at most 1, which section 3.2 rests its margins on. The released code makes the rows of a feature map orthonormal
    by a QR decomposition after each step, then divides by the Frobenius norm: f is then far below the margin of 0.3,
    and about every sample violates it. `projection="orthonormal"` is the decomposition alone, signs of rows kept.
    """

    settings: MNiLSettings

    def __init__(self, settings: MNiLSettings, vocabulary_size: int, *, load_weights: bool = True) -> None:
        backbone = build_backbone(settings.backbone, load_weights=load_weights)
        text = TextLSTM(settings.text, vocabulary_size, load_weights=load_weights)
        # weights are drawn in this order: another one gives every seed other weights
        maps = (
            FeatureMap(backbone.channels, settings.dim, settings.dropout),
            FeatureMap(text.channels, settings.dim, settings.dropout),
        )
        super().__init__(backbone, maps[0], text, maps[1], settings.dim)
        self.settings = settings
        # a tuple, which nn.Module does not register: both are its projections already
        self._maps = maps
        if settings.projection == "orthonormal":
            narrowest = min(backbone.channels, text.channels)
            # QR gives no more rows than there are columns, and would fail here with a message about shapes
            if settings.dim > narrowest:
                raise SettingsError(
                    f"setting 'model.projection': no {settings.dim} orthonormal rows of {narrowest} numbers; lower "
                    "model.dim"
                )
            # the first step starts from orthonormal rows too
            self.after_step()

    def after_step(self) -> None:
        """Make the feature maps orthonormal again, if the settings ask for it."""
        if self.settings.projection == "orthonormal":
            for feature_map in self._maps:
                feature_map.make_orthonormal()


class FeatureMap(nn.Module):
    """A linear layer on an L2-normalised feature."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        # a number and no module, as in `Pretrained`: a checkpoint's names stay as they are
        self.dropout = dropout
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch outputs"]:
        """Map features of any length."""
        mapped: Tensor = self.linear(F.dropout(F.normalize(x, dim=1), self.dropout, self.training))
        return mapped

    @torch.no_grad()
    def make_orthonormal(self) -> None:
        """Replace the rows of the weight by those of its QR decomposition with a positive diagonal."""
        q, r = torch.linalg.qr(self.linear.weight.T.double())
        # QR leaves the signs of rows open: LAPACK's would turn an axis of the space around between two steps
        self.linear.weight.copy_((q * torch.where(r.diagonal() < 0, -1.0, 1.0)).T)
