"""Losses that compare the pairs of a batch, in several processes: the batch is one, however many have shares of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from limner.data.records import Dataset
from limner.inference.import_model import import_model
from limner.losses.registry import LOSSES, loss_settings
from limner.recipes import get_recipe
from limner.recipes.change import change, start_from
from limner.training.loop import train
from tests import towers
from tests.training.interrupted import in_processes, trained_together

COMPARING = [kind for kind in LOSSES if loss_settings(kind).compares_pairs]

PROPERTIES = """
import random
import sys

import torch

from limner.losses.loss import Embedded, Mined
from limner.losses.registry import loss_settings
from limner.training.whole_batch import whole_batch

torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
_, cases, *kinds = sys.argv


def batch(images, texts, groups, mined, more_images, more_texts):
    # rows beside the batch stand behind it
    rows = [torch.cat([images, more_images]), torch.cat([texts, more_texts])] if mined else [images, texts]
    return Embedded(images, texts, groups, groups + 1, *rows, mined)


for case in range(int(cases)):
    chance = random.Random(case)
    pairs, dim, identities = chance.randint(2 * world, 4 * world), chance.randint(2, 5), chance.randint(1, 9)
    torch.manual_seed(case)
    given = torch.randn(4, pairs, dim, dtype=chance.choice([torch.float32, torch.float64]))
    groups, *more_groups = torch.randint(identities, (3, pairs))
    share = slice(rank, None, world)
    for kind in kinds:
        loss = loss_settings(kind)().build(dim, identities)
        if kind == "ranking":
            loss.negatives = chance.choice(["hardest", "sum", "mean"])
        mines = kind == "ranking" and chance.random() < 0.5
        ends = []
        for rows in (slice(None), share):
            leaves = [part[rows].clone().requires_grad_() for part in given]
            mined = Mined(*(part[rows] for part in more_groups)) if mines else None
            embedded = batch(leaves[0], leaves[1], groups[rows], mined, *leaves[2:])
            if rows is share:
                embedded = whole_batch(embedded, pairs)
            parameters = [*loss.parameters()]
            loss.zero_grad()
            (value,) = loss.terms(embedded).losses.values()
            value.backward()
            ends.append((embedded, value.detach(), [one.grad for one in leaves], [one.grad for one in parameters]))
        (one, expected, whole, learnt), (found_batch, found, parts, also) = ends
        for name in ("images", "texts", "groups", "classes", "image_rows", "text_rows"):
            assert torch.equal(getattr(one, name), getattr(found_batch, name)), name
        # to the last bit: they are the same rows in the same order
        assert torch.equal(found, expected), (case, kind)
        for ours, theirs in zip(parts, whole):
            if theirs is None:
                assert ours is None
            else:
                # the mean over the processes is what DistributedDataParallel makes of it
                assert torch.equal(ours, world * theirs[share]), (case, kind)
        for ours, theirs in zip(also, learnt):
            assert torch.equal(ours, theirs), (case, kind)

rows = torch.randn(2 + (rank == 0), 3).bfloat16().requires_grad_()
found = whole_batch(batch(rows, rows, torch.arange(len(rows)), None, None, None), 2 * world + 1)
assert found.images.dtype == torch.bfloat16 and torch.equal(found.images[rank::world], rows)
torch.distributed.destroy_process_group()
"""


def test_the_losses_that_compare_pairs() -> None:
    """Those that look at pairs of a batch by its embeddings; words, phrases and regions stay in a process."""
    assert set(COMPARING) == {"ranking", "pair", "sdm", "contrastive", "siglip", "tal", "circle"}


@pytest.mark.parametrize("count", [2, 3])
def test_loss_and_gradients_are_those_of_one_process(tmp_path: Path, count: int) -> None:
    """Shares of one size and not, matches in other shares, mined rows, learnt scales; 30 random cases of each loss."""
    script = tmp_path / "whole.py"
    script.write_text(PROPERTIES, encoding="utf-8")
    done = in_processes(count, str(script), "30", *COMPARING, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr


def test_two_processes_learn_as_one(toys: Dataset, tmp_path: Path) -> None:
    """All these losses in two epochs of six steps, of four and three pairs; towers without batch norm and dropout."""
    pytest.importorskip("transformers")
    (tmp_path / "source").mkdir()
    towers.save_clip(tmp_path / "source")
    import_model(str(tmp_path / "source"), tmp_path / "pair")
    recipe = change(
        start_from(get_recipe("fine-tune"), tmp_path / "pair"),
        (
            *("precision=fp32", "stages.tune.epochs=2", "stages.tune.batch=7", "stages.tune.sentences=all"),
            *("stages.tune.optimiser.name=sgd", "stages.tune.optimiser.rate=0.002"),
            *("stages.tune.optimiser.clip=null", "stages.tune.losses.instance=null"),
            "stages.tune.optimiser.multipliers={}",
            *(f"stages.tune.losses.{kind}={{}}" for kind in COMPARING if kind != "sdm"),
        ),
    )
    one = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "one", cpu=True)
    trained_together(2, toys, recipe, tmp_path / "two")
    for file in ("tune.safetensors", "tune-contrastive_scale.safetensors", "tune-siglip_scale.safetensors"):
        ours, theirs = load_file(tmp_path / "two" / file), load_file(one / file)
        assert ours.keys() == theirs.keys()
        for name in theirs:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6, msg=f"{file}: {name}")
    for ours, theirs in zip(_losses(tmp_path / "two"), _losses(one), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    first, last = _losses(one)
    assert first["contrastive"] - last["contrastive"] > 0.01


def _losses(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{kind: row[kind] for kind in COMPARING} for row in rows]
