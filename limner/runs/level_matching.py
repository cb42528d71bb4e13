"""HGAN's levels below the sentence at test: what validation, evaluation and search share when they score pairs.

Source: Zheng et al., MM 2020, sections 3.3 and 3.4.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from limner.data.read_sentences import ReadSentences
from limner.data.vocabulary import longest
from limner.evaluation.reranking import Match
from limner.inference.backbone_pass import BackbonePass, to_half
from limner.inference.encoding import evaluating
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.models.dual_encoder import DualEncoder
from limner.models.hgan import HGAN, LEVELS, Level
from limner.models.image import LAST_MAP
from limner.models.local_matching import LocalMatch, Projected
from limner.types import Maps

_IMAGES, _SENTENCES = 16, 16
"""Pictures and sentences whose pairs are scored at once: what they make stays in a processor's cache."""

_HELD = 256
"""Sentences whose halves are held at once where pairs are single."""

_HALVED = 1024
"""Pictures whose halves are held at once: with 15 regions, 512 numbers and two levels, 126 MB."""


def pair_scorer_of(model: DualEncoder, precision: Precision) -> "LevelMatching | None":
    """What scores pairs of a network that is more than an embedding; None for one that is not."""
    return LevelMatching(model, precision) if isinstance(model, HGAN) and model.settings.levels else None


class LevelMatching:
    """Scores pairs of pictures and sentences by words and phrases, with HGAN in eval mode.

    A network that has learnt since needs a new one. Regions are those of the picture as it is, without its mirror
    image. What is kept of a picture is its regions, `map_shape` numbers in half precision: rows and columns of the
    windows, and both levels behind one another. The halves of the perceptrons' first layers are made of them once.
    """

    def __init__(self, model: HGAN, precision: Precision = "auto", engine: InferenceEngine = "torch") -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.precision = pick_precision(precision, self.device)
        self.engine = engine

    @cached_property
    def backbone(self) -> BackbonePass:
        """The folded copy of the backbone."""
        return BackbonePass(self.model.backbone, self.precision, self.engine)

    @property
    def map_shape(self) -> tuple[int, int, int]:
        """Rows and columns of the regions, and the numbers of each."""
        settings = self.model.settings
        rows, columns = settings.regions.grid
        return rows, columns, len(settings.levels) * settings.text.dim

    @torch.inference_mode()
    def maps(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Maps:
        """The regions of cropped pictures. Raises `DataError` for values beyond half precision."""
        return self._regions(self.backbone.map_until(pixels, LAST_MAP))

    @torch.inference_mode()
    def maps_of_cached(self, cached: Float[np.ndarray, "images _height _width _channels"]) -> Maps:
        """The regions from what the feature cache keeps: last maps, or those that a learning layer reads."""
        rows = []
        for start in range(0, len(cached), 64):
            block = torch.from_numpy(np.array(cached[start : start + 64])).to(self.device)
            with evaluating(self.model), autocast(self.precision, self.device):
                last = self.model.read_map(block)
            rows.append(self._regions(last.permute(0, 2, 3, 1)))
        return np.concatenate(rows)

    def _regions(self, last: Float[Tensor, "images _height _width _channels"]) -> Maps:
        with evaluating(self.model), autocast(self.precision, self.device):
            cut = self.model.cut(last.permute(0, 3, 1, 2))
        joined = torch.cat([cut[level].float() for level in self.model.settings.levels], dim=2)
        return to_half(joined.view(len(joined), *self.map_shape), "the features of the regions")

    @torch.inference_mode()
    def project_pictures(self, maps: Maps) -> dict[Level, Projected]:
        """What pictures bring to their pairs."""
        levels = self.model.settings.levels
        regions = torch.from_numpy(np.array(maps)).to(self.device).float().flatten(1, 2)
        with evaluating(self.model), autocast(self.precision, self.device):
            return self.model.project_pictures(
                dict(zip(levels, regions.chunk(len(levels), dim=2), strict=True))
            )

    @torch.inference_mode()
    def project_sentences(self, read: ReadSentences) -> dict[Level, Projected]:
        """What sentences bring to their pairs."""
        width = longest(read.numbers)
        numbers, phrases = (
            torch.from_numpy(np.ascontiguousarray(rows[:, :width])).to(self.device)
            for rows in (read.numbers, np.zeros_like(read.numbers) if read.phrases is None else read.phrases)
        )
        with evaluating(self.model), autocast(self.precision, self.device):
            return self.model.project_sentences(self.model.text.encode(numbers, phrases))

    @torch.inference_mode()
    def similarities(self, maps: Maps, read: ReadSentences) -> Float[np.ndarray, "images sentences"]:
        """The weighted sum of S(V_w, T_w) and S(V_p, T_p) of every picture with every sentence, in blocks.

        Sentences are encoded again for every 1,024 pictures, so that memory does not grow with either.
        """
        found = np.empty((len(maps), len(read)), np.float32)
        for chunk in range(0, len(maps), _HALVED):
            starts = range(chunk, min(chunk + _HALVED, len(maps)), _IMAGES)
            pictures = [self.project_pictures(maps[start : start + _IMAGES]) for start in starts]
            for first in range(0, len(read), _SENTENCES):
                sentences = self.project_sentences(read[first : first + _SENTENCES])
                for start, halves in zip(starts, pictures, strict=True):
                    with evaluating(self.model):
                        matches = self.model.match(halves, sentences)
                    block = self._total(matches).cpu().numpy()
                    found[start : start + len(block), first : first + _SENTENCES] = block
        return found

    @torch.inference_mode()
    def explained(
        self, maps: Maps, read: ReadSentences
    ) -> tuple[
        Float[np.ndarray, " images"],
        Float[np.ndarray, "images regions items"] | None,
        Float[np.ndarray, "images items regions"] | None,
    ]:
        """For one sentence what `similarities` has, each region's weights over its words, each word's over the regions.

        Weights are those of the word level, None where there is no such level or direction.
        """
        sentences = self.project_sentences(read)
        totals: list[np.ndarray] = []
        of_items: list[np.ndarray] = []
        of_regions: list[np.ndarray] = []
        for start in range(0, len(maps), _IMAGES):
            with evaluating(self.model):
                pictures = self.project_pictures(maps[start : start + _IMAGES])
                matches = self.model.match(pictures, sentences)
            totals.append(self._total(matches)[:, 0].cpu().numpy())
            if "word" in matches:
                for found, weights in (
                    (of_items, matches["word"].of_items),
                    (of_regions, matches["word"].of_regions),
                ):
                    if weights is not None:
                        found.append(weights[:, 0].cpu().numpy())
        return (
            np.concatenate(totals),
            np.concatenate(of_items) if of_items else None,
            np.concatenate(of_regions) if of_regions else None,
        )

    def _total(self, matches: Mapping[Level, LocalMatch]) -> Float[Tensor, "images sentences"]:
        """The weighted sum over the levels; a sentence without a noun phrase has its words' similarity for both."""
        weights = self.model.settings.scores
        total = torch.stack(
            [getattr(weights, level) * match.similarity for level, match in matches.items()]
        ).sum(0)
        if len(matches) == len(LEVELS):
            word, phrase = (matches[level] for level in LEVELS)
            total = torch.where(phrase.counted, total, (weights.word + weights.phrase) * word.similarity)
        return total

    def scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        maps: Maps,
        read: ReadSentences,
    ) -> Match:
        """Scores of pairs given by positions, all levels together.

        Pairs of all of some pictures with all of some sentences are scored as one grid, others as one a picture or a
        sentence, whichever there are fewer of; each sentence is encoded once a call.
        """
        weight = self.model.settings.scores.sentence

        def score(
            of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
        ) -> Float[np.ndarray, " pairs"]:
            shown, said = np.unique(of_images), np.unique(of_sentences)
            if len(shown) * len(said) <= 2 * len(of_images):
                grid = self.similarities(maps[shown], read[said])
                levels = grid[np.searchsorted(shown, of_images), np.searchsorted(said, of_sentences)]
            else:
                levels = self._of_pairs(maps, read, of_images, of_sentences)
            cosines = np.einsum("pd,pd->p", images[of_images], texts[of_sentences])
            return np.asarray(levels + weight * cosines, np.float32)

        return score

    @torch.inference_mode()
    def _of_pairs(
        self,
        maps: Maps,
        read: ReadSentences,
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """What `similarities` has of single pairs."""
        found = np.empty(len(of_images), np.float32)
        said = np.unique(of_sentences)
        by_image = len(np.unique(of_images)) <= len(said)
        for start in range(0, len(said), _HELD):
            held = said[start : start + _HELD]
            sentences = self.project_sentences(read[held])
            inside = np.flatnonzero(np.isin(of_sentences, held))
            anchors = (of_images if by_image else of_sentences)[inside]
            for one in np.unique(anchors):
                pairs = inside[anchors == one]
                shown = of_images[pairs][:1] if by_image else of_images[pairs]
                rows = np.searchsorted(held, of_sentences[pairs] if by_image else of_sentences[pairs][:1])
                pictures = self.project_pictures(maps[shown])
                with evaluating(self.model):
                    matches = self.model.match(
                        pictures, {level: halves[rows] for level, halves in sentences.items()}
                    )
                found[pairs] = self._total(matches).flatten().cpu().numpy()
        return found
