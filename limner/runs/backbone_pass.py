"""What a backbone makes of decoded pictures at test."""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from limner.errors import DataError
from limner.models.backbones import ImageEncoder, folded
from limner.runs.precision import Precision, autocast, pick_precision


class BackbonePass:
    """Runs a copy of a backbone with its batch norm folded; a backbone that has learnt since needs a new one."""

    def __init__(self, backbone: ImageEncoder, precision: Precision = "auto") -> None:
        self.device = backbone.pixel_mean.device
        self.precision = pick_precision(precision, self.device)
        self.backbone = folded(backbone)

    @torch.inference_mode()
    def pool(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Float[Tensor, "images channels"]:
        """Pooled features of cropped pictures, on the network's device."""
        with autocast(self.precision, self.device):
            pooled: Tensor = self.backbone(self._block(pixels))
        return pooled

    @torch.inference_mode()
    def map_until(
        self, pixels: UInt8[np.ndarray, "images height width 3"], layer: str
    ) -> Float[Tensor, "images _height _width channels"]:
        """The map that a layer reads (or `LAST_MAP`), channels last, on the network's device."""
        with autocast(self.precision, self.device):
            return self.backbone.forward_until(self._block(pixels), layer).permute(0, 2, 3, 1)

    def _block(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device).permute(0, 3, 1, 2)


def halved(
    features: Float[Tensor, "images ..."], what: str = "the backbone's features"
) -> Float[np.ndarray, "images ..."]:
    """Features as they are kept, in half precision. Raises `DataError` for values that it cannot hold."""
    half: Float[np.ndarray, "images ..."] = features.half().cpu().numpy()
    if not np.isfinite(half).all():
        raise DataError(
            f"{what} are NaN or beyond what half precision holds (65,504); its weights have diverged "
            "or do not fit its pixel normalisation"
        )
    return half
