"""The settings of a training run: stages with their losses, optimiser and schedule, and the whole recipe."""

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from limner.data.transforms import ImageSettings
from limner.losses.instance import Instance
from limner.losses.loss import LOCAL, LossSettings, Need
from limner.losses.registry import AnyLoss
from limner.models.adapters import LoRASettings
from limner.models.co_attention import CoAttentionSettings
from limner.models.registry import DEFAULT_SETTINGS, ModelSettings, systems_offering
from limner.settings import Settings

TOWER = "tower:"
"""The beginning of `vocabulary.vectors` where a text tower makes them; the model follows."""

Selection = Literal["rsum", "text_to_image R@1", "image_to_text R@1", "text_to_image mAP", "mAP"]

L = TypeVar("L", bound=LossSettings)


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
    multipliers: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Factor on the rate of single parts, e.g. {"words": 0.001}."""
    layer_decay: float | None = Field(default=None, gt=0, lt=1)
    """Factor on the rate from each layer of a transformers' tower to the one below it, which needs fewer changes
    (ELECTRA, BEiT); what comes behind the last layer has the whole rate. None = one rate for all."""
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Largest norm of the whole gradient; None = unclipped."""

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> "OptimiserSettings":
        # torch.optim.SGD refuses the same, but only when the stage begins.
        if self.nesterov and (self.name != "sgd" or not self.momentum):
            raise ValueError("nesterov needs name=sgd and a momentum above 0")
        return self


class ScheduleSettings(Settings):
    """The learning rate over a stage: a pure function of the epoch's fraction, so that resuming needs no state."""

    kind: Literal["constant", "steps", "cosine"] = "constant"
    """Constant; multiplied by 0.1 at each of `drops`; or a half cosine down to 0."""
    drops: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Epochs (from 0) at which "steps" multiplies the rate by 0.1."""
    warmup: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Epochs over which the rate rises linearly from 0."""


class AverageSettings(Settings):
    """The moving average of a stage's weights (`limner.training.average`)."""

    decay: float = Field(default=0.999, gt=0, lt=1)
    """Factor by which the weights of a step count less at each later one; about the last 1 / (1 - decay) count."""
    start: int = Field(default=0, ge=0)
    """Epochs at the beginning of the stage that are left out; until then validation sees the weights themselves."""


class DivisionSettings(Settings):
    """The division of a stage's pairs into right and wrong ones (`limner.losses.wrong_pairs`)."""

    start: int = Field(default=1, ge=0)
    """Epochs of the stage before the first division; until then all pairs are learnt from."""
    least: float = Field(default=0.5, gt=0, lt=1)
    """Least probability of being right (RDE: 0.5)."""


class PairSettings(Settings):
    """The pairs of a picture and a sentence that a rerank stage learns to tell (identity-aware, section 4.2).

    A pair is right where picture and sentence are of one class (see `Recipe.classes`).
    """

    # "random" draws half of its pairs from the own class, since purely random ones would nearly all be wrong.
    drawn: Literal["nearest", "random"] = "nearest"
    """Each picture and each sentence with its nearest of the other modality by the embedding; or with as many at
    random, half of them of its own class ("w/o stage 1")."""
    count: int = Field(default=20, ge=1)
    """How many (section 4.2: 20)."""
    an_epoch: int | None = Field(default=None, ge=1)
    """How many of them an epoch takes, drawn again each time; None = all."""
    own: int = Field(default=0, ge=0)
    """How many pairs with a sample of its own class each sample has beside them in an epoch (not in the paper); for
    an embedding that does not find its own training pairs, so that few right pairs are among the nearest."""
    refresh: int = Field(default=0, ge=0)
    """Epochs after which the nearest are found again, from other views of the images; 0 = found once, from whole
    images (the paper does not say)."""

    @model_validator(mode="after")
    def _no_more_than_there_are(self) -> "PairSettings":
        # Drawn without replacement for each epoch.
        if self.an_epoch is not None and self.an_epoch > self.count:
            raise ValueError(f"an_epoch={self.an_epoch} is more than the count={self.count} of pairs")
        return self


class StageSettings(Settings):
    """One stage of training: of the embedding, or, with `reranker_pairs`, of the cross-encoder that re-ranks."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Name of the stage, of its checkpoint file and of its rows in metrics.jsonl."""
    epochs: int = Field(default=60, ge=1)
    """Most epochs; one shows every training picture once (see `sentences`), or a rerank stage's pairs, but for what
    does not fill a batch."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many validations without a better one; None = run all epochs."""
    batch: int = Field(default=32, ge=2)
    """Pairs of a picture and a sentence in one step, over all processes."""
    chunk: int | None = Field(default=None, ge=1)
    """Pairs that pass the network at once on each process, for large batches in little memory; the losses still see the
    whole batch (GradCache). None = all of them."""
    lora: LoRASettings | None = None
    """Adapters of low rank beside the attention of transformers' towers, which learn in place of the towers' own
    weights; checkpoints hold the sum of both. {} = by its defaults, None = none."""
    checkpointing: bool = False
    """Keep of each layer of transformers' towers its input alone, and compute the rest again in the backward pass: less
    memory, the same weights."""
    sentences: Literal["one", "all", "together"] = "one"
    """An epoch takes one random sentence a picture, or every sentence once; with "together", those of a picture stand
    in one batch, and it passes the network once for all of them."""
    pairing: Literal["image", "group"] = "image"
    """A picture is paired with a sentence of its own, or of any picture of its identity (released code, CUHK-PEDES)."""
    position_shift: bool = True
    """Random padding before and after a sentence; False = left alignment (Table 7). The text CNN does not see the last
    places of a row, so of a sentence of 10 words in 32 places 12 % are never read (`model.text.text_blocks`)."""
    frozen: tuple[str, ...] = ()  # which parts there are, the network's settings say: `Recipe._parts_fit`
    """Parts that do not learn, e.g. "backbone"; their batch norm stays in eval mode. A name that the network does not
    have is refused with those that it has."""
    backbone_from: str | None = None
    """First layer of the backbone that learns, e.g. "features.15" (torchvision's names); None = every layer."""
    backbone_statistics: Literal["batch", "fixed"] = "batch"
    """Batch norm of a learning backbone: of the batch, or fixed as loaded (for weights that come with it folded)."""
    # 10 is ours: the paper draws a new crop each time, which would cost a pass of the CNN an image and epoch.
    views: int = Field(default=10, ge=0)
    """Cached views of each picture (crops, flips) where the backbone is frozen, also in part; 0 = new every epoch, and
    nothing cached of sentences where BERT, or a text tower, is frozen."""
    # A default of a loss, not an empty tuple: a stage without losses is a mistake, and is refused below.
    losses: tuple[AnyLoss, ...] = (Instance(),)
    """The losses of the weighted sum, each kind once; a stage with `reranker_pairs` has binary cross-entropy alone
    (identity-aware, Eq. 12), and none of these."""
    reranker_pairs: PairSettings | None = None
    """The pairs that the cross-encoder learns; None = the stage learns the embedding. `sentences`, `pairing` and
    `position_shift` do not concern a rerank stage."""
    optimiser: OptimiserSettings = OptimiserSettings()
    """The optimiser."""
    part_optimisers: dict[str, OptimiserSettings] = Field(default_factory=dict)
    """Parts with an optimiser of their own, e.g. {"backbone": {"name": "sgd"}}; all follow the one schedule."""
    schedule: ScheduleSettings = ScheduleSettings()
    """The learning rate over the stage."""
    average: AverageSettings | None = None
    """The moving average of the weights, which is validated, kept and handed to the next stage in place of the weights
    that training goes on with; {} = by its defaults, None = none."""
    division: DivisionSettings | None = None
    """Leave out the pairs that the network finds wrong before each epoch, judged by their losses; {} = by its defaults,
    None = learn from all."""
    validate_every: int = Field(default=1, ge=1)
    """Epochs between two validations; the last epoch always ends with one."""
    keep_last: bool = False
    """Keep the weights of the last epoch, too, in STAGE.last.safetensors beside those of the best; what measures a run
    takes that file in the run's place."""

    @model_validator(mode="before")
    @classmethod
    def _no_losses_in_a_rerank_stage(cls, values: Any) -> Any:
        """A stage with `reranker_pairs` has no loss unless it is told one, which is then refused."""
        if isinstance(values, dict) and values.get("reranker_pairs") is not None:
            # Before validation: the default loss would otherwise stand beside the pairs. What the user wrote wins.
            return {"losses": (), **values}
        return values

    @model_validator(mode="after")
    def _losses_fit(self) -> "StageSettings":
        if self.reranker_pairs is not None:
            if self.losses:
                raise ValueError(
                    "a stage with `reranker_pairs` has binary cross-entropy alone; set its losses to []"
                )
            return self
        if not self.losses:
            raise ValueError('a stage needs a loss; give at least one, e.g. losses=[{"kind": "instance"}]')
        # A module is one for all stages and found by its kind, so two of a kind would be one and the same.
        kinds = Counter(loss.kind for loss in self.losses)
        if twice := [kind for kind, count in kinds.items() if count > 1]:
            raise ValueError(f"losses: '{twice[0]}' stands there twice")
        # More than the embeddings of a batch's pairs, which are all that is kept of its chunks.
        beyond = self.needs & (LOCAL | {"mined", "sextuples"})
        if self.chunk is not None and beyond:
            kind = next(loss.kind for loss in self.losses if loss.needs & beyond)
            raise ValueError(
                f"chunk: losses.{kind} needs {min(beyond)}, which is more than the embeddings of a batch; leave out "
                "chunk, or what the loss needs it for"
            )
        # Both put rows behind the batch, and each would take the other's for its own.
        if {"mined", "sextuples"} <= self.needs:
            raise ValueError(
                "a stage mines either candidates for the ranking loss or hard negatives for sextuples"
            )
        return self

    @model_validator(mode="after")
    def _settings_agree(self) -> "StageSettings":
        # Which of the two was meant cannot be told: one holds the batch norm of all layers, the other learns some.
        if "backbone" in self.frozen and self.backbone_from is not None:
            raise ValueError("frozen holds the whole backbone, backbone_from a part of it; give one of them")
        if self.sentences != "one" and self.pairing == "group":
            raise ValueError(
                f"pairing=group draws a sentence for each picture; with sentences={self.sentences} there is none to "
                "draw"
            )
        # Chunks are of pairs.
        if self.sentences == "together" and self.chunk is not None:
            raise ValueError(
                "with sentences=together a batch has fewer pictures than pairs, which chunk cannot read; set "
                "sentences=all"
            )
        if self.chunk is not None and self.reranker_pairs is not None:
            raise ValueError(
                "a stage with `reranker_pairs` learns from single pairs; lower its batch, not chunk"
            )
        if self.lora is not None and self.reranker_pairs is not None:
            raise ValueError("lora is for stages of the embedding; leave it out of one with `reranker_pairs`")
        if self.lora is not None and {"backbone", "text"} <= set(self.frozen):
            raise ValueError("both towers are frozen, so that no adapter of lora can learn; leave it out")
        for name, part in (("average", self.average), ("division", self.division)):
            if part is not None and part.start >= self.epochs:
                raise ValueError(
                    f"{name}.start={part.start} leaves out all of the epochs={self.epochs}; lower it"
                )
        if self.division is not None and self.reranker_pairs is not None:
            raise ValueError(
                "division is for stages of the embedding; leave it out of one with `reranker_pairs`"
            )
        return self

    @property
    def needs(self) -> frozenset[Need]:
        """The needs of its losses."""
        return frozenset(need for loss in self.losses for need in loss.needs)

    @property
    def remembers(self) -> bool:
        """True if features of a step are kept for later ones."""
        return any(loss.remembers for loss in self.losses)

    @property
    def sparse_parts(self) -> frozenset[str]:
        """The parts whose gradients are sparse: they hold rows that a step drew."""
        return frozenset(loss.part for loss in self.losses if loss.part is not None and loss.sparse)

    @property
    def optimisers(self) -> tuple[OptimiserSettings, ...]:
        """The optimiser of most parts, and those of single ones."""
        return self.optimiser, *self.part_optimisers.values()

    @property
    def named_parts(self) -> dict[str, set[str]]:
        """The parts that its settings name, by setting."""
        return {
            "frozen": set(self.frozen),
            "part_optimisers": set(self.part_optimisers),
            "multipliers": {part for optimiser in self.optimisers for part in optimiser.multipliers},
        }

    def loss(self, kind: type[L]) -> L | None:
        """Its loss of a class of settings, e.g. `stage.loss(Ranking)`; None where it has none."""
        return next((loss for loss in self.losses if isinstance(loss, kind)), None)

    def with_losses(self, *losses: LossSettings) -> "StageSettings":
        """The same stage with these losses, in place of those of the same kinds or behind the others."""
        new = {loss.kind: loss for loss in losses}
        # In the old place: the order of the losses is the order of their sum, and so of its rounding.
        kept = tuple(new.pop(loss.kind, loss) for loss in self.losses)
        return self.replace(losses=(*kept, *new.values()))

    def without_losses(self, *kinds: type[LossSettings]) -> "StageSettings":
        """The same stage without its losses of these classes."""
        return self.replace(losses=tuple(loss for loss in self.losses if not isinstance(loss, kinds)))


class VocabularySettings(Settings):
    """Which words are known and what their vectors start from."""

    min_count: int = Field(default=1, ge=1)
    """Words seen less often in the training sentences are dropped."""
    vectors: str = "random"
    """"random", "captions" (learnt from the training captions), a word2vec/GloVe file, or "tower:MODEL", what a text
    tower makes of each word alone (a folder, or a name on the Hugging Face hub)."""
    tokenizer: str | None = None
    """A pretrained sub-word tokenizer in place of the captions' words: a folder with tokenizer.json, or a name on the
    Hugging Face hub. Its tokens' vectors start at random."""
    special_tokens: bool = False
    """Put the pretrained tokenizer's special tokens, such as [CLS], around each sentence."""
    pieces: int | None = Field(default=None, ge=300)
    """Learn so many pieces of words from the training captions, in any script; None = whole words."""

    @model_validator(mode="after")
    def _of_words_or_of_a_tokenizer(self) -> "VocabularySettings":
        # Whether the network learns a table of word vectors at all is checked in `Recipe._network_fits`.
        if self.tokenizer is None and self.special_tokens:
            raise ValueError("special_tokens are those of a pretrained tokenizer; set vocabulary.tokenizer")
        if self.tokenizer is not None and self.pieces is not None:
            raise ValueError("tokenizer brings its own pieces; leave one of tokenizer and pieces out")
        of_pieces = self.tokenizer is not None or self.pieces is not None
        if of_pieces and (self.min_count > 1 or self.vectors != "random"):
            raise ValueError(
                "min_count and vectors are of the captions' words, whose place tokenizer and pieces take; set "
                "min_count=1 and vectors=random"
            )
        return self


class Recipe(Settings):
    """A whole configuration: what `limner train` runs and a checkpoint records."""

    name: str
    """Name of the recipe."""
    model: ModelSettings = DEFAULT_SETTINGS
    """The network; its `system` says which published one."""
    images: ImageSettings = ImageSettings()
    """How pictures are resized, cropped and flipped."""
    vocabulary: VocabularySettings = VocabularySettings()
    """The words."""
    classes: Annotated[int, Field(ge=2)] | Literal["images"] | None = None
    """None = each group a class; "images" = each picture with its sentences, whoever is on it ("w/o ID"); a number = so
    many k-means pseudo-classes of pooled features (dual-path, Table 5)."""
    cross_encoder: CoAttentionSettings | None = None
    """The network of rerank stages, which re-ranks what the embedding finds."""
    # An integer 0 is allowed for a network without a reranker, and to leave HGAN's words and phrases out.
    rerank: Annotated[int, Field(ge=0)] | Literal["all"] = 20
    """How many of the first are re-ranked at testing, by a cross-encoder (identity-aware, section 4.2: 20), by HGAN's
    words and phrases, or by late interaction; or "all"; 0 = none."""
    start: str | None = None
    """A run whose network and tokenizer training starts from (`limner train --from`); None = a network of its own."""
    stages: tuple[StageSettings, ...] = Field(min_length=1)
    """The stages, each starting from the best weights of the one before; those of the embedding come first."""
    select: Selection = "rsum"
    """The measure by which validation chooses the checkpoint; "rsum" = R@1 + R@5 + R@10 of both directions, "mAP" = the
    mean of theirs. Where a stage learns from labels, matches on validation are by labels too."""
    # Emulated bf16 is slower than fp32, so "auto" asks the processor.
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the steps' forward pass; "auto" = bf16 where the processor multiplies it natively. On a CPU
    validation and evaluation are in fp32 whatever it is."""
    # torch takes 64 bits, and stages add their number
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of everything random, below 2⁶³."""

    @model_validator(mode="after")
    def _names_differ(self) -> "Recipe":
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names):
            raise ValueError(f"stage names must differ, got {names}")
        # last.safetensors is the state and STAGE-classifier.safetensors what a loss hands on.
        for name in names:
            if name == "last" or name.endswith("-classifier"):
                raise ValueError(f"stage name '{name}' is that of another file of a run; choose another")
        return self

    @model_validator(mode="after")
    def _network_fits(self) -> "Recipe":
        """Check that the network offers what each stage needs."""
        # Two sources of word vectors: one would silently win.
        if self.model.text.table_width is None and self.vocabulary.vectors != "random":
            raise ValueError(
                "vocabulary.vectors starts a table of word vectors, and the network brings its own; set it to random"
            )
        # Its word table has a row for each of its own tokenizer's pieces, and no other tokenizer's.
        if self.model.text.tokenizer is not None and self.vocabulary != VocabularySettings():
            raise ValueError("the text tower brings its own tokenizer; leave the settings of vocabulary out")
        for stage in self.stages:
            # A cross-encoder needs nothing of the losses; `_rerank_stages_fit` checks it.
            if stage.reranker_pairs is not None:
                continue
            for loss in stage.losses:
                # Sorted: a set of names has another order in every process.
                if lacking := sorted(loss.needs - self.model.offers):
                    raise ValueError(
                        f"stage '{stage.name}': losses.{loss.kind} needs {lacking[0]}, which "
                        f"model.system={self.model.system} does not offer; "
                        f"{' and '.join(f'model.system={name}' for name in systems_offering(lacking[0]))} does"
                    )
            try:
                self.model.check_stage(stage)
            # The network says "sentences stand at the left" and the like without knowing a stage's name.
            except ValueError as error:
                raise ValueError(f"stage '{stage.name}': {error}") from None
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> "Recipe":
        """Parts that a stage names are there, and something of what its losses reach learns."""
        for stage in self.stages:
            if stage.reranker_pairs is None:
                of_losses = frozenset(loss.part for loss in stage.losses if loss.part is not None)
                # A loss may learn something itself, e.g. the classifier: a part like those of the network.
                parts = self.model.parts() | of_losses
                reached = of_losses | self.model.reached(
                    embedding=any(loss.of_embedding for loss in stage.losses),
                    levels=bool(stage.needs & LOCAL),
                )
            elif self.cross_encoder is not None:
                parts = reached = self.cross_encoder.parts()
            else:
                continue  # `_rerank_stages_fit` says what is missing
            for setting, named in stage.named_parts.items():
                for part in sorted(named - parts):
                    raise ValueError(f"stage '{stage.name}': {setting}: {_no_part(part, parts)}")
            # Without this the first backward pass fails with "element 0 of tensors does not require grad".
            if not reached - set(stage.frozen):
                raise ValueError(
                    f"stage '{stage.name}': every part that the losses reach is frozen; nothing is left to learn"
                )
        return self

    @model_validator(mode="after")
    def _lasting_settings_agree(self) -> "Recipe":
        """Check that stages agree in the settings of what a loss keeps from stage to stage."""
        before: dict[str, tuple[str, LossSettings]] = {}
        for stage in self.stages:
            for loss in stage.losses:
                # The first stage with a kind makes its module, so later stages must ask for the same.
                name, first = before.setdefault(loss.kind, (stage.name, loss))
                for setting in loss.lasting:
                    if getattr(loss, setting) != getattr(first, setting):
                        raise ValueError(
                            f"stages '{name}' and '{stage.name}' share what losses.{loss.kind} learns, so its "
                            f"{setting} is one for both; got {getattr(first, setting)!r} and {getattr(loss, setting)!r}"
                        )
        return self

    @model_validator(mode="after")
    def _relevant_pairs(self) -> "Recipe":
        for stage in self.stages:
            # a sentence of the same group is relevant as long as relevance is by group
            whole = self.classes is None and "labels" not in stage.needs
            if "sextuples" in stage.needs and stage.pairing == "group" and not whole:
                raise ValueError(
                    f"stage '{stage.name}': with pairing=group a picture may meet a sentence that is irrelevant to it "
                    "by label or by another class; sextuples then need pairing=image"
                )
        return self

    @model_validator(mode="after")
    def _rerank_stages_fit(self) -> "Recipe":
        kinds = [stage.reranker_pairs is not None for stage in self.stages]
        # False sorts before True: all stages of the embedding, then all of the cross-encoder.
        if kinds != sorted(kinds):
            raise ValueError(
                "stages with `reranker_pairs` come after those of the embedding, which they start from"
            )
        if any(kinds) and self.rerank == 0:
            # `best` would be chosen by the embedding alone, which these stages do not change.
            raise ValueError(
                "with rerank=0 validation would not ask the cross-encoder; give --rerank 0 at testing"
            )
        if any(kinds) and self.cross_encoder is None:
            raise ValueError("a stage has `reranker_pairs`, but there is no `cross_encoder` for it to learn")
        if any(kinds) and "states" not in self.model.offers:
            raise ValueError(
                "a cross-encoder reads the states of words, of an LSTM or a text tower; "
                f"{' and '.join(f'model.system={name}' for name in systems_offering('states'))} offers them"
            )
        if any(kinds):
            self.model.check_cross_encoder()
        return self

    def first_with(self, kind: str) -> int:
        """Number of the first stage with a loss of a kind."""
        return next(
            n for n, stage in enumerate(self.stages) if any(loss.kind == kind for loss in stage.losses)
        )


def _no_part(part: str, parts: Iterable[str]) -> str:
    known = sorted(parts)
    close = difflib.get_close_matches(part, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(known)}"
    return f"the network as it is set has no part '{part}'; {hint}"
