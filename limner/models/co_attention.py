"""The identity-aware system's stage-2 network: co-attention between words and regions, and the cross-encoder with it.

Source: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 3.2, Figure 3.
"""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.image import ImageEncoder
from limner.models.text_encoder import PartedNetwork, TextEncoder
from limner.settings import Settings


class CoAttentionSettings(Settings):
    """The network above region features and word features."""

    steps: int = Field(default=5, ge=1)
    """M, steps of the decoder LSTM (section 4.2: 5)."""
    spatial_dim: int = Field(default=256, ge=1)
    """K, width in which words meet regions (Eq. 6; the paper does not say)."""
    semantic_dim: int = Field(default=256, ge=1)
    """Width between the two layers of the importance function f (Eq. 9; the paper does not say)."""
    dim: int = Field(default=512, ge=1)
    """Width of the two fully connected layers and of the decoder's state (the paper does not say)."""
    spatial: bool = True
    """Spatial attention; off: every word meets the mean of the regions ("w/o SPA")."""
    semantic: bool = True
    """Latent semantic attention and its decoder; off: see `CoAttention` ("w/o SMA")."""

    def parts(self) -> frozenset[str]:
        """The names of the parts of the network that it is in, with copies of the embedding's encoders."""
        return frozenset({"backbone", "words", "text", "co_attention"})

    @model_validator(mode="after")
    def _semantic_needs_spatial(self) -> "CoAttentionSettings":
        # Table 2 removes semantic attention first, and spatial attention on top of that; never the reverse
        if self.semantic and not self.spatial:
            raise ValueError(
                "spatial=false is an ablation of the network without semantic attention; set both"
            )
        return self


@dataclass(frozen=True)
class PairMatch:
    """The network's answer for pairs of an image and a sentence.

    - `logits`: the matching confidence C before its sigmoid.
    - `of_regions`: a_{t,k}, each word's attention over the regions; None without spatial attention.
    - `of_words`: a'_{m,t}, each step's attention over the words, 0 behind a sentence's end; None without semantic
      attention.
    """

    logits: Float[Tensor, " batch"]
    of_regions: Float[Tensor, "batch words regions"] | None
    of_words: Float[Tensor, "batch steps words"] | None


class CoAttention(nn.Module):
    """Word features and region features to a matching confidence.

    Our name = their symbol: `regions` = I = i_1 … i_L, `words` = H = h_1 … h_T; `region_layer` = W_I, `word_layer` =
    W_H and b_H, `spatial_score` = W_P and b_P (Eq. 6); `of_regions` = a (Eq. 7), `of_words` = a' (Eq. 10);
    `semantic_words`, `semantic_state` and `semantic_score` = f (Eq. 9); `steps` = M; σ(`logits`) = C (Eq. 12).

    Eq. 7 is a softmax over the regions (its denominator is misprinted). Softmax over words leaves empty positions out.

    **Decided**: f is two 1×1 convolutions over the words with tanh between, of [c_{m−1}, x_t]; the two fully
    connected layers before the decoder have ReLUs, the decoder starts at zero, and one linear layer reads the
    confidence off its last state. Without semantic attention (section 4.4 only says "removed"): the mean of x_t over
    the words takes the place of its weighted sums, and the two layers and the linear one follow without a decoder.
    Without both: the mean region and the last word's state, as the paper's "simple concatenation".
    """

    def __init__(self, settings: CoAttentionSettings, region_dim: int, word_dim: int) -> None:
        super().__init__()
        self.settings = settings
        joint = region_dim + word_dim
        if settings.spatial:
            # Eq. 6 has one bias inside the tanh, b_H; a second one here would only be added to it
            self.region_layer = nn.Linear(region_dim, settings.spatial_dim, bias=False)
            self.word_layer = nn.Linear(word_dim, settings.spatial_dim)
            self.spatial_score = nn.Linear(settings.spatial_dim, 1)
        if settings.semantic:
            # the first layer of f on [c_{m−1}, x_t] in two halves: the words'
            # half is computed once for all steps, and the one bias is in it
            self.semantic_words = nn.Linear(joint, settings.semantic_dim)
            self.semantic_state = nn.Linear(settings.dim, settings.semantic_dim, bias=False)
            self.semantic_score = nn.Linear(settings.semantic_dim, 1)
            # a cell and not nn.LSTM, since what enters a step depends on the state after the step before
            self.decoder = nn.LSTMCell(settings.dim, settings.dim)
        self.layers = nn.Sequential(
            nn.Linear(joint, settings.dim), nn.ReLU(), nn.Linear(settings.dim, settings.dim), nn.ReLU()
        )
        self.confidence = nn.Linear(settings.dim, 1)

    def forward(
        self,
        regions: Float[Tensor, "batch regions region_dim"],
        words: Float[Tensor, "batch words word_dim"],
        present: Bool[Tensor, "batch words"],
    ) -> PairMatch:
        """Match row i of `regions` with row i of `words`; `present` is False behind the end of a sentence.

        Every sentence needs at least one position that is present.
        """
        joint, of_regions = self._joint(regions, words)
        if self.settings.semantic:
            features, of_words = self._decoded(joint, present)
        else:
            features, of_words = self.layers(self._pooled(joint, present)), None
        # bf16 has 128 values between 2 and 4: candidates of a query would tie
        # and ties count against the model: in fp32 two checkpoints went from R@1 26.0 to 27.0 and from 23.8 to 24.3
        with torch.autocast(features.device.type, enabled=False):
            logits = self.confidence(features.to(self.confidence.weight.dtype)).squeeze(1)
        return PairMatch(logits, of_regions, of_words)

    def _joint(self, regions: Tensor, words: Tensor) -> tuple[Tensor, Tensor | None]:
        """x_t = [ĩ_t, h_t] for each word, and the attention that made ĩ_t (Eq. 6–8)."""
        if not self.settings.spatial:
            seen = regions.mean(dim=1, keepdim=True).expand(-1, words.shape[1], -1)
            return torch.cat([seen, words], dim=2), None
        # both halves are computed once a region and once a word; only sum and tanh are done for every pair
        meeting = torch.tanh(self.region_layer(regions)[:, None] + self.word_layer(words)[:, :, None])
        # float32: a row of weights sums to 1 wherever it is shown, which the eight bits of bf16 cannot promise
        attention = self.spatial_score(meeting).squeeze(3).float().softmax(dim=2)
        return torch.cat([attention.to(regions.dtype) @ regions, words], dim=2), attention

    def _decoded(self, joint: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's last state, and each step's attention over the words (Eq. 9–11)."""
        of_joint = self.semantic_words(joint)
        state = joint.new_zeros(joint.shape[0], self.settings.dim)
        memory = torch.zeros_like(state)
        attentions = []
        for _ in range(self.settings.steps):
            # Eq. 9 calls it c_{m−1}, as LSTM papers call the cell, but
            # its text says the hidden state; so that is what enters f
            scores = self.semantic_score(torch.tanh(of_joint + self.semantic_state(state)[:, None])).squeeze(
                2
            )
            # a row of −∞ alone would be NaN: `text_lstm.lengths` counts at least one position in every sentence
            attention = scores.float().masked_fill(~present, -torch.inf).softmax(dim=1)
            aligned = (attention.to(joint.dtype)[:, None] @ joint).squeeze(1)
            state, memory = self.decoder(self.layers(aligned), (state, memory))
            attentions.append(attention)
        return state, torch.stack(attentions, dim=1)

    def _pooled(self, joint: Tensor, present: Tensor) -> Tensor:
        """One feature a pair without semantic attention."""
        if self.settings.spatial:
            # zeros and ones of L1 norm 1 take the mean over the words;
            # F.normalize's epsilon keeps a row of zeros from being NaN
            weights = F.normalize(present.to(joint.dtype), p=1.0, dim=1)
            return (weights[:, None] @ joint).squeeze(1)
        # argmax gives the first of equal maxima, which the running count reaches at the last position that is present
        last = present.long().cumsum(1).argmax(1)
        return joint[torch.arange(joint.shape[0], device=joint.device), last]


class CrossEncoder(PartedNetwork):
    """An image encoder up to its last map, a text encoder's states of words, and the co-attention above both.

    Our name = their symbol: `regions` = I, the map cut into its places; `encode_words` = H.

    Both encoders start as copies of the dual encoder's, which is how stage 2 "starts from stage 1" (section 4.2). From
    then on they learn apart, since stage 1 goes on screening. What a CNN has behind the last map is not copied. Raises
    `SettingsError` for a text encoder without states of words.

    A departure, where it stands above a text tower of transformers: H are the states of the tower's tokens and not of
    an LSTM's words, and the tokens of special meaning are among them.
    """

    reranker = "co-attention"
    """The kind of reranker that uses it; see `DualEncoder.reranked_by`."""

    def __init__(self, settings: CoAttentionSettings, backbone: ImageEncoder, text: TextEncoder) -> None:
        super().__init__()
        if text.state_channels is None:
            raise SettingsError(
                "a cross-encoder reads the states of words, of an LSTM or a text tower; set "
                "model.system=identity-aware or pretrained"
            )
        self.settings = settings
        # the embedding may have been held fixed; a VGG's fc6 and fc7, nine tenths of its weights, are never read here
        self.backbone = copy.deepcopy(backbone).set_frozen(False).requires_grad_(True).drop_head()
        self.text = copy.deepcopy(text).requires_grad_(True)
        self.co_attention = CoAttention(settings, backbone.map_channels, text.state_channels)

    def map_pictures(self, pictures: Tensor) -> Float[Tensor, "batch channels height width"]:
        """The last map of pixels, or of their cached features, as `ImageEncoder.read_map`."""
        return self.backbone.read_map(pictures)

    def encode_words(
        self, numbers: Int64[Tensor, "batch words"]
    ) -> tuple[Float[Tensor, "batch words word_dim"], Bool[Tensor, "batch words"]]:
        """The text encoder's state at each token, and which positions are before the sentence's end."""
        return self.text.encode_words(numbers)

    def forward(self, pictures: Tensor, numbers: Int64[Tensor, "batch words"]) -> PairMatch:
        """Match row i of the pictures (as `map_pictures` takes them) with row i of the sentences."""
        return self.co_attention(regions(self.map_pictures(pictures)), *self.encode_words(numbers))  # type: ignore[no-any-return]

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """The image encoder, the word table, what is above it, and the co-attention."""
        return {
            "backbone": [self.backbone],
            # the word table is a part of its own: it may start from given
            # vectors, and the released dual-path code scales its rate by 1e-3
            "words": [self.text.table],
            "text": self.text.above_table(),
            "co_attention": [self.co_attention],
        }


def regions(
    feature_map: Float[Tensor, "batch channels height width"],
) -> Float[Tensor, "batch regions channels"]:
    """The places of a map as regions, row by row."""
    return feature_map.flatten(2).transpose(1, 2)
