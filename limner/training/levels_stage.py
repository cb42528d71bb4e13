"""One stage of learning HGAN: the embedding of whole pictures and sentences, words and phrases, all at once.

Source: Zheng et al., MM 2020, section 3.4.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from limner.evaluation.report import Report
from limner.evaluation.reranking import PairReranking, remembered
from limner.inference.level_matching import LevelMatching
from limner.models.hgan import HGAN
from limner.models.image import LAST_MAP
from limner.training.embedding_stage import EmbeddingStage
from limner.training.events import Preparing
from limner.training.pairs import Batch
from limner.training.pictures import centred_blocks, encode_all
from limner.training.sentence_features import SentenceFeatures, sentence_features
from limner.training.validation import evaluate_val
from limner.types import Maps


class LevelsStage(EmbeddingStage):
    """A stage of learning the embedding and the levels below it; validation ranks by all of them."""

    cached_of_frozen = LAST_MAP

    def read_features(self) -> None:
        """What is cached of pictures, and of sentences where BERT is held fixed."""
        super().read_features()
        self.words_below = self._words_below()

    def _words_below(self) -> SentenceFeatures | None:
        """What BERT gives for the training sentences, while it is frozen and the stage allows a cache."""
        bert = self.hgan.text.bert
        if bert is None or not self.stage.views or "bert" not in self.stage.frozen:
            return None
        with self.accelerator.main_process_first():
            return sentence_features(
                bert,
                self.data.pairs.sentences,
                self.data.recipe.model.text.words,
                precision=self.precision,
                report=lambda done, total: self.listener(Preparing("sentence features", done, total)),
            )

    @property
    def hgan(self) -> HGAN:
        """The network."""
        assert isinstance(self.model, HGAN)
        return self.model

    def inputs(self, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches of an epoch; the temperature of the selection is set when each one's step comes."""
        for step, batch in enumerate(super().inputs(epoch)):
            self.hgan.anneal((epoch + step / self.steps) / self.stage.epochs)
            yield batch

    def _beside(
        self, batch: Batch, rng: np.random.Generator
    ) -> tuple[Int64[np.ndarray, " images"], Int64[np.ndarray, " texts"], dict[str, Any]]:
        """Nothing but the numbers of the phrases, and the words' features where they are cached."""
        none = np.empty(0, np.int64)
        pairs, words = self.data.pairs, self.data.recipe.model.text.words
        phrases = np.zeros_like(batch.token_ids)
        if pairs.phrases is not None:
            phrases = pairs.phrase_layout(batch.sentences, words)
        inputs = {"phrases": torch.from_numpy(phrases)}
        if self.words_below is not None:
            inputs["words_below"] = torch.from_numpy(self.words_below.rows(batch.sentences, words))
        return none, none, inputs

    def validate(self) -> Report:
        """Both directions on the validation split, all levels of all pairs, or of the first that the recipe names."""
        data, encoding, first = self.data, self._encoding(), self.data.recipe.rerank
        if first == 0 or not self.hgan.settings.levels:
            return super().validate()
        matching = LevelMatching(self.hgan, self.precision)
        images, maps = self._val_pictures(matching)
        texts = encoding.numbers(data.val_tokens.token_ids)
        match = matching.scorer(images.numpy(), texts.numpy(), maps, data.val_tokens)
        known = remembered(match, len(images), len(texts))
        return evaluate_val(data, images, texts, PairReranking(known, first))

    def _val_pictures(self, matching: LevelMatching) -> tuple[Tensor, Maps]:
        """Embeddings and regions."""
        encoding = self._encoding()
        if self.val_cached is not None:
            views = self.val_cached[:, : self.data.recipe.images.test_views]
            return encoding.cached(views), matching.maps_of_cached(self.val_cached[:, 0])
        pictures = self.data.val_pictures
        regions = np.concatenate([matching.maps(block) for block in centred_blocks(pictures)])
        return encode_all(pictures, encoding), regions
