"""The instance loss with a part of its classes in each of several processes, against all of them in one."""

import itertools
from pathlib import Path

import pytest
import torch

from limner.losses import InstanceLoss
from limner.losses.sharded_classes import Shard, random_rows
from tests.training.interrupted import in_processes

PROPERTIES = """
import random
import sys

import torch
import torch.nn.functional as F

from limner.errors import SettingsError
from limner.losses import Instance, InstanceLoss
from limner.losses.loss import Embedded, Examples
from limner.losses.sampled_classes import draw_classes
from tests.reference.losses import instance_loss

torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def whole_of(loss, name):
    # the rows of all processes, of as many as each holds
    found = [None] * world
    torch.distributed.all_gather_object(found, getattr(loss, name).detach())
    return torch.cat(found).requires_grad_()


def joined(tensor):
    found = [None] * world
    torch.distributed.all_gather_object(found, tensor)
    return found


for case in range(int(sys.argv[1])):
    chance = random.Random(case)
    share, dim, classes = chance.randint(1, 4), chance.randint(1, 5), chance.randint(world, 13)
    block, scale = chance.choice([None, 1, 3, 20]), chance.choice([None, 0.5, 20.0])
    smoothing, size = chance.choice([0.0, 0.3]), chance.choice([1e-3, 1.0, 100.0])
    torch.manual_seed(case)
    loss = InstanceLoss(
        dim, classes, bias=chance.random() < 0.5, scale=scale, smoothing=smoothing, sharded=True
    ).double()
    loss.block = block
    assert len(loss.weight) in {classes // world, classes // world + 1}
    if loss.bias is not None:
        torch.nn.init.normal_(loss.bias)
    torch.manual_seed(case + 1)
    weight = whole_of(loss, "weight")
    bias = None if loss.bias is None else whole_of(loss, "bias")
    assert len(weight) == classes
    every = size * torch.randn(world * share, dim, dtype=torch.float64)
    own_classes = torch.randint(classes, (world * share,))
    part = slice(rank * share, (rank + 1) * share)
    features = every[part].clone().requires_grad_()
    above = torch.rand(world, dtype=torch.float64)
    found = loss(features, own_classes[part])
    if size <= 1:
        expected = instance_loss(
            every[part].tolist(), weight.tolist(), own_classes[part].tolist(),
            bias=None if bias is None else bias.tolist(), scale=scale, smoothing=smoothing,
        )
        assert abs(found.item() - expected) <= 1e-6 * abs(expected) + 1e-9, (case, found.item(), expected)
    torch.autograd.backward(found * above[rank])
    # all of them in this process: what DistributedDataParallel learns from, the mean over the processes
    given = every.clone().requires_grad_()
    logits = (
        F.linear(given, weight) if scale is None
        else scale * F.linear(F.normalize(given), F.normalize(weight))
    )
    logits = logits if bias is None else logits + bias
    losses = F.cross_entropy(logits, own_classes, label_smoothing=smoothing, reduction="none")
    parts = losses.reshape(world, share).mean(1)
    close(found.detach(), parts.detach()[rank])
    torch.autograd.backward((above * parts).sum())
    close(features.grad, given.grad[part])
    close(loss.weight.grad, weight.grad[loss.shard.rows] / world)
    if bias is not None:
        close(loss.bias.grad, bias.grad[loss.shard.rows] / world)

# terms, errors and dropout are those of one process
for settings in (
    Instance(sharded=True), Instance(sharded=True, block=3, bias=True, joint=0.5), Instance(sharded=True, scale=8.0)
):
    for alone in (False, True):
        torch.manual_seed(5)
        loss = (settings.replace(sharded=False) if alone else settings).build(6, 11)
        loss.use(settings, 5)
        torch.manual_seed(rank)
        images, texts = torch.randn(2, 4, 6)
        own = torch.randint(11, (4,))
        terms = loss.terms(Embedded(images, texts, torch.arange(4), own, images, texts))
        if alone:
            assert terms.losses.keys() == before.losses.keys() and terms.shown.keys() == before.shown.keys()
            for name, value in {**terms.losses, **terms.shown}.items():
                torch.testing.assert_close({**before.losses, **before.shown}[name], value)
        before = terms

# of equal logits the first class is the highest, whoever holds it
loss = InstanceLoss(1, 2 * world, sharded=True)
with torch.no_grad():
    loss.weight.fill_(1.0)
for c in range(2 * world):
    rows, own = torch.ones(1, 1), torch.tensor([c])
    shown = loss.terms(Embedded(rows, rows, own, own, rows, rows)).shown
    assert shown["visual_error"].item() == (0 if c == 0 else 100)

# the rows start at the mean of their classes as in one process
torch.manual_seed(0)
examples = Examples(F.normalize(torch.randn(30, 6)), torch.randint(7, (30,)), torch.randn(1, 6), torch.tensor([0]))
ends = []
for sharded in (True, False):
    loss = Instance(initial="images", sharded=sharded).build(6, 7)
    loss.start(lambda: examples, first=True)
    ends.append(loss)
torch.testing.assert_close(ends[0].weight, ends[1].weight[ends[0].shard.rows])

# a sample: all processes draw from what they hold, and the softmax goes over what all have drawn
for case in range(20):
    chance = random.Random(case)
    share, classes, sample = chance.randint(1, 4), chance.randint(world, 20), chance.choice([0.1, 0.5, 0.9])
    torch.manual_seed(case)
    loss = InstanceLoss(3, classes, bias=True, smoothing=0.2, sharded=True).double()
    loss.sample, loss.block = sample, chance.choice([None, 2])
    loss.scale = chance.choice([None, 2.0])
    weight, bias = whole_of(loss, "weight"), whole_of(loss, "bias")
    every = torch.randn(world * share, 3, dtype=torch.float64)
    own_classes = torch.randint(classes, (world * share,))
    part = slice(rank * share, (rank + 1) * share)
    torch.manual_seed(100 * case + rank)
    found = loss(every[part], own_classes[part])
    torch.autograd.backward(found)
    drawn = loss.weight.grad.coalesce().indices()[0]
    held = own_classes[(own_classes >= loss.shard.first) & (own_classes < loss.shard.rows.stop)]
    assert set((held - loss.shard.first).tolist()) <= set(drawn.tolist())
    assert len(drawn) == max(len(set(held.tolist())), round(sample * loss.shard.held))
    of_all = torch.cat(joined(drawn + loss.shard.first))
    places = torch.searchsorted(of_all, own_classes)
    rows = weight[of_all] if loss.scale is None else loss.scale * F.normalize(weight[of_all])
    logits = F.linear(every if loss.scale is None else F.normalize(every), rows, bias[of_all])
    parts = F.cross_entropy(logits, places, label_smoothing=0.2, reduction="none").reshape(world, share).mean(1)
    close(found.detach(), parts.detach()[rank])
    torch.autograd.backward(parts.mean())
    close(loss.weight.grad.to_dense(), weight.grad[loss.shard.rows])
    close(loss.bias.grad.to_dense(), bias.grad[loss.shard.rows])

try:
    InstanceLoss(3, world - 1, sharded=True)
except SettingsError as error:
    assert str(error).startswith(f"setting 'sharded': {world - 1} classes cannot be held by {world} processes")
else:
    raise AssertionError("fewer classes than processes")
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("count", [2, 3])
def test_loss_and_gradients_are_those_of_one_process(tmp_path: Path, count: int) -> None:
    """The slow twin, all logits with autograd, terms, starts and samples; 80 random cases."""
    script = tmp_path / "shards.py"
    script.write_text(PROPERTIES, encoding="utf-8")
    done = in_processes(count, str(script), "80", cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr


def test_the_rows_start_alike_however_many_processes_hold_them() -> None:
    classes = 40_000
    torch.manual_seed(0)
    whole = InstanceLoss(3, classes).weight
    for ends in ([0, classes], [0, 13_333, 26_666, classes]):
        found = []
        for first, end in itertools.pairwise(ends):
            torch.manual_seed(0)
            found.append(random_rows(3, Shard(first, end - first, classes)))
        torch.testing.assert_close(torch.cat(found) / 3**0.5, whole)


def test_alone_a_process_holds_all_of_them() -> None:
    loss = InstanceLoss(3, 5, sharded=True)
    assert loss.shard is None
    assert len(loss.weight) == 5
