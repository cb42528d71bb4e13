"""Training of textual inversion: the mapping of pictures to words learns, both towers stand still.

The pictures are embedded once. A step reads a batch of pictures by Pic2Word's loss, and with triplets a batch of these
by `limner.losses.composed`. A training of 10 epochs takes two minutes on generated people, so it is not resumed: a
stopped one leaves the run as it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from limner.data.composed import ComposedSet
from limner.data.records import Dataset
from limner.documented import Result
from limner.errors import DataError
from limner.evaluation.composed import rank_composed
from limner.inference.composing import (
    Inversion,
    compose_words,
    describe,
    find_stand_in,
    join,
    mark_pictures,
)
from limner.inference.encoding import evaluating
from limner.inference.evaluate_composed import EncodedQueries, encode_composed
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel
from limner.losses.composed import composed_loss
from limner.losses.contrastive import ContrastiveLoss
from limner.models.inversion import InversionSettings, PictureWords
from limner.settings import Settings

IMAGE_WEIGHTS = tuple(round(0.1 * step, 1) for step in range(10))
"""Weights of the picture's embedding beside the sentence's that are tried."""


class InversionTraining(Settings):
    """The settings of a training of textual inversion."""

    epochs: int = Field(default=10, ge=1)
    """Epochs: passes over the triplets, or over the pictures without any."""
    batch: int = Field(default=64, ge=2)
    """Triplets of a step, and pictures of a step."""
    rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    """Learning rate of AdamW, which falls to 0 by a cosine (Pic2Word: 1e-4, for CLIP)."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """Weight decay of AdamW."""
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """τ of both losses, which cosines are divided by."""
    pictures_weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of Pic2Word's loss beside that of the triplets."""
    image_weight: float = Field(default=0.5, ge=0, lt=1)
    """Weight of the picture's embedding beside the sentence's: in the loss of triplets, and without triplets also in
    searches; with triplets these have the weight that is best on validation."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the mapping's first weights, of dropout and of the batches."""


class InversionEpoch(Result):
    """An epoch of `limner compose`."""

    epoch: int
    """Its number, from 1."""
    pictures: float
    """Mean of the loss of pictures."""
    triplets: float | None
    """Mean of the loss of triplets; null without any."""
    score: float
    """Mean of R@1, R@5 and R@10 on the validation triplets, in percent; without triplets of pictures found by their own
    words."""
    image_weight: float
    """Weight of the picture's embedding beside the sentence's that has this score."""


class ComposeReport(Result):
    """The result of `limner compose`."""

    file: Path
    """The file in the run's folder."""
    epoch: int
    """The epoch that was kept."""
    score: float
    """Its validation score."""
    image_weight: float
    """Weight of the picture's embedding beside the sentence's, chosen on validation."""
    triplets: str | None
    """The set of triplets; null without one."""
    epochs: tuple[InversionEpoch, ...]
    """All epochs."""


@dataclass(frozen=True, eq=False)
class _Triplets:
    """Triplets of all galleries as tensors: rows of `images`, and their marked sentences."""

    images: Float[Tensor, "images dim"]
    references: Int64[Tensor, " triplets"]
    targets: Int64[Tensor, " triplets"]
    token_ids: Int64[Tensor, "triplets words"]
    marked: Bool[Tensor, "triplets words"]


def train_inversion(
    run: TrainedModel,
    data: Dataset,
    triplets: tuple[ComposedSet, ComposedSet] | None = None,
    settings: InversionSettings | None = None,
    training: InversionTraining | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
    told: Callable[[InversionEpoch], None] | None = None,
) -> tuple[Inversion, list[InversionEpoch]]:
    """Train the mapping for a run, on the splits train and val of a dataset and of triplets (train, val).

    The epoch and the picture's weight beside the sentence are those of the highest validation score, the first of
    equal ones. Without triplets nothing can choose the weight, which is then that of `training`. **Decided**: it is not
    0, as in the papers: the sentence alone was worse than the sum on generated people. `told` is called after each
    epoch. Deterministic by the seed on one machine. Raises `SettingsError` for a text encoder that takes no vectors,
    `DataError` for a set without pictures to train on or to choose by.
    """
    settings, training = settings or InversionSettings(), training or InversionTraining()
    # first of all, before minutes of encoding
    stand_in = find_stand_in(run.model, run.tokenizer, settings)
    pictures = _encode(run, data, "train", progress)
    encoded = None if triplets is None else [encode_composed(run, one, progress) for one in triplets]
    chosen_by = _encode(run, data, "val", progress) if encoded is None else None
    trainer = _Trainer(run, settings, training, stand_in)
    learnt = None
    if triplets is not None and encoded is not None:
        learnt = trainer.triplets(triplets[0], encoded[0])
        pictures = torch.cat([pictures, learnt.images])
    epochs: list[InversionEpoch] = []
    best: dict[str, Tensor] = {}
    with _held_fixed(run):
        for losses in trainer.epochs(pictures, learnt):
            if triplets is not None and encoded is not None:
                score, weight = trainer.score(triplets[1], encoded[1])
            else:
                assert chosen_by is not None
                score, weight = trainer.reconstruction(chosen_by), training.image_weight
            epoch = InversionEpoch(
                epoch=len(epochs) + 1,
                pictures=losses[0],
                triplets=losses[1],
                score=score,
                image_weight=weight,
            )
            if score > max((one.score for one in epochs), default=-1.0):
                best = {name: one.detach().clone() for name, one in trainer.network.state_dict().items()}
            epochs.append(epoch)
            if told is not None:
                told(epoch)
            if progress is not None:
                progress("epochs", len(epochs), training.epochs)
    trainer.network.load_state_dict(best)
    chosen = max(epochs, key=lambda one: one.score)
    trained = {
        "training": training.model_dump(mode="json"),
        "data": {"source": data.source, "fingerprint": data.fingerprint},
        "triplets": None
        if triplets is None
        else {one.split: {"source": one.source, "fingerprint": one.fingerprint} for one in triplets},
        "epoch": chosen.epoch,
        "score": chosen.score,
        "versions": versions(),
    }
    model = {
        "fingerprint": run.fingerprint,
        "checkpoint": run.path.name,
        "dim": run.dim,
        "token_width": run.model.text.token_width,
    }
    description = describe(settings, stand_in, chosen.image_weight, model, trained)
    return Inversion(settings, trainer.network.eval(), stand_in, chosen.image_weight, description), epochs


class _Trainer:
    """The mapping with its optimiser, above a model that is held fixed."""

    def __init__(
        self, run: TrainedModel, settings: InversionSettings, training: InversionTraining, stand_in: str
    ) -> None:
        self.run, self.settings, self.training, self.stand_in = run, settings, training, stand_in
        self.device = next(run.model.parameters()).device
        # a generator of its own draws the batches; layers and dropout draw from torch's, within `fork_rng`
        self.draws = torch.Generator().manual_seed(training.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            self.network = PictureWords(settings, run.dim, run.model.text.token_width).to(self.device)
        self.contrastive = ContrastiveLoss(training.temperature, learnt=False, positives="pair")
        alone, places = mark_pictures(run.model, run.tokenizer, settings, stand_in, [""])
        self.alone, self.places = alone.to(self.device), places.to(self.device)

    def triplets(self, composed: ComposedSet, encoded: Sequence[EncodedQueries]) -> _Triplets:
        """The triplets of all galleries of a set together. Raises `DataError` for a set without targets."""
        if not composed.has_targets or not composed.triplets:
            raise DataError(f"{composed.source}: split '{composed.split}' has no targets to learn from")
        texts, references, targets, first = [], [], [], 0
        for gallery, one in zip(composed.galleries, encoded, strict=True):
            texts += [triplet.text for triplet in gallery.triplets]
            references += [first + triplet.reference for triplet in gallery.triplets]
            targets += [first + triplet.targets[0] for triplet in gallery.triplets]
            first += len(one.images)
        images = torch.from_numpy(np.concatenate([one.images for one in encoded]))
        token_ids, marked = mark_pictures(
            self.run.model, self.run.tokenizer, self.settings, self.stand_in, texts
        )
        return _Triplets(images, torch.tensor(references), torch.tensor(targets), token_ids, marked)

    def epochs(
        self, pictures: Float[Tensor, "pictures dim"], triplets: _Triplets | None
    ) -> Iterator[tuple[float, float | None]]:
        """Train epoch by epoch; yields the mean losses of each."""
        training = self.training
        count = len(pictures) if triplets is None else len(triplets.references)
        steps = -(-count // training.batch) * training.epochs
        optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=training.rate, weight_decay=training.weight_decay
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed + 1)
            for _ in range(training.epochs):
                self.network.train()
                sums = np.zeros(2)
                parts = self._batches(len(pictures), triplets)
                for of_pictures, of_triplets in parts:
                    losses = [training.pictures_weight * self._pictures_loss(pictures[of_pictures])]
                    if triplets is not None:
                        losses.append(self._triplets_loss(triplets, of_triplets))
                    optimiser.zero_grad()
                    torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                    schedule.step()
                    sums[: len(losses)] += [float(loss.detach()) for loss in losses]
                means = sums / len(parts)
                yield float(means[0]), None if triplets is None else float(means[1])

    def _batches(
        self, pictures: int, triplets: _Triplets | None
    ) -> list[tuple[Int64[Tensor, " _rows"], Int64[Tensor, " _rows"]]]:
        """Rows of pictures and of triplets of each step of an epoch."""
        batch = self.training.batch
        if triplets is None:
            shuffled = torch.randperm(pictures, generator=self.draws)
            return [(rows, rows[:0]) for rows in torch.split(shuffled, batch)]
        # those of one reference together: its other near-twins are the hardest negatives of each
        _, of = torch.unique(triplets.references, return_inverse=True)
        place = torch.randperm(int(of.max()) + 1, generator=self.draws)[of]
        parts = torch.split(place.argsort(stable=True), batch)
        return [
            (torch.unique(torch.randint(pictures, (batch,), generator=self.draws)), rows) for rows in parts
        ]

    def _pictures_loss(self, images: Float[Tensor, "batch dim"]) -> Float[Tensor, ""]:
        """Pic2Word's loss: the sentence of a picture finds that picture in the batch, and the other way round."""
        images = images.to(self.device)
        sentences = self._sentences(images)
        return self.contrastive(images, sentences, torch.arange(len(images), device=self.device))

    def _sentences(self, images: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """Unit embeddings of the prompt alone with each picture in it."""
        count = len(images)
        sentences = compose_words(
            self.run.model, self.network(images), self.alone.expand(count, -1), self.places.expand(count, -1)
        )
        return self.run.model.unit_texts(sentences)

    def _triplets_loss(self, triplets: _Triplets, rows: Int64[Tensor, " batch"]) -> Float[Tensor, ""]:
        references, targets = triplets.references[rows], triplets.targets[rows]
        before, after = (triplets.images[of].to(self.device) for of in (references, targets))
        token_ids, marked = (of[rows].to(self.device) for of in (triplets.token_ids, triplets.marked))
        words = self.network(before)
        # of the query as it searches: the sentence learns what the picture's embedding does not say
        sentences = compose_words(self.run.model, words, token_ids, marked)
        queries = join(self.run.model.unit_texts(sentences), before, self.training.image_weight)
        ids = targets.to(self.device), references.to(self.device)
        return composed_loss(queries, after, before, *ids, self.training.temperature)

    def score(self, composed: ComposedSet, encoded: Sequence[EncodedQueries]) -> tuple[float, float]:
        """The best validation score over `IMAGE_WEIGHTS`, and the first weight that has it."""
        made = Inversion(self.settings, self.network, self.stand_in, 0.0, {})
        sentences = [
            made.compose(
                self.run.model, self.run.tokenizer, one.references, [t.text for t in gallery.triplets]
            )
            for gallery, one in zip(composed.galleries, encoded, strict=True)
        ]
        scores = []
        for weight in IMAGE_WEIGHTS:
            ranks = [
                rank_composed(
                    join(torch.from_numpy(said), torch.from_numpy(one.references), weight).numpy(),
                    one.images,
                    gallery,
                    composed.protocol,
                )
                for gallery, one, said in zip(composed.galleries, encoded, sentences, strict=True)
            ]
            scores.append(float(np.mean([one.choosing for one in ranks])))
        best = int(np.argmax(scores))
        return scores[best], IMAGE_WEIGHTS[best]

    @torch.inference_mode()
    def reconstruction(self, pictures: Float[Tensor, "pictures dim"]) -> float:
        """The mean of R@1, R@5 and R@10 of pictures that are searched by their own words, in percent."""
        with evaluating(self.network):
            parts = [self._sentences(part.to(self.device)).cpu() for part in torch.split(pictures, 256)]
        scores = torch.cat(parts) @ pictures.T
        ranks = (scores >= scores.diagonal()[:, None]).sum(dim=1)
        return 100 * float(np.mean([float((ranks <= k).float().mean()) for k in (1, 5, 10)]))


@contextmanager
def _held_fixed(run: TrainedModel) -> Iterator[None]:
    """The model in eval mode and without gradients inside; its parameters as before afterwards."""
    learning = [one for one in run.model.parameters() if one.requires_grad]
    for one in learning:
        one.requires_grad_(False)
    try:
        with evaluating(run.model):
            yield
    finally:
        for one in learning:
            one.requires_grad_(True)


def _encode(
    run: TrainedModel, data: Dataset, split: str, progress: Callable[[str, int, int], None] | None
) -> Float[Tensor, "pictures dim"]:
    images = [record.image for record in data.split(split).records]
    if len(images) < 2:
        raise DataError(f"{data.source}: split '{split}' has {len(images)} pictures; at least two are needed")
    told = None if progress is None else partial(progress, f"pictures of {split}")
    return torch.from_numpy(run.encode_images(images, progress=told))
