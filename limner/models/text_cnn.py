"""The deep text CNN: token ids → residual blocks of 1×2 filters → one feature per sentence.

Source: dual-path TOMM 2020, section 3.2 and Figure 3; the deeper layout is arXiv 1711.05535, Table III.

Our name = their symbol: `words` = n (32, or 56 for persons), `vocabulary_size` = d, `word_dim` = 300.

The paper's 1×1 convolution over one-hot words is a table look-up here: the same numbers without the
one-hot tensor. Filters of width 1 and 2 are matrix products over (batch × words) rows: `nn.Conv1d` reaches a few per
cent of the processor's matrix speed on these shapes (`benchmarks/text_path.py`).
"""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from limner.models.channel_norm import ChannelNorm
from limner.models.text_encoder import TextEncoder, WordTableSettings
from limner.types import PADDING

Layout = Literal["resnet-50", "resnet-152"]

_BLOCKS: dict[str, tuple[int, int, int, int]] = {"resnet-50": (3, 4, 6, 3), "resnet-152": (3, 8, 36, 3)}
_WIDTHS = (256, 512, 1024, 2048)
_NEARLY_LINEAR = 2.0
"""A bias in standard deviations, at which a ReLU behind a batch norm cuts one value in fifty."""


class TextCNNSettings(WordTableSettings):
    """The text encoder up to its pooled feature."""

    words: int = Field(default=32, ge=8, le=1024)
    """Length of a sentence in tokens; longer ones lose their end (paper: 32, and 56 for CUHK-PEDES)."""
    word_dim: int = Field(default=300, ge=1)
    """Width of a word vector."""
    layout: Layout = "resnet-50"
    """Blocks per stage: "resnet-50" is 3, 4, 6, 3; "resnet-152" is 3, 8, 36, 3."""
    text_blocks: Literal["paper", "released"] = "paper"
    """"paper" as the text says; "released" as the authors' MATLAB, see `TextCNN`. The last 7 places of a row have no
    say in "paper", the last 3 in "released": with the position shift 12 % or 2.6 % of the words of a sentence of 10 in
    32 places are never read; in 56 places 6 % or 1.3 %, and of a sentence of 23 there 3.6 % or 0.8 %."""
    width: float = Field(default=1.0, gt=0, le=4, allow_inf_nan=False)
    """Factor on all widths (256, 512, 1024, 2048), for small configurations."""
    word_deviation: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Standard deviation of word vectors that start at random; None = Glorot's, √(2 / (d + `word_dim`)) (section 3.2).
    Vectors that are given have 0.1."""
    start: Literal["random", "still", "bag-of-words"] = "random"
    """He's start; or "still", residual branches at zero; or a sum of words, see `start_as_bag_of_words`."""
    test_positions: int = Field(default=1, ge=0)
    """Places of a sentence in its row that its embedding is averaged over at testing: 1, the left; k, evenly spread; 0,
    all (as the released code). For models trained with the position shift."""
    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability with which a word of a training sentence is replaced by an empty position (not in the paper)."""

    def identity(self) -> dict[str, Any]:
        """Without the spread of a table before training, which no trained network shows."""
        found = super().identity()
        del found["word_deviation"]
        return found


class WordConv(nn.Module):
    """Filters over the words of a sentence of width 1 or 2, no bias.

    With two taps, `y[t] = W₀·x[t·stride − 1] + W₁·x[t·stride]`: one zero is padded on the left, so that stride 1
    keeps the length and stride 2 halves it (**Decided**: the side of the one-sided padding is that of the released
    code). So an even length loses its last place at each halving: of 32 words the paper's layout sees the first 25, the
    released one the first 29. `weight` has the shape of `nn.Conv1d`'s, (out, in, taps).
    """

    def __init__(self, inputs: int, outputs: int, taps: Literal[1, 2]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, taps))
        # by fan-out, as `image.encoder.initialise` has it for the image path (He et al., Eq. 14)
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Float[Tensor, "batch out_words read"]) -> Float[Tensor, "batch out_words outputs"]:
        """Filter what stands at each place: a word, or with two taps what `join_neighbours` makes of two."""
        filters = self.weight
        # turned at each step: filters kept as the product wants them saved 3
        # of 256 ms a step and cost resumed runs their bit-equal gradient norms
        return F.linear(x, filters.transpose(1, 2).reshape(len(filters), -1))


def join_neighbours(
    x: Float[Tensor, "batch words channels"], stride: Literal[1, 2]
) -> Float[Tensor, "batch out_words 2*channels"]:
    """Every `stride`-th word with the word before it on its left; the first has zeros there."""
    if torch.compiler.is_exporting():
        # what the function below writes in place, in operations that every format has
        padded = F.pad(x, (0, 0, 1, 0))
        return torch.cat([padded[:, : x.shape[1] : stride], x[:, ::stride]], dim=2)
    joined: Tensor = _NeighboursJoined.apply(x, stride)  # type: ignore[no-untyped-call]
    return joined


class _NeighboursJoined(torch.autograd.Function):
    """The result of `F.pad`, two slices and `torch.cat`, in fewer passes over the memory."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, stride: int) -> Tensor:
        """The word before the first is zero."""
        batch, words, channels = x.shape
        ctx.words, ctx.stride = words, stride  # type: ignore[attr-defined]
        # each number is written once: 256.1 ms a step of the blocks, where F.pad, slices and torch.cat have 260.7
        joined = x.new_empty(batch, -(-words // stride), 2 * channels)
        joined[:, 0, :channels] = 0
        joined[:, 1:, :channels] = x[:, stride - 1 : words - 1 : stride]
        joined[:, :, channels:] = x[:, ::stride]
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of a word, as the later of a pair and as the earlier."""
        before, itself = gradients[0].chunk(2, dim=2)
        of_words = before.new_zeros(len(before), ctx.words, before.shape[2])
        of_words[:, :: ctx.stride] = itself
        # before[:, 0] is the gradient of the zeros left of the sentence: nothing reads it
        of_words[:, ctx.stride - 1 : ctx.words - 1 : ctx.stride] += before[:, 1:]
        return of_words, None


class TextBlock(nn.Module):
    """Figure 3's block: 1×1 → 1×2 → 1×1 with a shortcut, `F(x) + x`.

    A block that changes width or length has a 1×1 projection as its shortcut, as ResNet does.
    """

    def __init__(self, inputs: int, middle: int, outputs: int, stride: Literal[1, 2]) -> None:
        super().__init__()
        self.stride: Literal[1, 2] = stride
        self.conv1 = WordConv(inputs, middle, 1)
        self.bn1 = ChannelNorm(middle)
        self.conv2 = WordConv(middle, middle, 2)
        self.bn2 = ChannelNorm(middle)
        self.conv3 = WordConv(middle, outputs, 1)
        self.bn3 = ChannelNorm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(WordConv(inputs, outputs, 1), ChannelNorm(outputs))

    def forward(self, x: Float[Tensor, "batch words channels"]) -> Float[Tensor, "batch out_words outputs"]:
        """One residual step."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))  # once for both of its readers
        shortcut = self.shortcut(x if self.stride == 1 else x[:, :: self.stride])
        # The ReLUs and the sum overwrite what they read. A batch norm keeps its input for the backward pass, not its
        # output, so nothing is lost, and each saves a pass over the memory.
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(join_neighbours(out, self.stride))), inplace=True)
        out = self.bn3(self.conv3(out))
        return F.relu(out.add_(shortcut), inplace=True)

    def fold(self) -> None:
        """Fold each batch norm into the filters before it, for inference alone."""
        pairs: list[tuple[nn.Module, str, str]] = [
            (self, f"conv{number}", f"bn{number}") for number in (1, 2, 3)
        ]
        if isinstance(self.shortcut, nn.Sequential):
            pairs.append((self.shortcut, "0", "1"))
        for holder, conv, name in pairs:
            filters, norm = holder.get_submodule(conv), holder.get_submodule(name)
            assert isinstance(filters, WordConv)
            assert isinstance(norm, ChannelNorm)
            scale, shift = _scale_and_shift(norm)
            turned = (filters.weight * scale[:, None, None]).transpose(1, 2).flatten(1)
            linear = nn.Linear(turned.shape[1], turned.shape[0])
            linear.weight.copy_(turned)
            linear.bias.copy_(shift)
            holder.register_module(conv, linear.requires_grad_(False))
            holder.register_module(name, nn.Identity())


class TextCNN(TextEncoder):
    """Token ids to a pooled sentence feature of width `channels` (2048).

    "paper": four stages of bottleneck blocks, widths 256, 512, 1024, 2048 with a quarter of it in the
    middle, the length to_half at the start of stages 2–4 (32 → 16 → 8 → 4), then the average over positions.
    "released": a batch norm on the word vectors; the first block of each stage has a wider middle (128, 512, 1024,
    2048); the last stage has one block and keeps the length (32 → 16 → 8 → 8).
    """

    def __init__(self, settings: TextCNNSettings, vocabulary_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.test_positions = settings.test_positions
        self.table = nn.Embedding(vocabulary_size + 1, settings.word_dim, padding_idx=PADDING)
        deviation = settings.word_deviation
        if deviation is None:
            # [15] of section 3.2, Glorot and Bengio 2010, for a layer of d inputs. **Decided**: normal, as the head's
            # weights here and all of the released code's, where their Eq. 16 is uniform with the same deviation. So
            # the draws behind these are as they were when the deviation was 0.1
            deviation = math.sqrt(2 / (vocabulary_size + settings.word_dim))
        nn.init.normal_(self.table.weight, std=deviation)
        with torch.no_grad():
            # padding_idx keeps this row's gradient at 0, but `normal_` has written over its zeros
            self.table.weight[PADDING].zero_()
        released = settings.text_blocks == "released"
        self.word_norm: nn.Module = ChannelNorm(settings.word_dim) if released else nn.Identity()
        blocks: list[nn.Module] = []
        width = settings.word_dim
        for middle, outputs, stride in _block_shapes(settings):
            blocks.append(TextBlock(width, middle, outputs, stride))
            width = outputs
        self.blocks = nn.Sequential(*blocks)
        residual = [block for block in self.blocks if isinstance(block, TextBlock)]
        if settings.start == "bag-of-words":
            # the nearest other sentence describes the same picture in 27.9 % of validation sentences from
            # this start, in 4.2 % from He's, in 29.7 % by the plain mean of the word vectors (Flickr8k)
            start_as_bag_of_words(residual)
        elif settings.start == "still":
            # kept for generated people: 44.9 validation R@1 from this start, 38.8
            # from the bag of words (on released blocks, without the position shift)
            for block in residual:
                nn.init.zeros_(block.bn3.weight)
        self.channels = width

    def forward(self, token_ids: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch channels"]:
        """Pooled features; padding positions take part in the average, as in the paper."""
        if self.training and self.settings.word_dropout:
            keep = torch.rand(token_ids.shape, device=token_ids.device) >= self.settings.word_dropout
            token_ids = torch.where(keep, token_ids, PADDING)
        # no mask: padding is a row of zeros, and the paper averages over all positions
        x = self.word_norm(self.table(token_ids))
        out: Tensor = self.blocks(x).mean(dim=1)
        return out

    @torch.no_grad()
    def folded(self) -> "TextCNN":
        """A copy for inference with each batch norm folded into the filters, or the word table, before it."""
        copied = copy.deepcopy(self).requires_grad_(False).eval()
        if isinstance(copied.word_norm, ChannelNorm):
            scale, shift = _scale_and_shift(copied.word_norm)
            # row 0 too: an empty position is normalised as any other
            copied.table.weight.mul_(scale).add_(shift)
            copied.word_norm = nn.Identity()
        for block in copied.blocks:
            assert isinstance(block, TextBlock)
            block.fold()
        return copied


@torch.no_grad()
def _scale_and_shift(norm: ChannelNorm) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return scale, norm.bias - scale * norm.running_mean


def _block_shapes(settings: TextCNNSettings) -> Iterator[tuple[int, int, Literal[1, 2]]]:
    """Middle width, output width and stride of each block."""
    released = settings.text_blocks == "released"
    for stage, (count, full) in enumerate(zip(_BLOCKS[settings.layout], _WIDTHS, strict=True)):
        outputs = max(8, round(full * settings.width))
        last = released and stage == 3
        first_middle = outputs // 4
        if released:
            # 128, 512, 1,024 and 2,048 in the authors' MATLAB
            first_middle = outputs // 2 if stage == 0 else outputs
        yield first_middle, outputs, 1 if stage == 0 or last else 2
        for _ in range(0 if last else count - 1):
            yield outputs // 4, outputs, 1


@torch.no_grad()
def start_as_bag_of_words(blocks: Sequence[TextBlock]) -> None:
    """Set the blocks so that their average over positions is close to a sum of projected word vectors.

    A departure in the start alone; the network and what it can learn stay the same. From He's start the average
    says little about the words: a strided shortcut drops every other word, three times over, and the branches
    give the same word another code at every position. Here the first shortcut holds d orthonormal rows (d: the
    narrowest middle of the strided blocks), repeated until its channels are full; later shortcuts copy these d
    features; the branch of a strided block carries the features of the word that its shortcut drops; all other
    branches end in zero (their last batch norm's weight). Biases of two standard deviations keep the ReLUs on
    the way nearly linear; strided shortcuts have four, since their branch lies two below at the first position,
    where it sees padding.
    """
    strided = [block for block in blocks if block.stride == 2]
    features = min(len(blocks[0].conv3.weight), *(len(block.conv1.weight) for block in strided))
    for block in blocks:
        if block.stride == 2:
            _copy_features(block.conv1, features, rows=features)
            _copy_features(block.conv2, features, rows=features)
            _copy_features(block.conv3, features)
            for norm in (block.bn1, block.bn2):
                norm.bias[:features] = _NEARLY_LINEAR
        else:
            nn.init.zeros_(block.bn3.weight)
        if isinstance(block.shortcut, nn.Sequential):
            projection, shortcut_norm = block.shortcut
            assert isinstance(projection, WordConv)
            assert isinstance(shortcut_norm, ChannelNorm)
            if block is blocks[0]:
                # orthonormal rows keep the angles between sums of word vectors
                first = nn.init.orthogonal_(torch.empty(features, projection.weight.shape[1]))
                copies = torch.arange(len(projection.weight)) % features
                projection.weight[:, :, 0] = first[copies]
            else:
                _copy_features(projection, features)
            # with two deviations here too the first word of a sentence
            # was cut: nearest sentence 29.9 % right, 30.5 % with four
            shortcut_norm.bias.fill_(_NEARLY_LINEAR if block is blocks[0] else 2 * _NEARLY_LINEAR)


def _copy_features(conv: WordConv, features: int, *, rows: int | None = None) -> None:
    """Make the first outputs (all by default) copies of input channels 0 … features − 1, of the earlier tap."""
    for output in range(rows or len(conv.weight)):
        conv.weight[output] = 0
        conv.weight[output, output % features, 0] = 1
