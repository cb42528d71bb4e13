"""The features of a frozen text layer for each training sentence, computed once and kept on disk.

They depend on the sentence alone, so a stage that holds the layer fixed reads them from a file in place of running it
in every step. Values are float16: of BERT's words, 6,000 sentences of 25 words × 1,536 numbers take 461 MB; of a text
tower that gives one feature a sentence, 30,000 × 384 take 23 MB.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64

from limner.data.kept_rows import KeptRows
from limner.data.token_rows import lay_out
from limner.inference.image_engine import to_half
from limner.inference.precision import Arithmetic, autocast
from limner.models.text_encoder import FixedText
from limner.training.cache_entries import Report, kept_array

_BLOCK = 64
# 1,024 sentences: each note flushes the file.
_NOTED = 16
"""Blocks after which the computation could be taken up again."""


class SentenceFeatures:
    """The features of sentences or of their words, one behind the other, in a file that is read where it is needed."""

    def __init__(
        self,
        words: Float[KeptRows, "words channels"],
        ends: Int64[np.ndarray, " sentences"],
        *,
        of_sentences: bool = False,
    ) -> None:
        self._words = words
        self._of_sentences = of_sentences
        # Ends alone: a sentence begins where the one before it ends.
        self._ends = ends

    def rows(
        self, chosen: Int64[np.ndarray, " batch"], length: int
    ) -> Float[np.ndarray, "batch length channels"]:
        """The words of some sentences where `TrainingPairs.layout` has their token ids without a shift, 0 elsewhere.

        Of a layer that gives one feature a sentence, that one, whatever the length.
        """
        if self._of_sentences:
            return np.asarray(self._words[chosen])[:, None]
        found = np.zeros((len(chosen), length, self._words.shape[1]), np.float16)
        for row, sentence in enumerate(chosen):
            first = self._ends[sentence - 1] if sentence else 0
            features = np.asarray(self._words[first : self._ends[sentence]])
            found[row, : len(features)] = features
        return found


def sentence_features(
    layer: FixedText,
    sentences: tuple[tuple[int, ...], ...],
    length: int,
    *,
    precision: Arithmetic,
    report: Report | None = None,
    folder: Path | None = None,
) -> SentenceFeatures:
    """Features of each sentence's first `length` words, read from the cache or computed by `layer`.

    The key covers the layer's weights and settings, the sentences and the arithmetic. Sentences
    are encoded in blocks of their own order, so that the same come out however often it is interrupted. Raises
    `DataError` as `kept_array` does.
    """
    # Words that a row cannot hold are not kept.
    kept_of = [1 if layer.of_sentences else min(len(sentence), length) for sentence in sentences]
    ends = np.cumsum(kept_of, dtype=np.int64)

    def fill(store: np.ndarray, done: int, complete: Callable[[int, int], None]) -> None:
        device = next(layer.parameters()).device
        # Put back below: the stage has its own idea of what trains.
        training = layer.training
        layer.eval()
        for number, start in enumerate(range(done, len(sentences), _BLOCK), start=1):
            upto = min(start + _BLOCK, len(sentences))
            # No shift: a word's feature depends on its place, and rows are read without one.
            token_ids = lay_out(sentences[start:upto], length)
            with torch.inference_mode(), autocast(precision, device):
                found = layer(torch.from_numpy(token_ids).to(device))
            if not layer.of_sentences:
                # The mask of words that are there, so that only these take room.
                kept = np.arange(length) < np.array([[len(sentence)] for sentence in sentences[start:upto]])
                found = found[torch.from_numpy(kept).to(device)]
            rows = to_half(found, "the text layer's features")
            store[ends[start - 1] if start else 0 : ends[upto - 1]] = rows
            if number % _NOTED == 0 or upto == len(sentences):
                # Counted in sentences, since that is where the loop takes up again.
                complete(upto, int(ends[upto - 1]))
            if report is not None:
                report(upto, len(sentences))
        layer.train(training)

    words = kept_array(
        _key(layer, sentences, length, precision),
        lambda: (max(1, int(ends[-1])), layer.channels),
        fill,
        what=f"features of {int(ends[-1])} {'sentences' if layer.of_sentences else 'words'}",
        remedy="the stage's views to 0 (no cache)",
        folder=folder,
    )
    return SentenceFeatures(words, ends, of_sentences=layer.of_sentences)


def _key(layer: FixedText, sentences: tuple[tuple[int, ...], ...], length: int, precision: Arithmetic) -> str:
    # The prefix keeps these keys apart from those of image features in the same folder.
    digest = hashlib.sha256(f"words {length} {precision} {layer.settings.model_dump_json()}".encode())
    # A pretrained network's own configuration: the same weights compute something else with another `hidden_act`.
    digest.update(json.dumps(layer.files(), sort_keys=True).encode())
    for name, tensor in sorted(layer.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    for sentence in sentences:
        # With its length, or two sentences could be cut elsewhere and hash alike.
        digest.update(np.array([len(sentence), *sentence], np.int64).tobytes())
    return digest.hexdigest()[:32]
