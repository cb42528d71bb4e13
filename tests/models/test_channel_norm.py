"""The compiled norm, sum and ReLU against the same in PyTorch's operations and in double precision."""

import copy
from collections.abc import Callable
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import parametrizations, prune

from limner.compiled import compiler
from limner.models import channel_norm
from limner.models.channel_norm import ChannelNorm, is_compiled
from limner.models.text_cnn import TextBlock, TextEncoder, TextEncoderSettings
from limner.models.word_conv import WordConv

Stride = Literal[0, 1, 2]

compiled_only = pytest.mark.skipif(compiler() is None, reason="no compiler")


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on the compiled code may not be used."""

    def refuse() -> None:
        monkeypatch.setattr(channel_norm, "is_compiled", lambda: False)

    return refuse


def _norm(channels: int) -> ChannelNorm:
    norm = ChannelNorm(channels)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2).mul_(torch.randint(0, 2, (channels,)) * 2 - 1)
        norm.bias.normal_()
    return norm


def _normalised(x: Tensor, norm: ChannelNorm) -> Tensor:
    """γ (x − μ) / √(σ² + ε) + β."""
    rows = x.flatten(0, 1)
    spread = ((rows - rows.mean(0)) ** 2).mean(0)
    return (x - rows.mean(0)) / (spread + norm.eps).sqrt() * norm.weight.double() + norm.bias.double()


def _twin(x: Tensor, norm: ChannelNorm, plus: Tensor | None, stride: Stride) -> Tensor:
    """From the definitions, joined by hand."""
    y = _normalised(x, norm)
    y = (y if plus is None else y + plus).clamp(min=0)
    if not stride:
        return y
    before = F.pad(y, (0, 0, 1, 0))[:, :-1]
    return torch.cat([before, y], dim=2)[:, ::stride]


def _compute(norm: ChannelNorm, x: Tensor, plus: Tensor | None, stride: Stride) -> Tensor:
    return norm.rectified_pairs(x, stride) if stride else norm.rectified(x, plus=plus)


CASES: list[tuple[Stride, bool]] = [(0, False), (0, True), (1, False), (2, False)]


@compiled_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3, 20, 33, 64, 129, 300, 1024])
@pytest.mark.parametrize("words", [1, 7, 8])
@pytest.mark.parametrize(("stride", "adds"), CASES)
def test_equals_the_definition(
    channels: int, words: int, stride: Stride, adds: bool, dtype: torch.dtype
) -> None:
    """In bf16 the result has the error of one rounding, since all before it is computed in fp32."""
    torch.manual_seed(channels + words)
    norm = _norm(channels)
    x = torch.randn(5, words, channels).mul_(3).add_(1).to(dtype).requires_grad_()
    plus = torch.randn(5, words, channels).to(dtype).requires_grad_() if adds else None
    out = _compute(norm, x, plus, stride)
    assert out.dtype == dtype
    wide = x.detach().double().requires_grad_()
    wide_plus = plus.detach().double().requires_grad_() if plus is not None else None
    twin_norm = ChannelNorm(channels)
    twin_norm.load_state_dict(norm.state_dict())
    twin = _twin(wide, twin_norm, wide_plus, stride)
    rounding = 2**-8 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(out.double(), twin, rtol=rounding, atol=1e-5)

    towards = torch.randn_like(out)
    inputs = [x, norm.weight, norm.bias, *([plus] if plus is not None else [])]
    wide_inputs = [wide, twin_norm.weight, twin_norm.bias, *([wide_plus] if wide_plus is not None else [])]
    ours = torch.autograd.grad(out, inputs, towards)
    theirs = torch.autograd.grad(twin, wide_inputs, towards.double())
    for name, our, their in zip(("x", "weight", "bias", "plus"), ours, theirs, strict=False):
        size = max(1e-3, their.abs().max().item())
        apart = (our.double() - their).abs().max().item()
        assert apart < (2**-7 if dtype == torch.bfloat16 else 1e-4) * size, (name, apart, size)


@compiled_only
@pytest.mark.parametrize("channels", [3, 129])
def test_the_norm_alone(channels: int) -> None:
    torch.manual_seed(0)
    norm = _norm(channels)
    x = torch.randn(5, 7, channels, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    out, twin = norm(x), _normalised(wide, norm)
    torch.testing.assert_close(out.double(), twin, rtol=1e-5, atol=1e-5)
    assert (out < 0).any()
    towards = torch.randn_like(out)
    ours = torch.autograd.grad(out, (x, norm.weight, norm.bias), towards)
    theirs = torch.autograd.grad(twin, (wide, norm.weight, norm.bias), towards.double())
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.double(), their.double(), rtol=1e-4, atol=1e-4)


@compiled_only
@pytest.mark.parametrize(("stride", "adds"), CASES)
def test_equals_the_operations_one_after_the_other(
    stride: Stride, adds: bool, refused: Callable[[], None]
) -> None:
    """Statistics as well, over several steps."""
    torch.manual_seed(0)
    ours, theirs = _norm(40), ChannelNorm(40)
    theirs.load_state_dict(ours.state_dict())
    batches = [(torch.randn(4, 6, 40) + step, torch.randn(4, 6, 40)) for step in range(3)]
    found = [_compute(ours, x, plus if adds else None, stride) for x, plus in batches]
    refused()
    expected = [_compute(theirs, x, plus if adds else None, stride) for x, plus in batches]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert ours.num_batches_tracked is not None
    assert ours.num_batches_tracked.item() == 3
    ours.eval()
    torch.testing.assert_close(_compute(ours, *batches[0], 0), _compute(theirs.eval(), *batches[0], 0))


def _filtered(x: Tensor, filters: Tensor) -> Tensor:
    """What one or two taps make of words, or of words beside the word before them."""
    taps = filters.unbind(2)
    parts = x.chunk(len(taps), dim=2)
    return sum((part @ tap.T for part, tap in zip(parts, taps, strict=True)), torch.zeros(()))


@compiled_only
@pytest.mark.parametrize("casts", [False, True])
@pytest.mark.parametrize("taps", [1, 2])
@pytest.mark.parametrize(("stride", "adds"), CASES)
def test_behind_a_filter(stride: Stride, adds: bool, taps: Literal[1, 2], casts: bool) -> None:
    """With bf16 numbers in fp32 memory for filters and input, so that casting them changes nothing."""
    torch.manual_seed(stride + taps)
    conv, norm = WordConv(24, 40, taps), _norm(40)
    with torch.no_grad():
        conv.weight.copy_(conv.weight.bfloat16())
    dtype = torch.bfloat16 if casts else torch.float32
    x = torch.randn(5, 7, taps * 24).bfloat16().to(dtype).requires_grad_()
    plus = torch.randn(5, 7, 40).to(dtype).requires_grad_() if adds else None
    assert norm._compiled_for(x, conv, plus) is not casts
    with torch.autocast("cpu", torch.bfloat16, enabled=casts):
        assert norm._compiled_for(x, conv, plus)
        out = (
            norm.rectified_pairs(x, stride, after=conv)
            if stride
            else norm.rectified(x, after=conv, plus=plus)
        )
    assert out.dtype == dtype

    wide, wide_filters = (values.detach().double().requires_grad_() for values in (x, conv.weight))
    wide_plus = plus.detach().double().requires_grad_() if plus is not None else None
    twin_norm = ChannelNorm(40)
    twin_norm.load_state_dict(norm.state_dict())
    twin = _twin(_filtered(wide, wide_filters), twin_norm, wide_plus, stride)
    rounding = 2**-6 if casts else 1e-4
    torch.testing.assert_close(out.double(), twin, rtol=rounding, atol=rounding)

    towards = torch.randn_like(out)
    inputs = [x, conv.weight, norm.weight, norm.bias, *([plus] if plus is not None else [])]
    wide_inputs = [wide, wide_filters, twin_norm.weight, twin_norm.bias]
    ours = torch.autograd.grad(out, inputs, towards)
    theirs = torch.autograd.grad(
        twin, [*wide_inputs, *([wide_plus] if wide_plus is not None else [])], towards.double()
    )
    for our, their, source in zip(ours, theirs, inputs, strict=True):
        assert our.dtype == source.dtype
        assert our.is_contiguous()
        # a value near zero may fall to the other side of the ReLU once it is rounded
        assert F.cosine_similarity(our.double().flatten(), their.flatten(), dim=0) > (
            0.99 if casts else 0.9999
        )


@compiled_only
@pytest.mark.parametrize("taps", [1, 2])
def test_gradients_behind_a_frozen_filter_and_of_data(taps: Literal[1, 2]) -> None:
    torch.manual_seed(0)
    conv, norm = WordConv(24, 40, taps), _norm(40)
    x = torch.randn(5, 7, taps * 24, requires_grad=True)
    both = torch.autograd.grad(norm.rectified(x, after=conv).square().sum(), (x, conv.weight))
    of_data = torch.autograd.grad(norm.rectified(x.detach(), after=conv).square().sum(), conv.weight)
    conv.weight.requires_grad_(False)
    of_frozen = torch.autograd.grad(norm.rectified(x, after=conv).square().sum(), x)
    assert torch.equal(of_frozen[0], both[0])
    assert torch.equal(of_data[0], both[1])


@compiled_only
def test_a_filter_that_is_not_as_the_compiled_code_reads_it(refused: Callable[[], None]) -> None:
    """Left to PyTorch, to compute or to refuse."""
    torch.manual_seed(0)
    x = torch.randn(5, 7, 48)
    norm, conv, wide, reordered = _norm(40), WordConv(24, 40, 2), WordConv(24, 40, 2), WordConv(24, 40, 2)
    wide.double()
    reordered.weight = torch.nn.Parameter(conv.weight.data.transpose(1, 2).contiguous().transpose(1, 2))
    assert norm._compiled_for(x, conv)
    for other, numbers in ((wide, x), (reordered, x), (conv, x.bfloat16()), (conv, x[:, :, :24])):
        assert not norm._compiled_for(numbers, other)
    three, of_nothing, to_nothing = WordConv(24, 40, 2), WordConv(24, 40, 1), WordConv(24, 40, 1)
    three.weight = torch.nn.Parameter(torch.randn(40, 16, 3))
    of_nothing.weight = torch.nn.Parameter(torch.empty(40, 0, 1))
    to_nothing.weight = torch.nn.Parameter(torch.empty(0, 48, 1))
    parametrised = parametrizations.weight_norm(WordConv(24, 40, 2))
    assert isinstance(parametrised, WordConv)
    for other in (three, parametrised):
        assert not norm._compiled_for(x, other)
    assert not norm._compiled_for(x[:, :, :0], of_nothing)
    assert not ChannelNorm(0)._compiled_for(x, to_nothing)
    for refused_by in (wide, WordConv(20, 40, 2), WordConv(24, 30, 2)):
        with pytest.raises((RuntimeError, ValueError)):
            norm.rectified(x, after=refused_by)
    with torch.autocast("cpu", torch.bfloat16):
        assert not norm._compiled_for(x, conv)  # a product would cast it
        assert norm.rectified(x, after=conv).dtype == torch.bfloat16
    ours = norm.rectified(x, after=conv)
    torch.testing.assert_close(norm.rectified(x, after=reordered), ours)
    refused()
    torch.testing.assert_close(norm.rectified(x, after=conv), ours)
    torch.testing.assert_close(norm.normalised(x, after=conv).relu(), ours)


@pytest.mark.parametrize("training", [True, False])
def test_what_a_hook_makes_of_a_filter_is_seen(training: bool) -> None:
    """Pruning makes the weight anew at each call."""
    torch.manual_seed(0)
    block = TextBlock(40, 64, 80, 2).train(training)
    pruned = copy.deepcopy(block)
    projection = pruned.get_submodule("shortcut.0")
    for conv in (pruned.conv1, pruned.conv2, pruned.conv3, projection):
        prune.l1_unstructured(conv, "weight", 0.5)  # type: ignore[no-untyped-call]
    seen = []
    pruned.bn2.register_forward_hook(lambda *_: seen.append(True))
    x = torch.randn(4, 8, 40)
    for _ in range(2):  # the second time through a graph of its own
        torch.autograd.backward(pruned(x).sum())
    gradient = pruned.conv1.weight_orig.grad
    assert isinstance(gradient, Tensor)
    assert len(seen) == 2
    names = ("conv1", "conv2", "conv3", "shortcut.0")
    for name in names:
        module, source = block.get_submodule(name), pruned.get_submodule(name)
        assert isinstance(module, WordConv)
        assert isinstance(source.weight_mask, Tensor)
        with torch.no_grad():
            module.weight.mul_(source.weight_mask)
    torch.testing.assert_close(pruned(x), block(x), rtol=1e-4, atol=1e-4)


@compiled_only
@pytest.mark.parametrize("taps", [1, 2])
def test_nothing_is_kept_for_gradients_that_nobody_wants(taps: Literal[1, 2]) -> None:
    conv, norm = WordConv(24, 40, taps), _norm(40)
    x = torch.randn(5, 7, taps * 24, requires_grad=True)

    def kept(source: Tensor) -> list[int]:
        sizes: list[int] = []

        def note(saved: Tensor) -> Tensor:
            sizes.append(saved.numel())
            return saved

        with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            norm.rectified(source, after=conv)
        return sizes

    assert x.numel() in kept(x)
    assert conv.weight.numel() in kept(x)
    assert conv.weight.numel() not in kept(x.detach())
    conv.weight.requires_grad_(False)
    assert x.numel() not in kept(x)


@compiled_only
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("taps", [1, 2])
def test_backward_under_autocast(taps: Literal[1, 2], dtype: torch.dtype) -> None:
    """As PyTorch's products lose precision there."""
    torch.manual_seed(0)
    conv, norm = WordConv(24, 40, taps), _norm(40)
    x = torch.randn(5, 7, taps * 24, requires_grad=True)
    expected = torch.autograd.grad(norm.rectified(x, after=conv).sum(), (x, conv.weight))
    out = norm.rectified(x, after=conv)
    with torch.autocast("cpu", dtype):
        found = torch.autograd.grad(out.sum(), (x, conv.weight))
    for our, their in zip(found, expected, strict=True):
        assert our.dtype == torch.float32
        assert F.cosine_similarity(our.flatten(), their.flatten(), dim=0) > 0.999


@compiled_only
def test_values_far_from_zero_keep_their_variance() -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 8, 30) * 0.1 + 1000
    norm = _norm(30)
    torch.testing.assert_close(
        norm.rectified(x).double(), _twin(x.double(), norm, None, 0), rtol=1e-2, atol=1e-2
    )


@compiled_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("stride", "adds"), CASES)
def test_the_number_of_threads_changes_nothing(stride: Stride, adds: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, plus = torch.randn(2, 6, 8, 200).to(dtype)
    norm = _norm(200)

    def computed(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        leaf, other = x.clone().requires_grad_(), plus.clone().requires_grad_()
        out = _compute(norm, leaf, other if adds else None, stride)
        torch.autograd.backward(out.float().square().sum())
        assert leaf.grad is not None
        return [out, leaf.grad, *([other.grad] if other.grad is not None else [])]

    before = torch.get_num_threads()
    try:
        one, three = computed(1), computed(3)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, three, strict=True))


@compiled_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_channel_that_is_not_finite_is_seen(dtype: torch.dtype) -> None:
    """And does not reach its neighbours: a run that breaks is stopped, not covered up."""
    x = torch.randn(3, 4, 10).to(dtype)
    x[1, 2, 4] = float("nan")
    out = ChannelNorm(10).rectified(x)
    assert out[:, :, 4].isnan().all()
    assert not out[:, :, :4].isnan().any()
    assert not out[:, :, 5:].isnan().any()


@compiled_only
def test_memory_in_another_order() -> None:
    torch.manual_seed(0)
    x, plus = torch.randn(2, 4, 10, 6).transpose(2, 3)
    norm = _norm(10)
    assert torch.equal(norm.rectified(x, plus=plus), norm.rectified(x.contiguous(), plus=plus.contiguous()))
    leaf = x.clone().requires_grad_()
    torch.autograd.backward(norm.rectified(leaf).sum())  # of one number, read at every place
    assert leaf.grad is not None


def test_one_row_has_no_variance() -> None:
    with pytest.raises(ValueError, match="more than 1 value"):
        ChannelNorm(4).rectified(torch.randn(1, 1, 4))


@compiled_only
def test_what_is_not_as_the_compiled_code_reads_it_is_left_to_pytorch(refused: Callable[[], None]) -> None:
    """With PyTorch's own errors where it has them: a pointer knows nothing of sizes."""
    assert is_compiled()
    x = torch.randn(3, 4, 10)
    with pytest.raises(RuntimeError, match="running_mean should contain 6 elements"):
        ChannelNorm(10).rectified(torch.randn(3, 4, 6))
    with pytest.raises(RuntimeError):
        ChannelNorm(10).rectified(x, plus=torch.randn(3, 4, 1, device="meta").expand(3, 4, 10))
    strided, plain = _norm(10), ChannelNorm(10)
    plain.load_state_dict(strided.state_dict())
    strided.weight = torch.nn.Parameter(torch.stack([strided.weight.data] * 2, dim=1)[:, 0])
    negated = torch._neg_view(x)
    for module in (plain, strided):
        module.momentum = None
    others = [ChannelNorm(10, affine=False), ChannelNorm(10, track_running_stats=False), plain.double()]
    found = [strided.rectified(x), plain.rectified(x.double()), ChannelNorm(10).rectified(negated)]
    found += [norm.rectified(x.to(torch.float64 if norm is plain else torch.float32)) for norm in others]
    refused()
    expected = [strided.rectified(x), plain.rectified(x.double()), ChannelNorm(10).rectified(negated)]
    expected += [norm.rectified(x.to(torch.float64 if norm is plain else torch.float32)) for norm in others]
    for our, their in zip(found, expected, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-6, atol=1e-6)


@compiled_only
@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_another_default_of_numbers(default: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, x = _norm(40), torch.randn(3, 4, 40, requires_grad=True)
    (expected,) = torch.autograd.grad(norm.rectified(x).square().sum(), norm.weight)
    torch.set_default_dtype(default)
    try:
        (found,) = torch.autograd.grad(norm.rectified(x).square().sum(), norm.weight)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


@compiled_only
def test_many_threads_for_few_channels_are_left_to_pytorch() -> None:
    before = torch.get_num_threads()
    x = torch.randn(2, 2, 32)
    try:
        torch.set_num_threads(3)
        assert not ChannelNorm(32)._compiled_for(x)
        torch.set_num_threads(2)
        assert ChannelNorm(32)._compiled_for(x)
    finally:
        torch.set_num_threads(before)


@compiled_only
def test_the_text_path_learns_the_same() -> None:
    """Features, gradients and statistics of an encoder in fp32 are those of its copy in double precision.

    As near as sixteen blocks allow, each of which divides by deviations of what the one before it has rounded; one
    ReLU in a million falls to the other side.
    """
    torch.manual_seed(0)
    encoder = TextEncoder(TextEncoderSettings(word_dim=20, width=1 / 16), 50)
    wide = TextEncoder(encoder.settings, 50).double()
    wide.load_state_dict(encoder.state_dict())
    numbers = torch.randint(1, 51, (64, 32))
    ours, theirs = encoder(numbers), wide(numbers)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)
    torch.autograd.backward(ours.square().sum())
    torch.autograd.backward(theirs.square().sum())
    for (name, our), their in zip(encoder.named_parameters(), wide.parameters(), strict=True):
        assert our.grad is not None
        assert their.grad is not None
        assert F.cosine_similarity(our.grad.double().flatten(), their.grad.flatten(), dim=0) > 0.99, name
    for statistic, wide_statistic in zip(encoder.buffers(), wide.buffers(), strict=True):
        torch.testing.assert_close(statistic.double(), wide_statistic.double(), rtol=1e-3, atol=1e-3)
