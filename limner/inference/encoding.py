"""Embeddings of a network: the test-time path that validation, evaluation and search all share."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from limner.data.kept_rows import KeptRows
from limner.data.token_rows import place_evenly
from limner.data.transforms import scaled_views
from limner.inference.image_engine import BackbonePass
from limner.inference.precision import InferenceEngine, Precision, autocast, pick_precision
from limner.models.dual_encoder import DualEncoder

SENTENCES = 256
"""Sentences encoded at once."""


class Encoding:
    """Encodes with a network in eval mode: average of the plain and the flipped picture, L2 norm, hub correction.

    Source: dual-path TOMM 2020, section 6.2. **Decided**: the two f_img are averaged before they are
    normalised, and with `scales` those of all sizes (`ImageSettings.test_scales`). The network's mode is restored
    afterwards, so that training can validate with it; the image backbone runs as a copy with its batch norm folded,
    taken at the first picture, so a network that has learnt since needs a new `Encoding`. What a network learns by, and
    its hub correction is filled with, is not `corrected`. `places` are the places of a sentence in its row that are
    averaged, 0 = all; None = those of the network's `test_positions`.
    """

    def __init__(
        self,
        model: DualEncoder,
        precision: Precision = "fp32",
        *,
        flip: bool = True,
        scales: tuple[float, ...] = (1.0,),
        batch: int = 64,
        engine: InferenceEngine = "torch",
        corrected: bool = True,
        places: int | None = None,
    ) -> None:
        self.model = model
        self.places = places
        self.dim = model.embedding_dim if corrected else model.dim
        self._unit_images = model.unit_images if corrected else _unit
        self._unit_texts = model.unit_texts if corrected else _unit
        self.device = next(model.parameters()).device
        self.precision = pick_precision(precision, self.device)
        self.flip = flip
        self.scales = scales
        self.batch = batch
        self.engine = engine

    # made for the first image: a user of sentences alone never pays for a second backbone
    @cached_property
    def backbone(self) -> BackbonePass:
        """The folded copy of the image backbone."""
        return BackbonePass(self.model.backbone, self.precision, self.engine)

    @torch.inference_mode()
    def pixels(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Float[Tensor, "images dim"]:
        """Unit embeddings of cropped pictures, on the CPU."""
        rows = []
        for start in range(0, len(pixels), self.batch):
            block = pixels[start : start + self.batch]
            # mirrored here and not in the decoding threads: the view costs no memory until it is handed over
            views = [block, block[:, :, ::-1]] if self.flip else [block]
            sized = (scaled_views(view, scale) for scale in self.scales for view in views)
            rows.append(self._embed([self.backbone.pool(view) for view in sized]))
        return torch.cat(rows) if rows else torch.empty(0, self.dim)

    @torch.inference_mode()
    def cached(self, views: Float[np.ndarray | KeptRows, "images views ..."]) -> Float[Tensor, "images dim"]:
        """Unit embeddings of what the feature cache keeps (`DualEncoder.pool_cached`), averaged over the views.

        The remaining layers of the backbone run unfolded. A memory map is read batch by batch.
        """
        rows = []
        for start in range(0, len(views), self.batch):
            # a copy: torch warns of the read-only memory of a memory map, and would share it
            block = torch.from_numpy(np.array(views[start : start + self.batch])).to(self.device)
            with evaluating(self.model), autocast(self.precision, self.device):
                pooled = [self.model.pool_cached(view) for view in block.unbind(1)]
            rows.append(self._embed(pooled))
        return torch.cat(rows) if rows else torch.empty(0, self.dim)

    def _embed(self, pooled: list[Tensor]) -> Tensor:
        with evaluating(self.model), autocast(self.precision, self.device):
            # float32 before the mean: bf16 keeps eight bits of what is added
            embedded = torch.stack([self.model.embed_images(view).float() for view in pooled]).mean(dim=0)
        return self._unit_images(embedded).cpu()

    @torch.inference_mode()
    def token_ids(
        self,
        token_ids: Int64[np.ndarray, "sentences words"],
        words_below: Callable[[range], Float[np.ndarray, "batch words width"]] | None = None,
    ) -> Float[Tensor, "sentences dim"]:
        """Unit embeddings of sentences given as token ids, left-aligned, on the CPU.

        `words_below` gives what `DualEncoder.kept_words` has for some of them, where that was computed before.

        With more places than one (`test_positions`) the embeddings of a sentence's places are averaged before they are
        normalised, as those of a picture's views.
        """
        positions = self.model.text.test_positions if self.places is None else self.places
        rows = []
        for start in range(0, len(token_ids), SENTENCES):
            block = token_ids[start : start + SENTENCES]
            if words_below is not None:
                embedded = self._embed_words(block, words_below(range(start, start + len(block))))
            elif positions == 1:
                embedded = self._embed_words(block)
            else:
                placed, owners = place_evenly(block, positions)
                # a short sentence may have as many places as a row has columns, so memory needs the limit again
                parts = range(0, len(placed), SENTENCES)
                places = torch.cat([self._embed_words(placed[part : part + SENTENCES]) for part in parts])
                owner = torch.from_numpy(owners).to(places.device)
                # the sum has the direction of the mean
                embedded = places.new_zeros(len(block), self.model.dim).index_add_(0, owner, places)
            rows.append(self._unit_texts(embedded).cpu())
        return torch.cat(rows) if rows else torch.empty(0, self.dim)

    def _embed_words(
        self,
        token_ids: Int64[np.ndarray, "rows words"],
        words_below: Float[np.ndarray, "rows kept_words width"] | None = None,
    ) -> Float[Tensor, "rows dim"]:
        below = None if words_below is None else torch.from_numpy(words_below).to(self.device)
        with evaluating(self.model), autocast(self.precision, self.device):
            return self.model.encode_texts(torch.from_numpy(token_ids).to(self.device), below).float()


def _unit(embedded: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    return F.normalize(embedded, dim=1)


class evaluating:  # noqa: N801 - a context, used like a function
    """Eval mode inside, the former mode of each module afterwards."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def __enter__(self) -> None:
        # module by module: a frozen backbone is in eval mode inside a network that trains
        self.were_training = [module for module in self.model.modules() if module.training]
        self.model.eval()

    def __exit__(self, *error: object) -> None:
        for module in self.were_training:
            # the flag alone: `train()` would switch the children along with it
            module.training = True
