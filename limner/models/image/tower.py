"""The image tower of a pretrained pair, or a vision transformer alone, as an image backbone."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from limner.errors import CheckpointError, SettingsError
from limner.models.image.encoder import ImageEncoder, Layer, Normalisation, PixelBatch
from limner.models.pretrained_source import portable


class ImageTower(ImageEncoder):
    """A vision tower of transformers.

    With `pooled` the feature is the tower's own, which its pair was trained with (CLIP's class token, SigLIP's
    attention pooling); otherwise it is the mean over the patches, as with every other backbone.

    The feature map holds the patches' last states in their places, after the tower's last norm. Pixels of another size
    than the tower was trained at are taken by interpolating its position embeddings.

    SigLIP 2 of variable size (naflex) sees all images at one size: a departure, since it was trained to keep the ratio
    of the sides. The embeddings equal transformers' for images of that size.
    """

    can_fold = False

    def __init__(
        self,
        tower: nn.Module,
        config: Any,
        normalisation: Normalisation,
        *,
        pooled: bool,
        projection: nn.Module | None = None,
    ) -> None:
        """`config`: the whole configuration, of which a folder can build the tower again."""
        vision: Any = getattr(config, "vision_config", config)
        colours = getattr(vision, "num_channels", 3)
        if colours != 3:
            raise CheckpointError(
                f"auto_model: expected a network for RGB pictures, got {colours} channels; choose another"
            )
        width = int(vision.hidden_size)
        super().__init__(width, width, normalisation)
        self.tower = tower
        self.config = config
        # in a list, which nn.Module does not register: the network above has it as its projection
        self._projection = [projection or nn.Identity()]
        self.pooled = pooled
        self._patch = _patch_size(vision)
        self._trained_at = _pair_of(getattr(vision, "image_size", None))
        # naflex towers take patches and their number of rows and columns in place of pixels
        self._takes_patches = self._trained_at is None and hasattr(vision, "num_patches")

    @property
    def projection(self) -> nn.Module:
        """The pair's own layer into the shared space, which this tower ends below."""
        return self._projection[0]

    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, what a folder must hold to build the same tower without its weights."""
        return {
            "config.json": portable(self.config),
            "preprocessor_config.json": {
                # mean and deviation are of pixels in 0 … 255 already
                "do_rescale": False,
                "do_normalize": True,
                "image_mean": self.pixel_mean.flatten().tolist(),
                "image_std": self.pixel_std.flatten().tolist(),
            },
        }

    def layers(self) -> list[Layer]:
        """The whole tower as one layer."""
        return [("tower", self._map)]

    def forward(self, pixels: PixelBatch) -> Float[Tensor, "batch {self.channels}"]:
        """The pooled feature of raw pixels, float32 also under autocast."""
        if not self.pooled:
            return super().forward(pixels)
        feature: Tensor = self._run(self._normalise(pixels)).pooler_output
        return feature.float()

    def forward_with_map(
        self, pixels: PixelBatch
    ) -> tuple[
        Float[Tensor, "batch {self.channels}"], Float[Tensor, "batch {self.map_channels} _height _width"]
    ]:
        """Both by one pass, as every encoder, also where the tower pools by itself."""
        if not self.pooled:
            return super().forward_with_map(pixels)
        images = self._normalise(pixels)
        output = self._run(images)
        return output.pooler_output.float(), self._placed(output.last_hidden_state, images)

    def pool(
        self, feature_map: Float[Tensor, "batch {self.map_channels} height width"]
    ) -> Float[Tensor, "batch {self.channels}"]:
        """The mean over the patches. Raises `SettingsError` for a tower with a pooling of its own."""
        # a map of patches has no class token: the mean would be another feature than the one that `forward` gives
        if self.pooled:
            raise SettingsError(
                "the image tower of a pretrained pair pools by itself, so its feature cannot be had from cached maps; "
                "set the stage's views to 0, or take the vision model alone"
            )
        return super().pool(feature_map)

    def patches(self, pixels: PixelBatch) -> Float[Tensor, "batch rows columns {self.channels}"]:
        """The features of single patches, channels last: what the tower would give of an image of that patch's state.

        CLIP's last norm is taken over each patch, SigLIP's attention pooling over each patch alone.
        """
        states = self._map(self._normalise(pixels)).permute(0, 2, 3, 1)
        vision: Any = getattr(self.tower, "vision_model", self.tower)
        if (head := getattr(vision, "head", None)) is not None:
            # a sequence of one patch: the attention is 1, and what is left are its value and the perceptron
            return head(states.reshape(-1, 1, states.shape[3])).view(states.shape)  # type: ignore[no-any-return]
        return states

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the patches of images of a size in pixels."""
        return height // self._patch[0], width // self._patch[1]

    def _map(self, images: Float[Tensor, "batch 3 height width"]) -> Tensor:
        return self._placed(self._run(images).last_hidden_state, images)

    def _run(self, images: Float[Tensor, "batch 3 height width"]) -> Any:
        options: dict[str, Any] = {"pixel_values": images}
        if self._takes_patches:
            options = self._as_patches(images)
        elif self._trained_at is not None and tuple(images.shape[2:]) != self._trained_at:
            options["interpolate_pos_encoding"] = True
        features = getattr(self.tower, "get_image_features", self.tower)
        return features(**options)

    def _as_patches(self, images: Float[Tensor, "batch 3 height width"]) -> dict[str, Any]:
        """Patches row by row, each with its colours last, as transformers' processor of naflex cuts them."""
        rows, columns = self.grid(*images.shape[2:])
        side = self._patch[0]
        # not `len`: a network that is traced for export keeps the number of images open
        batch = images.shape[0]
        cut = images.reshape(batch, 3, rows, side, columns, side).permute(0, 2, 4, 3, 5, 1)
        count = rows * columns
        return {
            "pixel_values": cut.reshape(batch, count, -1),
            "pixel_attention_mask": torch.ones(batch, count, dtype=torch.int32, device=images.device),
            "spatial_shapes": torch.tensor([[rows, columns]], device=images.device).expand(batch, 2),
        }

    def _placed(self, states: Tensor, images: Tensor) -> Tensor:
        """States of tokens to a map of patches, channels first."""
        # convolutional towers give a map already
        if states.dim() == 4:
            return states
        rows, columns = self.grid(*images.shape[2:])
        # class, distillation and register tokens stand before the patches
        before = states.shape[1] - rows * columns
        patches = states[:, before:]
        if (norm := self._last_norm()) is not None:
            patches = norm(patches)
        return patches.transpose(1, 2).reshape(states.shape[0], -1, rows, columns)

    def _last_norm(self) -> nn.Module | None:
        """CLIP's last norm, which transformers applies to the class token alone; None where the states have it."""
        vision: Any = getattr(self.tower, "vision_model", self.tower)
        norm: nn.Module | None = getattr(vision, "post_layernorm", None)
        # SigLIP's states are normed already, whether its pooling head is there or not
        has_head = hasattr(vision, "head") or hasattr(vision, "use_head")
        return None if has_head else norm


def _patch_size(vision: Any) -> tuple[int, int]:
    found = _pair_of(getattr(vision, "patch_size", None))
    return found or (1, 1)


def _pair_of(value: int | Sequence[int] | None) -> tuple[int, int] | None:
    """Height and width of a size that transformers writes as one number or two."""
    if value is None:
        return None
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def square_side(config: Any) -> int:
    """Pixels of the square that a vision tower is trained at; of naflex, one with its number of patches."""
    vision: Any = getattr(config, "vision_config", config)
    size = _pair_of(getattr(vision, "image_size", None))
    if size is not None:
        return size[0]
    return math.isqrt(int(vision.num_patches)) * _patch_size(vision)[0]
