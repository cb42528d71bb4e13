"""One stage of learning a cross-encoder: the pairs that the embedding finds, and validation by re-ranking with it.

Source: Li et al., ICCV 2017, section 4.2: "For each visual or textual sample, we take its 20 most similar samples from
the other modality by stage-1 network".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from limner.data.token_rows import longest
from limner.evaluation.report import Report
from limner.models.co_attention import CrossEncoder
from limner.models.image import LAST_MAP
from limner.training.hard_negatives import EmbeddingBank, nearest
from limner.training.pairs import TrainingPairs, generator
from limner.training.pictures import ahead
from limner.training.recipe import PairSettings
from limner.training.stage import Stage
from limner.training.validation import validate_reranked


@dataclass(frozen=True)
class LabelledPairs:
    """Picture `images[i]` and sentence `sentences[i]`, and whether they are of one class."""

    images: Int64[np.ndarray, " pairs"]
    sentences: Int64[np.ndarray, " pairs"]
    labels: Bool[np.ndarray, " pairs"]


@dataclass(frozen=True)
class Candidates:
    """For each picture some sentences, and for each sentence some pictures, best first."""

    of_images: Int64[np.ndarray, "images few"]
    of_sentences: Int64[np.ndarray, "sentences as_few"]

    @classmethod
    def nearest(cls, bank: EmbeddingBank, count: int) -> "Candidates":
        """The `count` nearest of the other modality."""
        # Both ways, as section 4.2 has it: "for each visual or textual sample".
        return cls(nearest(bank.images, bank.texts, count), nearest(bank.texts, bank.images, count))

    @classmethod
    def random(
        cls,
        of_images: Int64[np.ndarray, " images"],
        of_sentences: Int64[np.ndarray, " sentences"],
        count: int,
        rng: np.random.Generator,
    ) -> "Candidates":
        """At random, the first half of each row from the anchor's own class; both arguments are classes.

        **Decided**: purely random pairs would nearly all be wrong ones, from which nothing is learnt.
        """
        return cls(_drawn(of_images, of_sentences, count, rng), _drawn(of_sentences, of_images, count, rng))


def epoch_pairs(
    candidates: Candidates,
    pairs: TrainingPairs,
    classes: Int64[np.ndarray, " images"],
    settings: PairSettings,
    rng: np.random.Generator,
) -> LabelledPairs:
    """An epoch's pairs in random order; a pair that both sides have found comes twice."""
    # An image's class is known, a sentence's is that of its image.
    of_texts = classes[pairs.sentence_image]
    texts = _chosen(candidates.of_images, settings.an_epoch, rng)
    images = _chosen(candidates.of_sentences, settings.an_epoch, rng)
    if settings.own:
        texts = np.concatenate([texts, _same_class(classes, of_texts, settings.own, rng)], axis=1)
        images = np.concatenate([images, _same_class(of_texts, classes, settings.own, rng)], axis=1)
    image_rows = np.concatenate([np.repeat(np.arange(len(texts)), texts.shape[1]), images.ravel()])
    sentence_rows = np.concatenate([texts.ravel(), np.repeat(np.arange(len(images)), images.shape[1])])
    # Shuffled as a whole: the two sides are of unequal number.
    order = rng.permutation(len(image_rows))
    image_rows, sentence_rows = image_rows[order], sentence_rows[order]
    return LabelledPairs(image_rows, sentence_rows, classes[image_rows] == of_texts[sentence_rows])


def _chosen(
    candidates: Int64[np.ndarray, "anchors few"], count: int | None, rng: np.random.Generator
) -> Int64[np.ndarray, "anchors fewer"]:
    if count is None or count >= candidates.shape[1]:
        return candidates
    # Random keys sorted are a draw without replacement, for all rows at once.
    columns = np.argsort(rng.random(candidates.shape), axis=1)[:, :count]
    return np.take_along_axis(candidates, columns, axis=1)


def _drawn(
    anchors: Int64[np.ndarray, " anchors"],
    pool: Int64[np.ndarray, " pool"],
    count: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, "anchors few"]:
    """For each class of `anchors` positions of `pool`: the first half of its own class, the others of any."""
    same_class = _same_class(anchors, pool, count // 2, rng)
    # A drawn item may be of the own class by chance; its label says so.
    others = rng.integers(len(pool), size=(len(anchors), count - count // 2))
    return np.concatenate([same_class, others], axis=1)


def _same_class(
    anchors: Int64[np.ndarray, " anchors"],
    pool: Int64[np.ndarray, " pool"],
    count: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, "anchors few"]:
    """Positions of each anchor's own class in the pool, with replacement; of any class if the pool has none of its
    own."""
    # "stable": the same order on every platform, and with it the same draws.
    order = np.argsort(pool, kind="stable")
    starts = np.searchsorted(pool[order], anchors, side="left")[:, None]
    sizes = np.searchsorted(pool[order], anchors, side="right")[:, None] - starts
    # Both are drawn in any case, so the stream of random numbers does not depend on which classes are there.
    draws, spare = rng.random((len(anchors), count)), rng.integers(len(pool), size=(len(anchors), count))
    # `where` evaluates both sides: a class behind the last one would index beyond the pool.
    places = np.minimum(starts + (draws * sizes).astype(np.int64), len(pool) - 1)
    return np.where(sizes > 0, order[places], spare)


class PairObjective(nn.Module):
    """A cross-encoder and its loss: binary cross-entropy of the matching confidence (Li et al., ICCV 2017, Eq. 12).

    They are one module, since that is what several processes train together.
    """

    def __init__(self, cross_encoder: CrossEncoder) -> None:
        super().__init__()
        self.cross_encoder = cross_encoder

    def forward(
        self, pictures: Tensor, token_ids: Int64[Tensor, "batch words"], labels: Bool[Tensor, " batch"]
    ) -> dict[str, Float[Tensor, ""]]:
        """The mean "loss" of a batch of pairs, and again as "matching".

        "matching_error" is the share of pairs on the wrong side of a confidence of 0.5, in percent. `pictures` are what
        `CrossEncoder.map_pictures` takes.
        """
        # In fp32: under bf16 autocast the logits of a query's twenty candidates tied (docs/log/2026-11-22.md).
        logits = self.cross_encoder(pictures, token_ids).logits.float()
        loss = F.binary_cross_entropy_with_logits(logits, labels.float())
        error = 100 * ((logits > 0) != labels).float().mean()
        # "loss" goes into the backward pass, "matching" into the log.
        return {"loss": loss, "matching": loss.detach(), "matching_error": error}


class RerankStage(Stage):
    """A stage with `StageSettings.reranker_pairs`; the embedding stands still and screens, as it does at testing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Before `_freeze`, which asks for its parts and its backbone.
        self.cross_encoder = self._made()
        self.objective = PairObjective(self.cross_encoder)
        self.parts = self.cross_encoder.parts()
        self._freeze(self.cross_encoder.backbone)
        self._candidates: tuple[int, Candidates] | None = None
        # The embedding stands still, so the split is embedded once a stage and not at each validation.
        self._screening: tuple[Tensor, Tensor] | None = None

    def _made(self) -> CrossEncoder:
        """The network's cross-encoder, made in the first of these stages; its values depend on the seed alone."""
        assert self.data.recipe.cross_encoder is not None
        # The global stream goes on as if nothing had been made: a resumed run makes this module at another moment.
        # devices=[]: otherwise every GPU's state is copied, with a warning where there are many.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.data.recipe.seed)
            return self.model.add_cross_encoder(self.data.recipe.cross_encoder)

    @property
    def settings(self) -> PairSettings:
        """Which pairs are learnt."""
        assert self.stage.reranker_pairs is not None
        return self.stage.reranker_pairs

    @property
    def towers(self) -> tuple[nn.Module, nn.Module]:
        """The cross-encoder's copies."""
        return self.cross_encoder.backbone, self.cross_encoder.text

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        pairs, per_anchor = self.data.pairs, self.settings.an_epoch or self.settings.count
        images, sentences = len(pairs.groups), len(pairs.sentences)
        count = images * min(per_anchor, self._width(sentences))
        count += sentences * min(per_anchor, self._width(images))
        count += (images + sentences) * self.settings.own
        # A set with fewer pairs than a batch still has one step.
        return max(1, count // self.stage.batch)

    def _width(self, pool: int) -> int:
        """The number of candidates of an anchor; a small set may have fewer than requested."""
        count = self.settings.count
        # Random candidates come with replacement, so a small pool has as many as were asked for.
        return min(count, pool) if self.settings.drawn == "nearest" else count

    def read_features(self) -> None:
        """Compute or open the cached maps, if the stage has any."""
        stage, data, backbone = self.stage, self.data, self.cross_encoder.backbone
        # Half-frozen is enough: the layers below `learns_from` give the same map in every epoch.
        if not stage.views or not (backbone.frozen or backbone.learns_from):
            return
        until = backbone.learns_from or LAST_MAP
        self.train_cached = self._views("training maps", backbone, data.train_pictures, stage.views, until)
        # One view: a picture is re-ranked as it is, without its mirror image.
        self.val_cached = self._views("validation maps", backbone, data.val_pictures, 1, until)

    def start(self) -> None:
        """Nothing: the cross-encoder was made from the embedding as it stands, or goes on from the stage before."""

    def train_mode(self) -> None:
        """Training mode, except for frozen parts."""
        self.objective.train()
        self.cross_encoder.eval_parts(self.stage.frozen)

    def inputs(self, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches of an epoch: pairs and what the objective takes of them; this process's share of each."""
        stage, index, cached, seed = self.stage, self.index, self.train_cached, self.data.recipe.seed
        pairs, words = self.data.pairs, self.data.recipe.model.text.words
        # One generator for the epoch's pairs; each step has its own below, since steps are made in threads.
        rng = generator(seed, index, epoch)
        chosen = epoch_pairs(self._candidates_of(epoch, rng), pairs, self.classes, self.settings, rng)
        size = min(stage.batch, len(chosen.labels))

        def make(step: int) -> tuple[int, dict[str, Any]]:
            whole = range(step * size, (step + 1) * size)
            # Every n-th pair, as `EmbeddingStage` cuts its batches.
            rows = np.array(whole[self.accelerator.process_index :: self.accelerator.num_processes])
            images = chosen.images[rows]
            # No shift: sentences are read from the first word on.
            token_ids = pairs.layout(chosen.sentences[rows], words, None)
            rng = generator(seed, index, epoch, step, self.accelerator.process_index)
            if cached is not None:
                drawn = cached[images, rng.integers(cached.shape[1], size=len(images))]
                pictures = torch.from_numpy(np.asarray(drawn))
            else:
                pixels = self.data.train_pictures.random(images, seed, index, epoch, step)
                pictures = torch.from_numpy(pixels).permute(0, 3, 1, 2)
            inputs = {
                "pictures": pictures,
                # Columns that are empty in every row would cost an LSTM steps.
                "token_ids": torch.from_numpy(token_ids[:, : longest(token_ids)]),
                "labels": torch.from_numpy(chosen.labels[rows]),
            }
            return len(images), {name: value.to(self.accelerator.device) for name, value in inputs.items()}

        return ahead(range(self.steps), make)

    def after_step(self) -> None:
        """Nothing is remembered of a batch."""

    def project_weights(self) -> None:
        """The cross-encoder holds its weights to nothing."""

    def validate(self) -> Report:
        """Both directions on the validation split: the embedding screens, the cross-encoder as it stands re-ranks."""
        if self._screening is None:
            encoding = self._encoding(self.measured)
            views = self.data.recipe.images.test_views
            pictures = self.data.val_pictures
            # Pooled features by the embedding's own backbone: the cross-encoder's is a copy, and learns.
            found = self._views("validation features", self.model.backbone, pictures, views, None)
            self._screening = encoding.cached(found), encoding.token_ids(self.data.val_tokens.token_ids)
        cached = None if self.val_cached is None else self.val_cached[:, 0]
        return validate_reranked(self.data, self._reranker(), *self._screening, cached)

    def _candidates_of(self, epoch: int, rng: np.random.Generator) -> Candidates:
        """The pairs to choose from; found once, or every `refresh` epochs, or drawn for each epoch."""
        pairs, settings = self.data.pairs, self.settings
        # Anew for each epoch: random pairs are not worth keeping.
        if settings.drawn == "random":
            return Candidates.random(self.classes, self.classes[pairs.sentence_image], settings.count, rng)
        turn = epoch // settings.refresh if settings.refresh else 0
        # By the turn, not by a counter: a resumed run finds in its first epoch what the killed one had.
        if self._candidates is None or self._candidates[0] != turn:
            self._candidates = turn, Candidates.nearest(self._bank(turn), settings.count)
        return self._candidates[1]

    def _bank(self, turn: int) -> EmbeddingBank:
        """The embeddings of the training split: of whole images, or of another view each time."""
        pairs, pictures, encoding = self.data.pairs, self.data.train_pictures, self._encoding(self.precision)
        views = self.data.recipe.images.test_views
        if self.settings.refresh:
            # With a refresh the turns go through the views; the cache then holds those of training.
            views = max(views, self.stage.views)
        found = self._views("features for pairs", self.model.backbone, pictures, views, None)
        if self.settings.refresh:
            found = found[:, turn % views, None]
        token_ids = pairs.layout(np.arange(len(pairs.sentences)), self.data.recipe.model.text.words, None)
        texts = encoding.token_ids(token_ids)
        return EmbeddingBank(encoding.cached(found), pairs.groups, texts, pairs.groups[pairs.sentence_image])
