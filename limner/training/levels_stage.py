"""One stage of learning HGAN: the embedding of whole pictures and sentences, words and phrases, all at once.

Source: Zheng et al., MM 2020, section 3.4.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from limner.models.hgan import HGAN
from limner.training.embedding_stage import EmbeddingStage
from limner.training.events import Preparing
from limner.training.pairs import Batch
from limner.training.sentence_features import SentenceFeatures, sentence_features


class LevelsStage(EmbeddingStage):
    """A stage of learning the embedding and the levels below it."""

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
