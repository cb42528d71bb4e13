"""One stage of learning a joint embedding: its cached features, its batches, and its validation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Int64
from torch import Tensor

from limner.evaluation.report import Report
from limner.inference.precision import Arithmetic
from limner.training.events import Listener, Preparing
from limner.training.mining import Bank
from limner.training.objective import Objective
from limner.training.pairs import Batch, epoch_batches, generator, pairs_per_epoch, steps_per_epoch
from limner.training.pictures import ahead, encode_all
from limner.training.setup import Prepared
from limner.training.stage import Stage
from limner.training.validation import validate, validate_reranked


class EmbeddingStage(Stage):
    """A stage of learning the embedding."""

    objective: Objective

    def __init__(
        self,
        data: Prepared,
        index: int,
        classes: Int64[np.ndarray, " images"],
        accelerator: Accelerator,
        precision: Arithmetic,
        listener: Listener,
    ) -> None:
        super().__init__(data, index, classes, accelerator, precision, listener)
        self.objective = data.objective
        self.objective.use(self.stage.losses, pairs_per_epoch(data.pairs, self.stage))
        self._mined: Bank | None = None
        self.parts = self.objective.parts()
        self._freeze(self.model.backbone)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return steps_per_epoch(self.data.pairs, self.stage)

    def read_features(self) -> None:
        """Compute or open the cached features, where the stage has any; the pictures themselves are then forgotten."""
        self.train_cached, self.val_cached = self._cached()
        if self.train_cached is not None:
            self.data.train_pictures.forget()
            self.data.val_pictures.forget()

    def start(self) -> None:
        """What a stage that begins, and is not resumed, takes from the network as it stands."""
        if self.index == 0 and self.data.recipe.classifier_start == "images":
            self._start_classifier()
        if self.stage.losses.cmce:
            self._fill_buffers()

    def train_mode(self) -> None:
        """Training mode, but for what is frozen."""
        self.objective.train()
        self.model.eval_parts(self.stage.frozen)

    def inputs(self, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches of an epoch: pairs and what the objective takes of them; this process's share of each."""
        stage, index, seed = self.stage, self.index, self.data.recipe.seed
        pairs, words = self.data.pairs, self.data.recipe.model.text.words
        if stage.losses.cmce and stage.losses.refill and epoch and epoch % stage.losses.refill == 0:
            self._fill_buffers()
        self._mined = self._bank() if stage.losses.ranking and stage.losses.candidates else None
        batches = epoch_batches(pairs, stage, words, generator(seed, index, epoch))
        share = slice(self.accelerator.process_index, None, self.accelerator.num_processes)

        def make(item: tuple[int, Batch]) -> tuple[int, dict[str, Any]]:
            step, whole = item
            batch = Batch(
                whole.images[share], whole.sentences[share], whole.token_ids[share], whole.groups[share]
            )
            rng = generator(seed, index, epoch, step, self.accelerator.process_index)
            extra, texts, inputs = self._beside(batch, rng)
            numbers = batch.token_ids
            if len(texts):
                numbers = np.concatenate([numbers, self._laid_out(texts, rng)])
            inputs["groups"] = torch.from_numpy(batch.groups)
            inputs["classes"] = torch.from_numpy(self.classes[batch.images])
            inputs["numbers"] = torch.from_numpy(numbers)
            inputs["pictures"] = self._pictures(np.concatenate([batch.images, extra]), epoch, step, rng)
            return len(batch.images), {
                name: value.to(self.accelerator.device) for name, value in inputs.items()
            }

        return ahead(enumerate(batches), make)

    def _beside(
        self, batch: Batch, rng: np.random.Generator
    ) -> tuple[Int64[np.ndarray, " images"], Int64[np.ndarray, " texts"], dict[str, Any]]:
        """Pictures and sentences that the losses need beside a batch, by numbers, and what is to be said of them."""
        if self._mined is None:
            none = np.empty(0, np.int64)
            return none, none, {}
        pairs, count = self.data.pairs, self.stage.losses.candidates
        texts = self._mined.hard_texts(batch.images, count, rng)
        images = self._mined.hard_images(batch.sentences, count, rng)
        inputs = {
            "extra_image_groups": torch.from_numpy(pairs.groups[images]),
            "extra_text_groups": torch.from_numpy(pairs.groups[pairs.sentence_image[texts]]),
        }
        return images, texts, inputs

    def _pictures(
        self, images: Int64[np.ndarray, " rows"], epoch: int, step: int, rng: np.random.Generator
    ) -> Tensor:
        """One view of each: cached, or new pixels."""
        cached, stage = self.train_cached, self.stage
        if cached is not None:
            return torch.from_numpy(cached[images, rng.integers(cached.shape[1], size=len(images))])
        # with every sentence in an epoch, a picture comes several times and should look different
        where = (self.index, epoch) if stage.sentences == "one" else (self.index, epoch, step)
        pixels = self.data.train_pictures.random(images, self.data.recipe.seed, *where)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)

    def _laid_out(
        self, sentences: Int64[np.ndarray, " rows"], rng: np.random.Generator
    ) -> Int64[np.ndarray, "rows words"]:
        words = self.data.recipe.model.text.words
        return self.data.pairs.layout(sentences, words, rng if self.stage.position_shift else None)

    def after_step(self) -> None:
        """What the losses remember of the batch, and what the network's weights are held to."""
        self.objective.remember(self.accelerator.gather)
        self.model.after_step()

    def validate(self) -> Report:
        """Both directions on the validation split, by the network as it stands: re-ranked where it re-ranks itself."""
        encoding = self._encoding()
        if self.data.recipe.rerank == 0 or self.model.reranked_by is None:
            return validate(self.data, encoding, self.val_cached)
        reranker, texts = self._reranker(), encoding.numbers(self.data.val_tokens.token_ids)
        if self.val_cached is None:
            images = encode_all(self.data.val_pictures, encoding)
            return validate_reranked(self.data, reranker, images, texts, None)
        images = encoding.cached(self.val_cached[:, : self.data.recipe.images.test_views])
        return validate_reranked(self.data, reranker, images, texts, self.val_cached[:, 0])

    def _cached(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """What is cached of both splits while the backbone is frozen, all or in part, and the stage allows it."""
        stage, data, backbone = self.stage, self.data, self.model.backbone
        if not stage.views or ("backbone" not in stage.frozen and stage.backbone_from is None):
            return None, None
        until, views = stage.backbone_from or self.model.cached_map, data.recipe.images.test_views
        return (
            self._views("training features", backbone, data.train_pictures, stage.views, until),
            self._views("validation features", backbone, data.val_pictures, views, until),
        )

    def _bank(self) -> Bank:
        """Embeddings of the training split as the network stands now."""
        pairs, pictures = self.data.pairs, self.data.train_pictures
        encoding, cached = self._encoding(), self.train_cached
        images = encoding.cached(cached[:, :1]) if cached is not None else encode_all(pictures, encoding)
        numbers = pairs.layout(np.arange(len(pairs.sentences)), self.data.recipe.model.text.words, None)
        texts = encoding.numbers(numbers)
        return Bank(images, pairs.groups, texts, pairs.groups[pairs.sentence_image])

    @torch.no_grad()
    def _start_classifier(self) -> None:
        """Rows of W at the mean embedding of their class's pictures, at the scale that random rows have."""
        means = torch.zeros_like(self.objective.classifier.weight, device="cpu")
        means.index_add_(0, torch.from_numpy(self.classes), self._bank().images)
        unit = torch.nn.functional.normalize(means - means.mean(dim=0), dim=1)
        self.objective.classifier.weight.copy_(unit)

    def _fill_buffers(self) -> None:
        """CMCE's buffers before the first step: the mean feature of each identity, by the network as it stands."""
        assert self.objective.cmce is not None
        self.listener(Preparing("feature buffers", 0, 1))
        bank = self._bank()
        of_images = torch.from_numpy(self.classes)
        of_texts = torch.from_numpy(self.classes[self.data.pairs.sentence_image])
        self.objective.cmce.fill(
            *(part.to(self.accelerator.device) for part in (bank.images, of_images, bank.texts, of_texts))
        )
