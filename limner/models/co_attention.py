"""The identity-aware system's stage-2 network: does this sentence describe this picture?

Source: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 3.2, Figure 3.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor, nn

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
        """The names of the parts of the network that it is in, with copies of the embedding's CNN and LSTM."""
        return frozenset({"backbone", "words", "text", "co_attention"})

    @model_validator(mode="after")
    def _semantic_needs_spatial(self) -> "CoAttentionSettings":
        if self.semantic and not self.spatial:
            raise ValueError(
                "spatial=false is an ablation of the network without semantic attention; set both"
            )
        return self


@dataclass(frozen=True)
class Match:
    """What the network says of pairs of a picture and a sentence.

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
            self.region_layer = nn.Linear(region_dim, settings.spatial_dim, bias=False)
            self.word_layer = nn.Linear(word_dim, settings.spatial_dim)
            self.spatial_score = nn.Linear(settings.spatial_dim, 1)
        if settings.semantic:
            self.semantic_words = nn.Linear(joint, settings.semantic_dim)
            self.semantic_state = nn.Linear(settings.dim, settings.semantic_dim, bias=False)
            self.semantic_score = nn.Linear(settings.semantic_dim, 1)
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
    ) -> Match:
        """Match row i of `regions` with row i of `words`; `present` is False behind the end of a sentence.

        Every sentence needs at least one position that is present.
        """
        joint, of_regions = self._joint(regions, words)
        if self.settings.semantic:
            features, of_words = self._decoded(joint, present)
        else:
            features, of_words = self.layers(self._pooled(joint, present)), None
        # bf16 has 128 values between 2 and 4: candidates of a query would tie
        with torch.autocast(features.device.type, enabled=False):
            logits = self.confidence(features.to(self.confidence.weight.dtype)).squeeze(1)
        return Match(logits, of_regions, of_words)

    def _joint(self, regions: Tensor, words: Tensor) -> tuple[Tensor, Tensor | None]:
        """x_t = [ĩ_t, h_t] for each word, and the attention that made ĩ_t (Eq. 6–8)."""
        if not self.settings.spatial:
            seen = regions.mean(dim=1, keepdim=True).expand(-1, words.shape[1], -1)
            return torch.cat([seen, words], dim=2), None
        meeting = torch.tanh(self.region_layer(regions)[:, None] + self.word_layer(words)[:, :, None])
        attention = self.spatial_score(meeting).squeeze(3).float().softmax(dim=2)
        return torch.cat([attention.to(regions.dtype) @ regions, words], dim=2), attention

    def _decoded(self, joint: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's last state, and each step's attention over the words (Eq. 9–11)."""
        of_joint = self.semantic_words(joint)
        state = joint.new_zeros(len(joint), self.settings.dim)
        memory = torch.zeros_like(state)
        attentions = []
        for _ in range(self.settings.steps):
            scores = self.semantic_score(torch.tanh(of_joint + self.semantic_state(state)[:, None])).squeeze(
                2
            )
            attention = scores.float().masked_fill(~present, -torch.inf).softmax(dim=1)
            aligned = (attention.to(joint.dtype)[:, None] @ joint).squeeze(1)
            state, memory = self.decoder(self.layers(aligned), (state, memory))
            attentions.append(attention)
        return state, torch.stack(attentions, dim=1)

    def _pooled(self, joint: Tensor, present: Tensor) -> Tensor:
        """One feature a pair without semantic attention."""
        if self.settings.spatial:
            weights = F.normalize(present.to(joint.dtype), p=1.0, dim=1)
            return (weights[:, None] @ joint).squeeze(1)
        last = present.long().cumsum(1).argmax(1)
        return joint[torch.arange(len(joint), device=joint.device), last]
