"""What a training run can be told: stages, optimiser and schedule, and the whole recipe."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from limner.data.transforms import ImageSettings
from limner.models.co_attention import CoAttentionSettings
from limner.models.dual_path import DualPathSettings
from limner.models.hgan import HGANSettings
from limner.models.identity_aware import IdentityAwareSettings
from limner.models.registry import ModelSettings
from limner.settings import Settings
from limner.training.loss_settings import LossSettings

Part = Literal[
    "backbone",
    "image_projection",
    "words",
    "bert",
    "text",
    "text_projection",
    "local",
    "classifier",
    "co_attention",
]
_OF_EMBEDDING = {"backbone", "image_projection", "words", "text", "text_projection"}
_OF_HGAN = {"bert", "local"}
_OF_MATCHER = {"backbone", "words", "text", "co_attention"}
Selection = Literal["rsum", "text_to_image R@1", "image_to_text R@1", "text_to_image mAP", "mAP"]


class OptimiserSettings(Settings):
    """One optimiser for all parts that learn, with a rate multiplier for each."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    """"sgd" with momentum as the paper, "adam" as HGAN, or "adamw", whose weight decay stays out of the moments."""
    rate: float = Field(default=0.001, gt=0, allow_inf_nan=False)
    """Base learning rate (section 6.2: 0.001)."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of SGD; first moment of Adam and AdamW."""
    nesterov: bool = False
    """Nesterov momentum (released code)."""
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """L2 weight decay on matrices; vectors (biases, batch norm) go without."""
    multipliers: dict[Part, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Factor on the rate of single parts, e.g. {"words": 0.001}."""
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Largest norm of the whole gradient; None = unclipped."""

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> "OptimiserSettings":
        if self.nesterov and (self.name != "sgd" or not self.momentum):
            raise ValueError("nesterov needs name=sgd and a momentum above 0")
        return self


class ScheduleSettings(Settings):
    """How the rate goes over a stage; a pure function of the epoch's fraction, so that resuming needs no state."""

    kind: Literal["constant", "steps", "cosine"] = "constant"
    """Constant; multiplied by 0.1 at each of `drops`; or a half cosine down to 0."""
    drops: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Epochs (from 0) at which "steps" multiplies the rate by 0.1."""
    warmup: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Epochs over which the rate rises linearly from 0."""


class PairSettings(Settings):
    """The pairs of a picture and a sentence that a matching stage learns to tell (identity-aware, section 4.2).

    A pair is right where picture and sentence are of one class (see `Recipe.classes`).
    """

    drawn: Literal["nearest", "random"] = "nearest"
    """Each picture and each sentence with its nearest of the other modality by the embedding; or with as many at
    random, half of them of its own class ("w/o stage 1")."""
    count: int = Field(default=20, ge=1)
    """How many (section 4.2: 20)."""
    an_epoch: int | None = Field(default=None, ge=1)
    """How many of them an epoch takes, drawn anew each time; None = all."""
    own: int = Field(default=0, ge=0)
    """How many pairs with a sample of its own class each sample has beside them in an epoch (not in the paper); for an
    embedding that does not find its own training pairs, so that hardly a right one is among the nearest."""
    refresh: int = Field(default=0, ge=0)
    """Epochs after which the nearest are found anew, by other views of the pictures; 0 = found once, by whole ones
    (the paper says nothing of it)."""

    @model_validator(mode="after")
    def _no_more_than_there_are(self) -> "PairSettings":
        if self.an_epoch is not None and self.an_epoch > self.count:
            raise ValueError(f"an_epoch={self.an_epoch} is more than the count={self.count} of pairs")
        return self


class StageSettings(Settings):
    """One stage of training: of the embedding, or, with `matching`, of the matcher that re-ranks what it finds."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Name of the stage, of its checkpoint file and of its rows in metrics.jsonl."""
    epochs: int = Field(default=60, ge=1)
    """Most epochs; one shows every training picture once (see `sentences`), or a matching stage's pairs, but for what
    does not fill a batch."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many validations without a better one; None = run all epochs."""
    batch: int = Field(default=32, ge=2)
    """Pairs of a picture and a sentence in one step, over all processes."""
    sentences: Literal["one", "all"] = "one"
    """An epoch takes one random sentence a picture, or every sentence once."""
    pairing: Literal["image", "group"] = "image"
    """A picture is paired with a sentence of its own, or of any picture of its identity (released code, CUHK-PEDES)."""
    position_shift: bool = True
    """Random padding before and after a sentence; False = left alignment (Table 7)."""
    frozen: tuple[Part, ...] = ()
    """Parts that do not learn; their batch norm stays in eval mode."""
    backbone_from: str | None = None
    """First layer of the backbone that learns, e.g. "features.15" (torchvision's names); None = every layer."""
    backbone_statistics: Literal["batch", "fixed"] = "batch"
    """Batch norm of a learning backbone: of the batch, or fixed as loaded (for weights that come with it folded)."""
    views: int = Field(default=10, ge=0)
    """Cached views of each picture (crops, flips) where the backbone is frozen, also in part; 0 = new every epoch, and
    nothing cached of sentences where BERT is frozen."""
    losses: LossSettings = LossSettings()
    """The losses and their weights; a matching stage has binary cross-entropy alone (identity-aware, Eq. 12)."""
    matching: PairSettings | None = None
    """The pairs that the matcher learns; None = the stage learns the embedding. `sentences`, `pairing` and
    `position_shift` do not concern a matching stage."""
    optimiser: OptimiserSettings = OptimiserSettings()
    """The optimiser."""
    part_optimisers: dict[Part, OptimiserSettings] = Field(default_factory=dict)
    """Parts with an optimiser of their own, e.g. {"backbone": {"name": "sgd"}}; all follow the one schedule."""
    schedule: ScheduleSettings = ScheduleSettings()
    """The learning rate over the stage."""
    validate_every: int = Field(default=1, ge=1)
    """Epochs between two validations; the last epoch always ends with one."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "StageSettings":
        there = _OF_EMBEDDING | _OF_HGAN | {"classifier"} if self.matching is None else _OF_MATCHER
        optimisers = (self.optimiser, *self.part_optimisers.values())
        named = {
            "frozen": set(self.frozen),
            "part_optimisers": set(self.part_optimisers),
            "multipliers": {part for optimiser in optimisers for part in optimiser.multipliers},
        }
        for where, parts in named.items():
            if others := parts - there:
                kind = "the embedding" if self.matching is None else "a matcher"
                raise ValueError(f"{where}: a stage of {kind} has no part '{min(others)}'")
        needless = {"bert"} | (set() if self.classifies else {"classifier"})
        needless |= set() if self.matching is None and self.losses.local else {"local"}
        if not there - set(self.frozen) - needless:
            raise ValueError("every part that the losses reach is frozen; nothing is left to learn")
        if "backbone" in self.frozen and self.backbone_from is not None:
            raise ValueError("frozen holds the whole backbone, backbone_from a part of it; give one of them")
        if self.sentences == "all" and self.pairing == "group":
            raise ValueError(
                "pairing=group draws a sentence for each picture; with sentences=all there is none to draw"
            )
        return self

    @property
    def classifies(self) -> bool:
        """Whether the shared classifier takes part."""
        return self.matching is None and self.losses.classifies

    @property
    def compares(self) -> bool:
        """Whether CMCE's feature buffers take part."""
        return self.matching is None and bool(self.losses.cmce)

    @property
    def remembers(self) -> bool:
        """Whether features of a step are kept for later ones."""
        return self.matching is None and bool(self.losses.cmce or self.losses.sextuple)

    @property
    def by_label(self) -> bool:
        """Whether it learns from shared labels."""
        return self.matching is None and bool(self.losses.sextuple) and self.losses.relevant == "label"


class VocabularySettings(Settings):
    """Which words are known and what their vectors start from."""

    min_count: int = Field(default=1, ge=1)
    """Words seen less often in the training sentences are dropped."""
    vectors: str = "random"
    """"random", "captions" (learnt from the training captions), or a word2vec/GloVe file."""
    tokenizer: str | None = None
    """A pretrained sub-word tokenizer in place of the captions' words: a folder with tokenizer.json, or a name on the
    Hugging Face hub. Its tokens' vectors start at random."""
    special_tokens: bool = False
    """Put the pretrained tokenizer's special tokens, such as [CLS], around each sentence."""

    @model_validator(mode="after")
    def _of_words_or_of_a_tokenizer(self) -> "VocabularySettings":
        if self.tokenizer is None and self.special_tokens:
            raise ValueError("special_tokens are those of a pretrained tokenizer; set vocabulary.tokenizer")
        if self.tokenizer is not None and (self.min_count > 1 or self.vectors != "random"):
            raise ValueError(
                "min_count and vectors are of the captions' words, whose place tokenizer takes; set min_count=1 and "
                "vectors=random"
            )
        return self


class Recipe(Settings):
    """A whole configuration: what `limner train` runs and a checkpoint records."""

    name: str
    """Name of the recipe."""
    model: ModelSettings = DualPathSettings()
    """The network; its `system` says which published one."""
    images: ImageSettings = ImageSettings()
    """How pictures are resized, cropped and flipped."""
    vocabulary: VocabularySettings = VocabularySettings()
    """The words."""
    classes: Annotated[int, Field(ge=2)] | Literal["images"] | None = None
    """None = each group a class; "images" = each picture with its sentences, whoever is on it ("w/o ID"); a number = so
    many k-means pseudo-classes of pooled features (dual-path, Table 5)."""
    classifier_bias: bool = False
    """A bias in the shared classifier (released code, CUHK-PEDES and Flickr30k)."""
    classifier_start: Literal["random", "images"] = "random"
    """Rows of the classifier start at random, or at the mean image embedding of their group (a departure)."""
    matcher: CoAttentionSettings | None = None
    """The network of matching stages, which re-ranks what the embedding finds."""
    rerank: Annotated[int, Field(ge=0)] | Literal["all"] = 20
    """How many of the first are re-ranked at testing by a matcher (identity-aware, section 4.2: 20), or by HGAN's words
    and phrases; or "all"; 0 = none."""
    stages: tuple[StageSettings, ...] = Field(min_length=1)
    """The stages, each starting from the best weights of the one before; those of the embedding come first."""
    select: Selection = "rsum"
    """What the validation split chooses the checkpoint by; "rsum" = R@1 + R@5 + R@10 of both directions, "mAP" = the
    mean of theirs. Where a stage learns from labels, matches on validation are by labels too."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the forward pass; "auto" = bf16 where the processor multiplies it natively."""
    seed: int = Field(default=0, ge=0)
    """Seed of everything random."""

    @model_validator(mode="before")
    @classmethod
    def _system_is_the_models(cls, values: Any) -> Any:
        """Recipes of earlier versions named their system, of which there was one, beside the model."""
        if isinstance(values, dict) and values.get("system") == "dual-path":
            return {name: value for name, value in values.items() if name != "system"}
        return values

    @model_validator(mode="after")
    def _names_differ(self) -> "Recipe":
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names):
            raise ValueError(f"stage names must differ, got {names}")
        for name in names:
            if name == "last" or name.endswith("-classifier"):
                raise ValueError(f"stage name '{name}' is that of another file of a run; choose another")
        return self

    @model_validator(mode="after")
    def _levels_fit(self) -> "Recipe":
        hgan = isinstance(self.model, HGANSettings)
        for stage in self.stages:
            if stage.matching is not None:
                continue
            named = {*stage.frozen, *stage.part_optimisers}
            for optimiser in (stage.optimiser, *stage.part_optimisers.values()):
                named |= set(optimiser.multipliers)
            if not hgan and (others := named & _OF_HGAN):
                raise ValueError(f"stage '{stage.name}': only model.system=hgan has a part '{min(others)}'")
            if not hgan and stage.losses.local:
                raise ValueError(f"stage '{stage.name}': losses of words and phrases need model.system=hgan")
            if isinstance(self.model, HGANSettings):
                if self.model.text.bert is not None and self.vocabulary.vectors != "random":
                    raise ValueError(
                        "vocabulary.vectors starts a table of word vectors, and BERT has its own; set it to random"
                    )
                there = {"words"} if self.model.text.bert is None else {"bert"}
                there |= {"local"} if self.model.levels else set()
                for part in ("words", *sorted(_OF_HGAN)):
                    if part not in there and part in {*stage.frozen, *stage.part_optimisers}:
                        raise ValueError(
                            f"stage '{stage.name}': the network as it is set has no part '{part}'"
                        )
                if not self._reached(stage, there) - set(stage.frozen):
                    raise ValueError(
                        f"stage '{stage.name}': every part that the losses reach is frozen; nothing is left to learn"
                    )
                for level in ("word", "phrase"):
                    if getattr(stage.losses, level) and level not in self.model.levels:
                        raise ValueError(
                            f"stage '{stage.name}': losses.{level} needs '{level}' among model.levels"
                        )
                if stage.position_shift:
                    raise ValueError(
                        f"stage '{stage.name}': HGAN's sentences stand at the left; set position_shift=false"
                    )
                if stage.losses.sextuple or stage.losses.candidates:
                    raise ValueError(
                        f"stage '{stage.name}': neither sextuples nor mined candidates are built for HGAN"
                    )
        return self

    @staticmethod
    def _reached(stage: StageSettings, there: set[str]) -> set[str]:
        """The parts of HGAN that a stage's losses depend on, of those that there are."""
        losses = stage.losses
        whole = losses.pair or losses.ranking or losses.cmce or losses.classifies
        reached = {"backbone", "text"} | (there - {"local"})
        reached |= {"image_projection", "text_projection"} if whole else set()
        reached |= {"local"} & there if losses.local else set()
        return reached | ({"classifier"} if losses.classifies else set())

    @model_validator(mode="after")
    def _relevant_pairs(self) -> "Recipe":
        for stage in self.stages:
            whole = self.classes is None and not stage.by_label
            if stage.matching is None and stage.losses.sextuple and stage.pairing == "group" and not whole:
                raise ValueError(
                    f"stage '{stage.name}': with pairing=group a picture may meet a sentence that is irrelevant to it "
                    "by label or by another class; sextuples then need pairing=image"
                )
        return self

    @model_validator(mode="after")
    def _matching_fits(self) -> "Recipe":
        kinds = [stage.matching is not None for stage in self.stages]
        if kinds != sorted(kinds):
            raise ValueError(
                "stages with `matching` come after those of the embedding, which they start from"
            )
        if any(kinds) and self.rerank == 0:
            raise ValueError("with rerank=0 validation would not ask the matcher; give --rerank 0 at testing")
        if any(kinds) and self.matcher is None:
            raise ValueError("a stage has `matching`, but there is no `matcher` for it to learn")
        if any(kinds) and not isinstance(self.model, IdentityAwareSettings):
            raise ValueError("a matcher reads the words' states of an LSTM; set model.system=identity-aware")
        return self
