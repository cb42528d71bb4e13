import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.models.image.mobilenet import Padding, StridedConvolution, StridedDepthwise
from tests.models.image import reference

sides = st.integers(3, 16)
paddings: st.SearchStrategy[Padding] = st.sampled_from(["symmetric", "same"])


@given(height=sides, width=sides, by_depth=st.booleans(), padding=paddings)
@settings(max_examples=60)
def test_padding_is_pytorch_s_or_tensorflow_s(
    height: int, width: int, by_depth: bool, padding: Padding
) -> None:
    groups = 4 if by_depth else 1
    layer = StridedConvolution(4, 4, groups=groups, padding=padding).double()
    x = torch.rand((1, 4, height, width), dtype=torch.float64)
    if padding == "same":
        expected = reference.same_conv(x, layer.weight, 2, groups)
    else:
        expected = F.conv2d(x, layer.weight, None, 2, 1, groups=groups)
    ours = layer(x)
    torch.testing.assert_close(ours, expected)
    (ours_gradient,) = torch.autograd.grad(ours.square().sum(), layer.weight)
    (gradient,) = torch.autograd.grad(expected.square().sum(), layer.weight)
    torch.testing.assert_close(ours_gradient, gradient)


@given(height=sides, width=sides, padding=paddings)
@settings(max_examples=60)
def test_gradients_by_stride_1_are_those_of_the_strided_filter(
    height: int, width: int, padding: Padding
) -> None:
    layer = StridedConvolution(4, 4, groups=4, padding=padding).double()
    x = torch.rand((2, 4, height, width), dtype=torch.float64, requires_grad=True)
    top, left = (1 - side % 2 if padding == "same" else 0 for side in (height, width))
    plain, ours = layer(x), StridedDepthwise.apply(x, layer.weight, top, left)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours, plain)
    weighted = torch.rand_like(plain)
    for expected, found in zip(
        torch.autograd.grad(plain, (x, layer.weight), weighted),
        torch.autograd.grad(ours, (x, layer.weight), weighted),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("picture_learns", [True, False])
def test_training_in_bf16_on_a_cpu_goes_by_stride_1(picture_learns: bool) -> None:
    layer = StridedConvolution(8, 8, groups=8, padding="same")
    x = torch.rand(2, 8, 6, 6, requires_grad=picture_learns)
    plain = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        ours = layer(x)
    assert "StridedDepthwise" in type(ours.grad_fn).__name__
    assert "StridedDepthwise" not in type(plain.grad_fn).__name__
    learning = (x, layer.weight) if picture_learns else (layer.weight,)
    for expected, found in zip(
        torch.autograd.grad(plain.sum(), learning), torch.autograd.grad(ours.sum(), learning), strict=True
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
