"""Which losses a stage learns from, and their weights, margins and temperatures."""

from typing import Literal

from pydantic import Field, model_validator

from limner.losses.ranking import Negatives
from limner.losses.sextuple import Direction
from limner.settings import Settings


class LossSettings(Settings):
    """The weighted sum of a stage's losses; a weight of 0 leaves its loss out.

    Equations are those of the dual-path paper, for CMCE of the identity-aware one, for sextuples of MNiL, for pairs,
    words and phrases of HGAN.
    """

    ranking: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """λ1, weight of the ranking loss (Eq. 4)."""
    visual: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """λ2, weight of the instance loss on images (Eq. 6)."""
    textual: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """λ3, weight of the instance loss on sentences (Eq. 8)."""
    joint: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the one loss on f_img + f_text (Eq. 11–12), an ablation."""
    margin: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """α of the ranking loss, in cosine similarity."""
    negatives: Negatives = "hardest"
    """"hardest" negative of each anchor, or the "sum" over all of them."""
    candidates: int = Field(default=0, ge=0)
    """Random candidates an anchor's extra hard negative is mined from; 0 = the batch alone (released code: 256)."""
    dropout: float = Field(default=0.75, ge=0, lt=1)
    """Dropout before the classifier (section 6.2: 0.75)."""
    scale: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """None = plain logits as in the paper; a number = cosine logits times it (a departure)."""
    smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing of the instance loss (paper: 0)."""
    cmce: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the cross-modal cross-entropy over feature buffers (Eq. 3)."""
    sigma_images: float = Field(default=0.04, gt=0, allow_inf_nan=False)
    """σ_v, temperature of a picture's probabilities (Eq. 1)."""
    sigma_texts: float = Field(default=0.04, gt=0, allow_inf_nan=False)
    """σ_s, temperature of a sentence's probabilities (Eq. 2)."""
    keep: float = Field(default=0.5, ge=0, lt=1)
    """Share of the old row when a feature buffer is updated (section 3.1.1: 0.5)."""
    refill: int = Field(default=0, ge=0)
    """Epochs after which the feature buffers are filled anew by the network as it stands; 0 = only before the first
    step, as in the paper."""
    renormalise: bool = False
    """Whether rows of the feature buffers are L2-normalised after each update (not in the paper)."""
    sextuple: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the sextuple loss with WARP's violators (Eq. 6)."""
    rho: float = Field(default=0.3, ge=0, allow_inf_nan=False)
    """ρ, margin between the modalities, in cosine similarity (Eq. 1 and 3)."""
    tau: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """τ, margin within a modality, in cosine similarity (Eq. 4–5)."""
    beta_images: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """β₁, weight of the term within the pictures (Eq. 6)."""
    beta_texts: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    """β₂, weight of the term within the sentences (Eq. 6)."""
    direction: Direction = "both"
    """Both directions of the sextuple loss, or only "image_to_text" or "text_to_image", the paper's variants."""
    relevant: Literal["class", "label"] = "class"
    """A sextuple's relevant samples share its class (see `Recipe.classes`), or at least one label."""
    bank: int = Field(default=4096, ge=1)
    """Pairs seen last that violators are drawn from; memory for their embeddings, however large the set."""
    pair: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the pair loss on whole pictures and sentences (Eq. 11); of L_ide, λ: `visual`, `textual`."""
    word: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the hinges over word similarities (Eq. 9)."""
    phrase: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the hinges over phrase similarities (Eq. 9)."""
    level_margin: float = Field(default=0.2, ge=0, le=1, allow_inf_nan=False)
    """Margin of both, whose similarities lie in 0 … 1 (the paper does not say)."""
    level_negatives: Negatives = "sum"
    """The negatives of an anchor in both: all of the batch as in Eq. 9, or the "hardest" one."""

    @model_validator(mode="after")
    def _some_loss(self) -> "LossSettings":
        if not (self.ranking or self.cmce or self.sextuple or self.pair or self.local or self.classifies):
            raise ValueError(
                "all loss weights are 0; give at least one of ranking, visual, textual, joint, cmce, sextuple, pair, "
                "word, phrase"
            )
        if self.sextuple and self.ranking and self.candidates:
            raise ValueError(
                "a stage mines either candidates for the ranking loss or violators for sextuples"
            )
        return self

    @property
    def classifies(self) -> bool:
        """Whether the shared classifier takes part."""
        return bool(self.visual or self.textual or self.joint)

    @property
    def local(self) -> bool:
        """Whether words or phrases take part."""
        return bool(self.word or self.phrase)
