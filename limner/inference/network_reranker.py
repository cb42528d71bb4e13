"""The part of a reranker that is the same for all networks: its arithmetic, and the regions of pictures."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from limner.data.transforms import ImageSettings
from limner.inference.encoding import evaluating
from limner.inference.image_engine import BackbonePass, to_half
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.inference.reranker_base import Attended, RerankerBase
from limner.models.dual_encoder import DualEncoder
from limner.models.image import LAST_MAP
from limner.types import RegionFeatures, TokenBatch, Tokenizer

_CACHED = 64
"""Cached maps that are read at once."""

Block = tuple[Tensor, Tensor | None, Tensor | None]
"""`Attended` of some images, still on their device."""


class NetworkReranker(RerankerBase):
    """A `limner.types.Reranker` of a network in eval mode, whose regions are cut from a backbone's last map.

    A network that has learnt since needs a new one, as the backbone runs as a folded copy. Raises `SettingsError` for a
    network without what scores pairs.

    **Decided**: regions are those of the image as it is, without its mirror image, whose regions would lie elsewhere.
    """

    model: DualEncoder

    def __init__(
        self,
        model: DualEncoder,
        tokenizer: Tokenizer,
        images: ImageSettings,
        precision: Precision = "fp32",
        engine: InferenceEngine = "torch",
    ) -> None:
        self.model, self._tokenizer, self._images, self._engine = model, tokenizer, images, engine
        self.network = self._scoring_part(model)
        self.device = next(self.network.parameters()).device
        self.precision = pick_precision(precision, self.device)

    @abstractmethod
    def _scoring_part(self, model: DualEncoder) -> Any:
        """The module of scores, with the `backbone` of regions. Raises `SettingsError` if the network has none."""

    # made when a picture is to be cut into regions: a search reads them from the store and needs no backbone
    @cached_property
    def backbone(self) -> BackbonePass:
        """The folded copy of the backbone."""
        return BackbonePass(self.network.backbone, self.precision, self._engine)

    @cached_property
    def region_shape(self) -> tuple[int, int, int]:
        """Rows and columns of an image's regions, and the numbers of each."""
        # the backbone says it by an image: strides and padding differ from network to network
        blank = np.zeros((1, *self._images.crop, 3), np.uint8)
        rows, columns, numbers = self.region_features(blank).shape[1:]
        return rows, columns, numbers

    @torch.inference_mode()
    def region_features(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> RegionFeatures:
        """The regions of cropped images. Raises `DataError` for values beyond half precision."""
        return self._kept(self.backbone.map_until(pixels, LAST_MAP).permute(0, 3, 1, 2))

    @torch.inference_mode()
    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """The regions from cached features: last maps, or the maps that a learning layer reads."""
        rows = []
        for start in range(0, len(cached), _CACHED):
            # a copy: torch warns of read-only memory, which a memory map is
            block = torch.from_numpy(np.array(cached[start : start + _CACHED])).to(self.device)
            with evaluating(self.network), autocast(self.precision, self.device):
                last = self.network.backbone.read_map(block)
            rows.append(self._kept(last))
        return np.concatenate(rows)

    def _kept(self, last: Float[Tensor, "images _channels _height _width"]) -> RegionFeatures:
        return to_half(self.cut(last), "the features of the regions")

    @abstractmethod
    def cut(
        self, last: Float[Tensor, "images _channels _height _width"]
    ) -> Float[Tensor, "images rows columns numbers"]:
        """The regions in the last map of images."""

    def _seen(self, regions: RegionFeatures) -> Float[Tensor, "images regions numbers"]:
        # half precision is what travels, float32 what is computed with; regions may be a read-only memory map
        return torch.from_numpy(np.array(regions)).to(self.device).float().flatten(1, 2)

    def _tokenized(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        return self.model.tokenize(sentences, self._tokenizer, words=words)


def joined(blocks: Sequence[Block]) -> Attended:
    """The arrays of all blocks behind one another."""
    logits, of_regions, of_words = (
        None if parts[0] is None else torch.cat(parts).float().cpu().numpy()
        for parts in zip(*blocks, strict=True)
    )
    assert logits is not None
    return logits, of_regions, of_words
