"""The reranker by levels: similarities of words and of phrases, as HGAN has them, beside that of whole sentences.

Source: Zheng et al., MM 2020, sections 3.3 and 3.4.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from limner.data.token_rows import longest
from limner.errors import SettingsError
from limner.inference.anchored_pairs import anchored_pairs
from limner.inference.encoding import evaluating
from limner.inference.network_reranker import Block, NetworkReranker, joined
from limner.inference.precision import autocast
from limner.inference.reranker_base import Attended, Scoring
from limner.models.dual_encoder import DualEncoder
from limner.models.levels import LEVELS, Level, LevelledEncoder
from limner.models.local_matching import LocalMatch, Projected
from limner.types import RegionFeatures, TokenBatch

_IMAGES, _SENTENCES = 16, 16
"""Pictures and sentences whose pairs are scored at once: what they make stays in a processor's cache."""

_HELD = 256
"""Sentences whose projections are held at once where pairs are single."""

_HALVED = 1024
"""Pictures whose projections are held at once: with 15 regions, 512 numbers and two levels, 126 MB."""


class LevelsReranker(NetworkReranker):
    """A `limner.types.Reranker`: pairs are scored by words and phrases.

    What is kept of an image is its regions, `region_shape` numbers in half precision: rows and columns of the windows,
    and both granularities behind one another. The first layers of both perceptrons are applied to them once. Attention
    is that of words, None where there is no such granularity, or no selection of that side.
    """

    model: LevelledEncoder

    def _scoring_part(self, model: DualEncoder) -> LevelledEncoder:
        if not isinstance(model, LevelledEncoder) or model.level_settings is None:
            raise SettingsError("this network matches neither words nor phrases to re-rank by")
        self.settings = model.level_settings
        return model

    @property
    def scoring(self) -> Scoring:
        """The weighted sum of the similarities of the sentence and of the levels, whose weights are in `total`."""
        weights = self.settings.scores
        highest = weights.sentence + sum(getattr(weights, level) for level in self.settings.granularities)
        return Scoring((weights.sentence, 1.0), highest, reader="region")

    @property
    def region_shape(self) -> tuple[int, int, int]:
        """Rows and columns of the regions, and the numbers of each."""
        settings = self.settings
        rows, columns = settings.regions.grid
        return rows, columns, len(settings.granularities) * settings.dim

    def cut(
        self, last: Float[Tensor, "images _channels _height _width"]
    ) -> Float[Tensor, "images rows columns numbers"]:
        """The regions of all levels behind one another."""
        with evaluating(self.model), autocast(self.precision, self.device):
            cut = self.model.cut(last)
        # one array a picture, whatever the levels: a store has one column of regions
        joined = torch.cat([cut[level].float() for level in self.model.levels], dim=2)
        return joined.view(len(joined), *self.region_shape)

    @torch.inference_mode()
    def project_pictures(self, regions: RegionFeatures) -> dict[Level, Projected]:
        """Project images: their part of the first layers of all their pairs."""
        levels = self.model.levels
        seen = self._seen(regions)
        with evaluating(self.model), autocast(self.precision, self.device):
            # chunked in the order in which `cut` joined them
            return self.model.project_pictures(dict(zip(levels, seen.chunk(len(levels), dim=2), strict=True)))

    @torch.inference_mode()
    def project_sentences(self, read: TokenBatch) -> dict[Level, Projected]:
        """Project sentences: their part of the first layers of all their pairs."""
        width = longest(read.token_ids)
        token_ids, phrases = (
            torch.from_numpy(np.ascontiguousarray(rows[:, :width])).to(self.device)
            for rows in (
                read.token_ids,
                np.zeros_like(read.token_ids) if read.phrases is None else read.phrases,
            )
        )
        with evaluating(self.model), autocast(self.precision, self.device):
            return self.model.project_sentences(self.model.sentence_parts(token_ids, phrases))

    @torch.inference_mode()
    def similarities(
        self, regions: RegionFeatures, read: TokenBatch
    ) -> Float[np.ndarray, "images sentences"]:
        """The weighted sum of S(V_w, T_w) and S(V_p, T_p) of every picture with every sentence, in blocks.

        Sentences are encoded again for every 1,024 pictures, so that memory does not grow with either.
        """
        found = np.empty((len(regions), len(read)), np.float32)
        for chunk in range(0, len(regions), _HALVED):
            starts = range(chunk, min(chunk + _HALVED, len(regions)), _IMAGES)
            # projected once a chunk: with blocks alone each picture would be projected once a block of sentences
            pictures = [self.project_pictures(regions[start : start + _IMAGES]) for start in starts]
            for first in range(0, len(read), _SENTENCES):
                sentences = self.project_sentences(read[first : first + _SENTENCES])
                for start, projected in zip(starts, pictures, strict=True):
                    with evaluating(self.model):
                        matches = self.model.match(projected, sentences)
                    block = self.total(matches).cpu().numpy()
                    found[start : start + len(block), first : first + _SENTENCES] = block
        return found

    @torch.inference_mode()
    def _attended(self, regions: RegionFeatures, read: TokenBatch) -> Attended:
        sentences = self.project_sentences(read)
        blocks: list[Block] = []
        for start in range(0, len(regions), _IMAGES):
            with evaluating(self.model):
                matches = self.model.match(self.project_pictures(regions[start : start + _IMAGES]), sentences)
            # how each word reads the regions, and each region the words
            word = matches.get("word")
            attention = (None, None) if word is None else (word.of_regions, word.of_items)
            of_regions, of_words = (None if part is None else part[:, 0] for part in attention)
            blocks.append((self.total(matches)[:, 0], of_regions, of_words))
        return joined(blocks)

    def total(self, matches: Mapping[Level, LocalMatch]) -> Float[Tensor, "images sentences"]:
        """The weighted sum over the levels; a sentence without a noun phrase has its words' similarity for both."""
        weights = self.settings.scores
        # in the settings' weights, all 1 unless set (**Decided**: the paper gives no sum)
        total = torch.stack(
            [getattr(weights, level) * match.similarity for level, match in matches.items()]
        ).sum(0)
        if len(matches) == len(LEVELS):
            # else a sentence without a noun phrase would lose the phrases' share of its score against the others
            word, phrase = (matches[level] for level in LEVELS)
            total = torch.where(phrase.counted, total, (weights.word + weights.phrase) * word.similarity)
        return total

    @torch.inference_mode()
    def logits(
        self,
        regions: RegionFeatures,
        read: TokenBatch,
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """The values of `similarities` for pairs given by positions.

        Pairs of all of some images with all of some sentences are scored as one grid, others as one an image or a
        sentence, whichever there are fewer of; each sentence is encoded once a call.
        """
        image_rows, sentence_rows = np.unique(of_images), np.unique(of_sentences)
        # a grid encodes and projects a sentence once; single pairs cost a call for each anchor
        if len(image_rows) * len(sentence_rows) <= 2 * len(of_images):
            grid = self.similarities(regions[image_rows], read[sentence_rows])
            places = np.searchsorted(image_rows, of_images), np.searchsorted(sentence_rows, of_sentences)
            return np.asarray(grid[places])
        found = np.empty(len(of_images), np.float32)
        for held, groups in anchored_pairs(of_images, of_sentences, _HELD):
            # once a sentence: read again for each picture, an evaluation by class took over ten minutes with MiniLM
            # (docs/log/2026-11-22.md)
            sentences = self.project_sentences(read[held])
            for pairs, image_rows, rows in groups:
                pictures = self.project_pictures(regions[image_rows])
                with evaluating(self.model):
                    matches = self.model.match(
                        pictures, {level: projected[rows] for level, projected in sentences.items()}
                    )
                found[pairs] = self.total(matches).flatten().cpu().numpy()
        return found
