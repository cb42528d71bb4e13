"""The network of a second stage: a picture and a sentence read together, to how sure it is that they belong together.

Source: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 3.2, Figure 3.
"""

import copy

from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.backbones import ImageEncoder
from limner.models.co_attention import CoAttention, CoAttentionSettings, Match
from limner.models.parts import Parted
from limner.models.text_lstm import TextLSTM


class Matcher(Parted):
    """A CNN up to its last map, a word LSTM, and the co-attention above both.

    Our name = their symbol: `regions` = I, the CNN's map cut into its places; `encode_words` = H.

    CNN and LSTM are copies of the embedding's as they are when the matcher is made, which is how stage 2 "starts from
    stage 1" (section 4.2); from then on they learn apart, since stage 1 goes on screening. Layers behind the last
    map are not copied. Raises `SettingsError` for an embedding whose text path is no LSTM.
    """

    def __init__(self, settings: CoAttentionSettings, backbone: ImageEncoder, text: nn.Module) -> None:
        super().__init__()
        if not isinstance(text, TextLSTM):
            raise SettingsError(
                "a matcher reads the words' states of an LSTM; set model.system=identity-aware"
            )
        self.settings = settings
        self.backbone = copy.deepcopy(backbone).set_frozen(False).requires_grad_(True).drop_head()
        self.text = copy.deepcopy(text).requires_grad_(True)
        self.co_attention = CoAttention(settings, backbone.map_channels, text.channels)

    def map_pictures(self, pictures: Tensor) -> Float[Tensor, "batch channels height width"]:
        """The last map of pixels, or of what the feature cache keeps of them.

        That is uint8 (batch, 3, height, width), or a map with channels last: for the layer `backbone.learns_from`, the
        last one where the backbone does not learn.
        """
        if not pictures.is_floating_point():
            found: Tensor = self.backbone.forward_map(pictures)
            return found
        cached = pictures.permute(0, 3, 1, 2).float()
        if self.backbone.learns_from is None:
            return cached
        return self.backbone.map_from(cached, self.backbone.learns_from)

    def encode_words(
        self, numbers: Int64[Tensor, "batch words"]
    ) -> tuple[Float[Tensor, "batch words word_dim"], Bool[Tensor, "batch words"]]:
        """The LSTM's state at each word, and which positions are before the sentence's end."""
        return self.text.encode_words(numbers)

    def forward(self, pictures: Tensor, numbers: Int64[Tensor, "batch words"]) -> Match:
        """Match row i of the pictures (as `map_pictures` takes them) with row i of the sentences."""
        return self.co_attention(regions(self.map_pictures(pictures)), *self.encode_words(numbers))  # type: ignore[no-any-return]

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """CNN, word table, LSTM and co-attention."""
        above = [module for module in self.text.children() if module is not self.text.table]
        return {
            "backbone": [self.backbone],
            "words": [self.text.table],
            "text": above,
            "co_attention": [self.co_attention],
        }


def regions(
    feature_map: Float[Tensor, "batch channels height width"],
) -> Float[Tensor, "batch regions channels"]:
    """The places of a map as regions, row by row."""
    return feature_map.flatten(2).transpose(1, 2)
