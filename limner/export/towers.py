"""The two towers of a model as modules of one input and one output, from pixels or token ids to searched embeddings.

All that `limner.inference.encoding` does around the network is within: mirror image, sizes, normalisation, places of a
sentence, hub correction. What is recorded of them is the whole model but for decoding, resizing and tokenizing.
"""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from limner.data.transforms import ImageSettings
from limner.export.recurrent import with_recorded_lstms
from limner.models.dual_encoder import DualEncoder
from limner.models.hub_correction import HubCorrection
from limner.models.image import folded
from limner.types import PADDING


class ImageTower(nn.Module):
    """Pixels to embeddings, as `Encoding.pixels` in float32.

    Takes RGB of 0 … 255, uint8 or float (images, height, width, 3), as `TrainedModel.prepare_image` gives them.
    """

    def __init__(self, model: DualEncoder, images: ImageSettings) -> None:
        super().__init__()
        self.backbone = folded(model.backbone)
        self.projection = model.image_projection
        self.hub_correction = _trimmed(model)
        self.flip = images.flip
        self.resizers = nn.ModuleList(_Resize(images.crop, scale) for scale in images.test_scales)

    def forward(self, pixels: Tensor) -> Float[Tensor, "images dim"]:
        """Unit embeddings."""
        upright = pixels.to(torch.float32).permute(0, 3, 1, 2)
        views = [upright, upright.flip(3)] if self.flip else [upright]
        embedded = [
            self.projection(self.backbone(resize(view))) for resize in self.resizers for view in views
        ]
        unit = F.normalize(torch.stack(embedded).mean(dim=0), dim=1)
        return unit if self.hub_correction is None else self.hub_correction.of_images(unit)


class TextTower(nn.Module):
    """Token ids to embeddings, as `Encoding.token_ids` in float32.

    Takes int64 (sentences, words), each sentence at the left of its row and `PADDING` behind it.
    """

    def __init__(self, model: DualEncoder) -> None:
        super().__init__()
        self.text = with_recorded_lstms(model.text.folded())
        self.projection = model.text_projection
        self.hub_correction = _trimmed(model)
        self.positions = model.text.test_positions
        self.dim = model.dim

    def forward(self, token_ids: Int64[Tensor, "sentences words"]) -> Float[Tensor, "sentences dim"]:
        """Unit embeddings."""
        embedded = self._embed(token_ids) if self.positions == 1 else self._mean_of_places(token_ids)
        unit = F.normalize(embedded, dim=1)
        return unit if self.hub_correction is None else self.hub_correction.of_texts(unit)

    def _embed(self, token_ids: Tensor) -> Tensor:
        out: Tensor = self.projection(self.text(token_ids))
        return out.float()

    def _mean_of_places(self, token_ids: Tensor) -> Tensor:
        """As `place_evenly`, with a place more for each that a sentence has no room for, which counts nothing."""
        width = token_ids.shape[1]
        count = self.positions or width
        room = width - (token_ids != PADDING).sum(dim=1)
        places = torch.minimum(room + 1, torch.tensor(count))[:, None]
        numbers = torch.arange(count)
        # numpy's linspace: one place alone is the first
        starts = (numbers * room[:, None].double() / (places - 1).clamp(min=1).double()).round().long()
        columns = (torch.arange(width) - starts[:, :, None]) % width
        shifted = token_ids[:, None, :].expand(-1, count, -1).gather(2, columns)
        embedded = self._embed(shifted.flatten(0, 1)).view(-1, count, self.dim)
        # the sum has the direction of the mean
        return (embedded * (numbers < places)[:, :, None]).sum(dim=1)


def _trimmed(model: DualEncoder) -> HubCorrection | None:
    # how many rows of a bank are filled is a value, which a recorded network must not depend on
    return None if model.hub_correction is None else model.hub_correction.trimmed()


class _Resize(nn.Module):
    """Pictures of one size at another, as `scaled_views`: Pillow's bilinear filter, in two rounded passes."""

    def __init__(self, crop: tuple[int, int], scale: float) -> None:
        super().__init__()
        sides = [max(1, round(side * scale)) for side in crop]
        self.is_needed = tuple(sides) != tuple(crop)
        rows, columns = (
            torch.from_numpy(_weights(before, after)) for before, after in zip(crop, sides, strict=True)
        )
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    rows: Tensor
    columns: Tensor

    def forward(self, pictures: Float[Tensor, "images 3 height width"]) -> Tensor:
        """The pictures, whole numbers of 0 … 255 as before."""
        if not self.is_needed:
            return pictures
        # halves up, as Pillow's whole numbers have them
        across = (pictures @ self.columns.T + 0.5).floor()
        return (self.rows @ across + 0.5).floor()


def _weights(before: int, after: int) -> Float[np.ndarray, "after before"]:
    """The share of each pixel of a line in each pixel of the resized line: a triangle as wide as Pillow's."""
    scale = before / after
    # a filter that shrinks takes in all pixels that one of the result covers
    reach = max(scale, 1.0)
    centres = (np.arange(after) + 0.5) * scale
    first = np.maximum(0, np.floor(centres - reach + 0.5)).astype(int)
    last = np.minimum(before, np.floor(centres + reach + 0.5)).astype(int)
    places = np.arange(before)
    shares = np.maximum(0, 1 - np.abs((places + 0.5 - centres[:, None]) / reach))
    shares[(places < first[:, None]) | (places >= last[:, None])] = 0
    weights: np.ndarray = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
    return weights
