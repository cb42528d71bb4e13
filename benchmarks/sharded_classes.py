"""A classifier over a million classes sharded over two and four processes, against one that holds it: memory of each.

Claim: of N processes each takes at most 1/N of one's memory and a tenth of one's: in a step of SGD with momentum, when
the state of the training is written, and when it is read. Each process's anonymous memory at its highest, above what it
has before the classifier is made. Images and sentences, batch 128 over all processes, 512 columns, blocks of 4,096:
`python -m benchmarks.sharded_classes`, with 8 GB of memory and of disk; `--classes N` takes another number.
"""

import argparse
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from benchmarks.measuring import sized, write
from limner.losses import InstanceLoss
from limner.losses.loss import Embedded
from limner.training.state import Progress, restore, write_state

BATCH, DIM, BLOCK, COUNTS = 128, 512, 4096, (1, 2, 4)
MOMENTS = ("a step", "the state written", "the state read")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=sized(1_000_000, 2_000))
    classes: int = parser.parse_args().classes
    peaks: dict[str, dict[str, int]] = {moment: {} for moment in MOMENTS}
    losses = []
    for count in COUNTS:
        found = _of_processes(count, classes)
        losses.append(sum(one["loss"] for one in found) / count)
        for moment in MOMENTS:
            name = "one process" if count == 1 else f"each of {count} processes"
            # the first process writes: its peak is not that of the others
            peaks[moment][name] = max(one[moment] for one in found)
            ratio = peaks[moment][name] / peaks[moment]["one process"]
            print(f"{moment}, {name}: {peaks[moment][name] / 1e6:,.0f} MB, {ratio:.3f}×", flush=True)
    torch.testing.assert_close(losses, losses[:1] * len(losses), rtol=1e-5, atol=1e-6)
    write("sharded_classes", {"classes": classes, "dim": DIM, "batch": BATCH, "peak_bytes": peaks})


def _of_processes(count: int, classes: int) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_measured, args=(rank, count, classes, Path(folder), answers))
            for rank in range(count)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            if process.exitcode:
                raise SystemExit(f"a process ended with {process.exitcode}")
        return [answers.get() for _ in processes]


def _measured(rank: int, count: int, classes: int, folder: Path, answers: Any) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // count))
    if count > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/found", rank=rank, world_size=count
        )
    torch.manual_seed(0)
    features = torch.randn(2, BATCH, DIM)
    own = torch.randint(classes, (BATCH,))
    # what the first step imports, and the first exchange takes, is not the classifier's
    made, _, optimiser = _made(10)
    torch.autograd.backward(made(features[0].chunk(count)[rank], own.chunk(count)[rank] % 10))
    optimiser.step()
    before = _anonymous()
    found: dict[str, Any] = {}
    with _peak(found, MOMENTS[0], before):
        made, network, optimiser = _made(classes)
        images, texts = (each.chunk(count)[rank].clone().requires_grad_() for each in features)
        own = own.chunk(count)[rank]
        terms = made.terms(Embedded(images, texts, own, own, images, texts))
        loss = torch.stack([*terms.losses.values()]).sum()
        torch.autograd.backward(loss)
        optimiser.step()
    found["loss"] = loss.item()
    optimiser.zero_grad()
    with _peak(found, MOMENTS[1], before):
        write_state(folder, network, [optimiser], Progress(), {"recipe": {}}, writes=rank == 0)
        _barrier(count)
    del made, network, optimiser, terms, loss
    with _peak(found, MOMENTS[2], before):
        _, network, optimiser = _made(classes)
        restore(folder, network, [optimiser])
        _barrier(count)
    answers.put(found)


def _made(classes: int) -> tuple[InstanceLoss, nn.ModuleDict, torch.optim.Optimizer]:
    torch.manual_seed(1)
    loss = InstanceLoss(DIM, classes, sharded=True)
    loss.block = BLOCK
    optimiser = torch.optim.SGD(loss.parameters(), lr=0.1, momentum=0.9, fused=True)
    return loss, nn.ModuleDict({"loss": loss}), optimiser


def _barrier(count: int) -> None:
    if count > 1:
        distributed.barrier()


@contextmanager
def _peak(found: dict[str, Any], name: str, before: int) -> Iterator[None]:
    """Note the highest anonymous memory within, above `before`: what a mapped file holds is the system's to drop."""
    seen, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            seen[0] = max(seen[0], _anonymous())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        found[name] = seen[0] - before


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


if __name__ == "__main__":
    main()
