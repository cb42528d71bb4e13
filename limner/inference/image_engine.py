"""Image backbones at test, in torch or OpenVINO: decoded images in, features out."""

import threading
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from limner.errors import DataError, SettingsError
from limner.inference.openvino_graphs import openvino_graph
from limner.inference.openvino_library import require_openvino
from limner.inference.precision import Arithmetic, InferenceEngine, Precision, autocast, pick_precision
from limner.models.image import ImageEncoder, folded


# `benchmarks.engines`, one thread, against torch: MobileNetV2 1.82 times as fast in fp32 and 3.01 in bf16,
# ResNet-50 1.78 and 2.82 (docs/log/2026-11-22.md)
class OpenVINOModule:
    """Runs a module of one picture batch (uint8, channels first) that was traced once, for any number of pictures.

    Several times as fast as torch on many CPUs. In fp32 features agree with torch's to 1e-4 of the largest, in bf16
    (where torch rounds as well, at other places) embeddings have a cosine of at least 0.99 with those of fp32.
    """

    def __init__(self, module: nn.Module, size: tuple[int, int], precision: Arithmetic) -> None:
        """`size`: height and width of every picture. Raises `SettingsError` if OpenVINO is not installed."""
        graph = openvino_graph(module, size)
        openvino = require_openvino()
        # always given: by default OpenVINO takes bf16 wherever the processor has it
        hint = {"fp32": "f32", "bf16": "bf16"}[precision]
        # torch's number, so that a limit that was set for torch holds here too
        threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": hint}
        self._compiled: Any = openvino.Core().compile_model(graph, "CPU", threads)
        self._one_at_a_time = threading.Lock()

    def __call__(self, pictures: UInt8[np.ndarray, "images 3 height width"]) -> Float[Tensor, "images ..."]:
        """The module's output for images."""
        # a compiled model has one request and one output buffer; the copy below leaves it before the next call
        with self._one_at_a_time:
            found = self._compiled(np.ascontiguousarray(pictures))[0]
            # np.array copies, out of the buffer that the next call overwrites
            return torch.from_numpy(np.array(found, dtype=np.float32))


class BackbonePass:
    """Runs a copy of a backbone with its batch norm folded; a backbone that has learnt since needs a new one.

    `engine` "openvino" compiles it for the CPU, at the first pictures; `SettingsError` on another device.
    """

    def __init__(
        self, backbone: ImageEncoder, precision: Precision = "fp32", engine: InferenceEngine = "torch"
    ) -> None:
        self.device = backbone.pixel_mean.device
        self.precision = pick_precision(precision, self.device)
        # with bf16, 2.2 times the pictures a second of plain fp32 (docs/log/2026-11-20.md, MobileNetV2)
        self.backbone = folded(backbone)
        self.engine = engine
        if engine == "openvino" and self.device.type != "cpu":
            raise SettingsError(
                f"engine 'openvino' computes on the CPU, the model is on {self.device}; take --cpu"
            )
        # by size as well: the trace leaves nothing open but the number of pictures
        self._compiled: dict[tuple[str, tuple[int, int]], OpenVINOModule] = {}

    @torch.inference_mode()
    def pool(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Float[Tensor, "images channels"]:
        """Pooled features of cropped pictures, on the network's device."""
        if self.engine == "openvino":
            return self._by_openvino("pooled", self.backbone, pixels)
        with autocast(self.precision, self.device):
            pooled: Tensor = self.backbone(self._block(pixels))
        return pooled

    @torch.inference_mode()
    def map_until(
        self, pixels: UInt8[np.ndarray, "images height width 3"], layer: str
    ) -> Float[Tensor, "images _height _width channels"]:
        """The map that a layer reads (or `LAST_MAP`), channels last, on the network's device."""
        if self.engine == "openvino":
            return self._by_openvino(layer, _Until(self.backbone, layer), pixels).permute(0, 2, 3, 1)
        with autocast(self.precision, self.device):
            return self.backbone.forward_until(self._block(pixels), layer).permute(0, 2, 3, 1)

    def _by_openvino(
        self, name: str, module: nn.Module, pixels: UInt8[np.ndarray, "images height width 3"]
    ) -> Float[Tensor, "images ..."]:
        height, width = pixels.shape[1:3]
        if (name, (height, width)) not in self._compiled:
            self._compiled[name, (height, width)] = OpenVINOModule(module, (height, width), self.precision)
        return self._compiled[name, (height, width)](pixels.transpose(0, 3, 1, 2))

    def _block(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Tensor:
        # copied: a mirrored view has a negative stride, which torch refuses. Permuted last, the memory stays
        # channels-last, as the folded weights are
        return torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device).permute(0, 3, 1, 2)


class _Until(nn.Module):
    """A backbone up to the map that a layer reads."""

    def __init__(self, backbone: ImageEncoder, layer: str) -> None:
        super().__init__()
        self.backbone = backbone
        self.layer = layer

    def forward(self, pixels: UInt8[Tensor, "images 3 height width"]) -> Float[Tensor, "images ..."]:
        """The map, channels first."""
        return self.backbone.forward_until(pixels, self.layer)


# two bytes a number: VGG-16's 7 × 7 × 512 map of a picture takes 50 kB of a store
def to_half(
    features: Float[Tensor, "images ..."], what: str = "the backbone's features"
) -> Float[np.ndarray, "images ..."]:
    """Features in half precision, for the cache. Raises `DataError` for values that half precision cannot hold."""
    half: Float[np.ndarray, "images ..."] = features.half().cpu().numpy()
    # checked after the cast, which makes a finite number above 65,504 infinite
    if not np.isfinite(half).all():
        raise DataError(
            f"{what} are NaN or beyond what half precision holds (65,504); its weights have diverged "
            "or do not fit its pixel normalisation"
        )
    return half
