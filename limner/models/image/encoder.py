"""The base of image backbones: raw pixels in, a feature map or one pooled feature out, freezing, folding."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from limner.errors import SettingsError

PixelBatch = UInt8[Tensor, "batch 3 height width"] | Float[Tensor, "batch 3 height width"]
"""RGB pixels, 0..255, as they were decoded."""

Layer = tuple[str, Callable[[Tensor], Tensor]]
"""A layer by torchvision's name and what it does."""

LAST_MAP = "last map"
"""Stands for the place behind the last layer, where `forward_until` gives what `forward_map` does."""

# typing.Self would say it shorter, but the run-time check of shapes refuses it on single methods.
EncoderT = TypeVar("EncoderT", bound="ImageEncoder")


@dataclass(frozen=True)
class Normalisation:
    """How pixels of 0..255 enter a network: `(pixel - mean) / std`, one value a colour, RGB."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET = Normalisation(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
"""Mean and deviation of ImageNet's training pixels: what torchvision's weights expect."""

TENSORFLOW = Normalisation(mean=(128.0, 128.0, 128.0), std=(128.0, 128.0, 128.0))
"""The range -1..1 of TensorFlow's mobile networks."""


class ImageEncoder(nn.Module, ABC):
    """An image backbone without its classifier.

    - `channels`: width of the pooled feature that `forward` gives.
    - `map_channels`: width of the feature map that `forward_map` gives.

    Parameters carry torchvision's names. They stay in PyTorch's own memory order, since safetensors refuses
    others; only activations are channels-last, which bfloat16 convolutions on CPUs need to be fast.
    """

    classifier_keys: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names that published files hold beyond the feature part."""

    can_fold: ClassVar[bool] = True
    """False for a network without batch norm whose copy for inference shares its weights (`folded`)."""

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self, channels: int, map_channels: int, normalisation: Normalisation) -> None:
        super().__init__()
        self.channels = channels
        self.map_channels = map_channels
        self._frozen = False
        self._learns_from: str | None = None
        self._fixed_statistics = False
        # a parent's train() asks for more than a frozen child
        # does; what was asked last counts again once it may learn
        self._asked_to_train = True
        # Not persistent: weight files of others do not have them.
        self.register_buffer("pixel_mean", torch.tensor(normalisation.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(normalisation.std).view(3, 1, 1), persistent=False)

    @abstractmethod
    def layers(self) -> list[Layer]:
        """The layers between normalised images and the last feature map, in the order in which they are applied.

        A layer without parameters may occur more than once.
        """

    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, the JSON files that a folder must hold to build the same network without its weights.

        The papers' networks are built from their settings alone and need none.
        """
        return {}

    def pool(
        self, feature_map: Float[Tensor, "batch {self.map_channels} height width"]
    ) -> Float[Tensor, "batch {self.channels}"]:
        """One feature a picture: the mean over the map, taken in float32 also under autocast."""
        return feature_map.float().mean(dim=(2, 3))

    def forward_map(self, pixels: PixelBatch) -> Float[Tensor, "batch {self.map_channels} _height _width"]:
        """The last feature map of raw pixels, in autocast's type where the caller applies it."""
        return _apply(self.layers(), self._normalise(pixels))

    def forward(self, pixels: PixelBatch) -> Float[Tensor, "batch {self.channels}"]:
        """The pooled feature of raw pixels, float32 also under autocast."""
        return self.pool(self.forward_map(pixels)).float()

    def forward_with_map(
        self, pixels: PixelBatch
    ) -> tuple[
        Float[Tensor, "batch {self.channels}"], Float[Tensor, "batch {self.map_channels} _height _width"]
    ]:
        """The pooled feature and the last feature map of raw pixels, by one pass."""
        feature_map = self.forward_map(pixels)
        return self.pool(feature_map).float(), feature_map

    def forward_until(
        self, pixels: PixelBatch, layer: str
    ) -> Float[Tensor, "batch _channels _height _width"]:
        """The map that `layer` reads, or `LAST_MAP`, of raw pixels. Raises `SettingsError` for an unknown layer."""
        return _apply(self.layers_before(layer), self._normalise(pixels))

    def forward_from(
        self, feature_map: Float[Tensor, "batch _channels height width"], layer: str
    ) -> Float[Tensor, "batch {self.channels}"]:
        """The pooled feature from the map that `layer` reads: what is left of `forward` behind `forward_until`.

        A layer that works in place (a ReLU) overwrites the map.
        """
        return self.pool(self.map_from(feature_map, layer)).float()

    def map_from(
        self, feature_map: Float[Tensor, "batch _channels height width"], layer: str
    ) -> Float[Tensor, "batch {self.map_channels} _height _width"]:
        """The last feature map from the map that `layer` reads, as `forward_from`."""
        return _apply(self.layers()[self.find_layer(layer) :], feature_map)

    def read_map(self, pictures: Tensor) -> Float[Tensor, "batch channels _height _width"]:
        """The last feature map of raw pixels, uint8, or of what the feature cache keeps of them.

        That is a map with channels last: for the layer `learns_from`, the last one where the encoder does not learn.
        """
        if not pictures.is_floating_point():
            return self.forward_map(pictures)
        # the cache keeps float16 with channels last; the weights
        # are float32, and a convolution wants both of one type
        cached = pictures.permute(0, 3, 1, 2).float()
        return cached if self.learns_from is None else self.map_from(cached, self.learns_from)

    def layers_before(self, layer: str) -> list[Layer]:
        """The layers that are applied before one; all of them for `LAST_MAP`. Raises as `find_layer`."""
        layers = self.layers()
        return layers if layer == LAST_MAP else layers[: self.find_layer(layer)]

    def drop_head(self: EncoderT) -> EncoderT:
        """Remove what only `pool` needs, for those who ask for maps alone."""
        return self

    @property
    def frozen(self) -> bool:
        """True while the encoder is held fixed."""
        return self._frozen

    @property
    def learns_from(self) -> str | None:
        """The first layer that learns while those before it are held fixed; None = no such division."""
        return self._learns_from

    def set_frozen(
        self: EncoderT, frozen: bool, *, fixed_statistics: bool = False, until: str | None = None
    ) -> EncoderT:
        """Hold the encoder fixed, or let it learn again, as a whole or from the layer `until` on.

        What is frozen has no gradients and stays in eval mode when a parent's `train()` is called: its
        batch norm neither uses nor gathers the batch's statistics, and dropout is off. With `fixed_statistics` that
        goes for the batch norm of a learning encoder too; its weights and biases learn. Raises
        `SettingsError` for an unknown layer.
        """
        held = self._before(until)
        # an unknown layer has been refused above, before anything was changed
        self._frozen = frozen
        self._learns_from = until
        self._fixed_statistics = fixed_statistics
        self.requires_grad_(not frozen)
        # no gradients below the division: the backward pass ends there
        for module in held:
            module.requires_grad_(False)
        return self.train(self._asked_to_train)

    def train(self: EncoderT, mode: bool = True) -> EncoderT:
        """Switch to training mode, except for what is frozen and for batch norm with fixed statistics."""
        self._asked_to_train = mode
        super().train(mode and not self._frozen)
        # requires_grad does not hold a batch norm: in training mode
        # it gathers statistics with every batch, gradient or none
        for module in self._before(self._learns_from):
            module.eval()
        # weights whose batch norms are identities need it: with statistics
        # of the batch, stage II on MOBILENET fell to chance (loss 12)
        if self._fixed_statistics:
            # _BatchNorm is the base of all kinds, also of those in a network of transformers
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def find_layer(self, layer: str) -> int:
        """Place of a layer (of its first occurrence) in `layers()`.

        A batch norm is no place to divide the encoder at, since it belongs to the convolution before it (`folded`).
        Raises `SettingsError` for such a layer and for an unknown one.
        """
        names = [name for name, _ in self.layers()]
        offered = [name for name, run in self.layers() if not isinstance(run, nn.BatchNorm2d)]
        if layer not in offered:
            raise SettingsError(
                f"the backbone has no layer '{layer}' to begin at; there are: {', '.join(dict.fromkeys(offered))}"
            )
        return names.index(layer)

    def _before(self, layer: str | None) -> list[nn.Module]:
        """The modules that are applied before a layer; None = no layer is named, so none are."""
        if layer is None:
            return []
        return [self.get_submodule(name) for name, _ in self.layers()[: self.find_layer(layer)]]

    def _normalise(self, pixels: PixelBatch) -> Float[Tensor, "batch 3 height width"]:
        # normalised in here, so that uint8 travels to the device, a quarter of the bytes of float32
        images = (pixels.to(self.pixel_mean.dtype) - self.pixel_mean) / self.pixel_std
        return images.contiguous(memory_format=torch.channels_last)


def _apply(layers: Iterable[Layer], x: Tensor) -> Tensor:
    for _, layer in layers:
        x = layer(x)
    return x


def scale_channels(channels: int, width: float) -> int:
    """`channels` × `width` as a multiple of 8 that is at least 8 and no more than 10% too small.

    The rounding of the MobileNet papers' released code, used here for every network. Published channel counts
    come back unchanged at width 1.
    """
    scaled = max(8, int(channels * width + 4) // 8 * 8)
    return scaled + 8 if scaled < 0.9 * channels * width else scaled


def initialise(module: nn.Module) -> None:
    """Random values: He et al. (ICCV 2015, Eq. 14) for convolutions, N(0, 0.01²) for linear layers.

    Biases begin at 0, batch norm as the identity. The same `torch.manual_seed` gives the same values.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            # PyTorch's kaiming_normal_ counts the filters of all groups for each input.
            connected = layer.weight.shape[0] // layer.groups * layer.weight[0, 0].numel()
            nn.init.normal_(layer.weight, std=math.sqrt(2 / connected))
        elif isinstance(layer, nn.Linear):
            # as torchvision's VGG, the one network here with linear layers
            nn.init.normal_(layer.weight, std=0.01)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.BatchNorm2d) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def folded(encoder: ImageEncoder) -> ImageEncoder:
    """A copy for inference with each batch norm folded into its convolution; the original stays as it is.

    In eval mode a batch norm is an affine map of each channel, so `BN(W·x + b)` is one convolution with other numbers.
    On a CPU MobileNetV2 gains a quarter, ResNet-50 under a tenth (`benchmarks/results/backbone.json`).

    The networks of this package register a batch norm right behind the convolution that it normalises, which is
    how pairs are found; where none is found (VGG, most of transformers) the copy is just a copy in eval mode. Outputs
    differ from the original's by rounding only. The weights lie channels-last, so the copy cannot be saved.
    """
    if not encoder.can_fold:
        # the modules alone are copied, for their eval mode: a tower of 400 MB would be in memory twice
        shared: dict[int, Any] = {
            id(weight): weight for weight in (*encoder.parameters(), *encoder.buffers())
        }
        return copy.deepcopy(encoder, shared).eval()
    copied = copy.deepcopy(encoder).requires_grad_(False).eval()
    # lists, since what is walked over is replaced on the way
    for module in list(copied.modules()):
        before: tuple[str, nn.Module] | None = None
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d) and before is not None and isinstance(before[1], nn.Conv2d):
                # MobileNetV2 runs 1.26 times as fast in fp32 for it and 1.25 in
                # bf16, ResNet-50 1.08 and 1.01 (`benchmarks/results/backbone.json`)
                setattr(module, before[0], fuse_conv_bn_eval(before[1], child))
                # not deleted: `layers()` finds its modules by name, and a copy is divided at the same layers
                setattr(module, name, nn.Identity())
                before = None
            else:
                before = (name, child)
    return copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
