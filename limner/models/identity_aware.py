"""The identity-aware system's stage-1 network: a CNN and an LSTM that meet in one space.

Source: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 3.1 and
Figure 2, implementation section 4.2.
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from limner.models.dual_encoder import DualEncoderSettings
from limner.models.image import BackboneSettings, build_backbone
from limner.models.lstm_encoder import LSTMEncoder, LSTMEncoderSettings
from limner.models.text_lstm import TextLSTM, TextLSTMSettings


class IdentityAwareSettings(LSTMEncoderSettings):
    """The settings of the identity-aware network of stage 1: both encoders and the embedding."""

    system: Literal["identity-aware"] = "identity-aware"
    """The published system."""
    backbone: BackboneSettings = BackboneSettings(name="vgg-16", weights="imagenet")
    """The image CNN: the paper has VGG-16 up to drop7 for persons, GoogLeNet up to its pool for birds and flowers."""
    text: TextLSTMSettings = TextLSTMSettings()
    """The LSTM."""
    dim: int = Field(default=512, ge=1)
    """Width of the embedding (section 4.2: 512)."""

    # a cross-encoder reads the states of its LSTM
    offers: ClassVar[frozenset[str]] = DualEncoderSettings.offers | {"states"}

    def check_cross_encoder(self) -> None:
        """It starts from a table of word vectors, and learns it."""
        if self.text.bert is not None:
            raise ValueError(
                "a cross-encoder of this system reads a table of word vectors; set model.text.bert=null, or leave the "
                "stages with `reranker_pairs` out"
            )


class IdentityAware(LSTMEncoder):
    """v = the CNN's feature and s = the LSTM's last hidden state, each through a linear layer.

    Our name = their symbol: `embed_images` = v and `encode_texts` = s, before they are L2-normalised; `dim` = D.

    **Decided**: the picture's feature gets a linear layer too, since D is 512 and the CNN's is wider.
    """

    def __init__(
        self, settings: IdentityAwareSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        backbone = build_backbone(settings.backbone, load_weights=load_weights)
        text = TextLSTM(settings.text, vocabulary_size, load_weights=load_weights)
        # lengths are left as they are: CMCELoss normalises what it
        # reads, and the pair loss takes them for its temperature
        super().__init__(
            backbone,
            nn.Linear(backbone.channels, settings.dim),
            text,
            nn.Linear(text.channels, settings.dim),
            settings.dim,
        )
        self.settings = settings
