"""Tensors of another shape than a loss names are refused by name, by every loss, and nothing else changes."""

import inspect
import subprocess
import sys
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

import limner.losses
from limner.errors import SettingsError
from limner.losses import CMCELoss, ContrastiveLoss, InstanceLoss, Loss, SDMLoss

DIM, PAIRS = 5, 4
SHAPES = {"batch": PAIRS, "dim": DIM, "more_images": 2, "more_texts": 3}
LOSSES = sorted(
    name
    for name, one in vars(limner.losses).items()
    if inspect.isclass(one) and issubclass(one, Loss) and one is not Loss
)


def built(name: str) -> Loss:
    loss: Loss = getattr(limner.losses, name)(*((DIM, PAIRS) if name in ("CMCELoss", "InstanceLoss") else ()))
    if isinstance(loss, CMCELoss):
        loss.fill(torch.eye(PAIRS, DIM), torch.arange(PAIRS), torch.eye(PAIRS, DIM), torch.arange(PAIRS))
    return loss


def given(loss: Loss) -> dict[str, Tensor]:
    """A tensor of the right shape for each parameter of a loss that has axes."""
    torch.manual_seed(0)
    found = {}
    for name, parameter in inspect.signature(loss.forward).parameters.items():
        kinds = [parameter.annotation, *getattr(parameter.annotation, "__args__", ())]
        for kind in kinds:
            if hasattr(kind, "dim_str"):
                shape = [SHAPES[axis] for axis in kind.dim_str.split()]
                is_float = kind.__name__.startswith("Float")
                found[name] = torch.rand(shape) if is_float else torch.arange(shape[0]) % 2
                if kind.__name__.startswith("Bool"):
                    found[name] = found[name] >= 0
    return found


def call(loss: Loss, tensors: Mapping[str, Tensor]) -> Tensor:
    others = {"samples": 9} if "samples" in inspect.signature(loss.forward).parameters else {}
    value: Tensor = loss(**tensors, **others)
    return value


@pytest.mark.parametrize("name", LOSSES)
def test_a_column_a_row_and_another_length_are_refused(name: str) -> None:
    loss = built(name)
    tensors = given(loss)
    assert len(tensors) > 1
    value = call(loss, tensors)
    # the same to the bit as without the check, by place and by name
    others = {"samples": 9} if "samples" in inspect.signature(loss.forward).parameters else {}
    assert torch.equal(loss.forward(**tensors, **others), value)
    for one, tensor in tensors.items():
        wrong = [tensor[..., None], tensor[None], tensor.sum()]
        # the first tensor says how many there are
        wrong += [tensor[:-1]] if one not in ("features", "images", "similarity") else []
        for other in wrong:
            # an axis that no other tensor has may be of any length
            if other.dim() == tensor.dim() and not one.startswith("extra"):
                with pytest.raises(SettingsError, match=rf"^{name}: {one} has the shape"):
                    call(loss, {**tensors, one: other})
            elif other.dim() != tensor.dim():
                with pytest.raises(SettingsError, match=rf"^{name}: \w+ has the shape"):
                    call(loss, {**tensors, one: other})


def test_a_column_of_groups_is_told_with_both_shapes() -> None:
    rows, groups = torch.rand(PAIRS, DIM), torch.arange(PAIRS)
    with pytest.raises(SettingsError) as caught:
        SDMLoss()(rows, rows, groups[:, None])
    assert str(caught.value) == "SDMLoss: groups has the shape (4, 1), (4) was expected: (batch)"
    with pytest.raises(SettingsError, match="InstanceLoss: groups has the shape"):
        InstanceLoss(DIM, PAIRS)(rows, groups[:, None])


@pytest.mark.parametrize("name", LOSSES)
def test_an_empty_batch_is_refused(name: str) -> None:
    loss = built(name)
    with pytest.raises(SettingsError, match=rf"^{name}: \w+ is of no pair"):
        call(
            loss,
            {
                key: one[:0, :0] if one.dim() == 2 and key == "similarity" else one[:0]
                for key, one in given(loss).items()
            },
        )


@pytest.mark.parametrize("name", ["InstanceLoss", "CMCELoss"])
def test_another_width_and_classes_that_are_not_there_are_refused(name: str) -> None:
    loss = built(name)
    tensors = given(loss)
    wide = {key: torch.rand(PAIRS, DIM + 1) if one.dim() == 2 else one for key, one in tensors.items()}
    with pytest.raises(SettingsError, match=rf"^{name}: \w+ has the shape \(4, 6\), \(\w+, 5\) was expected"):
        call(loss, wide)
    for wrong in (-1, -100, PAIRS):
        with pytest.raises(SettingsError, match=rf"^{name}: groups are classes from 0 to 3, got {wrong}$"):
            call(loss, {**tensors, "groups": torch.tensor([0, 1, 2, wrong])})


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_no_tensor_of_its_kind_is_refused(name: str) -> None:
    loss = built(name)
    tensors = given(loss)
    for key, one in tensors.items():
        with pytest.raises(SettingsError, match=rf"^{name}: {key}: expected a tensor, got numpy.ndarray$"):
            call(loss, {**tensors, key: one.numpy()})  # type: ignore[dict-item]
    if "groups" in tensors:
        with pytest.raises(
            SettingsError, match=rf"^{name}: groups: expected whole numbers, got torch.float32$"
        ):
            call(loss, {**tensors, "groups": tensors["groups"].float()})


@pytest.mark.parametrize("made", [InstanceLoss, CMCELoss])
@pytest.mark.parametrize(
    ("name", "sizes"), [("dim", (0, 3)), ("identities", (3, 0)), ("identities", (3, -1))]
)
def test_a_loss_of_no_class_or_width_is_refused(made: type, name: str, sizes: tuple[int, int]) -> None:
    with pytest.raises(SettingsError, match=rf"^\w+: {name}: expected at least 1, got"):
        made(*sizes)


def test_other_methods_are_held_to_their_shapes() -> None:
    loss, rows, groups = CMCELoss(DIM, PAIRS), torch.eye(PAIRS, DIM), torch.arange(PAIRS)
    with pytest.raises(
        SettingsError, match=r"^CMCELoss: image_groups has the shape \(3,\), \(4\) was expected"
    ):
        loss.fill(rows, groups[:3], rows, groups)
    with pytest.raises(SettingsError, match="text_groups are classes from 0 to 3, got 4"):
        loss.fill(rows, groups, rows, groups + 1)
    with pytest.raises(SettingsError, match=r"^InstanceLoss: features has the shape \(4, 4\)"):
        InstanceLoss(DIM, PAIRS).logits(torch.eye(4))
    with pytest.raises(SettingsError, match=r"^ContrastiveLoss: groups has the shape \(4, 1\)"):
        ContrastiveLoss().of_similarities(torch.eye(4), groups[:, None])


@pytest.mark.slow  # a process of its own, without the checks of types that break a graph
def test_a_compiled_loss_is_one_graph() -> None:
    script = """
import torch
from limner.losses import SDMLoss
rows, groups, loss = torch.rand(4, 5), torch.arange(4) // 2, SDMLoss()
compiled = torch.compile(loss, backend="eager", fullgraph=True)
print(torch.equal(compiled(rows, rows, groups), loss(rows, rows, groups)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_float32(name: str, kind: torch.dtype) -> None:
    loss = built(name)
    tensors = given(loss)
    narrow = {key: one.to(kind) if one.is_floating_point() else one for key, one in tensors.items()}
    assert call(loss, narrow).item() == pytest.approx(call(loss, tensors).item(), rel=0.05, abs=0.05)
