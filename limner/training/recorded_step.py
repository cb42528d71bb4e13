"""A step's forward and backward pass recorded once as a CUDA graph and replayed: one launch in place of hundreds.

A text CNN of small batches gives a GPU hundreds of small kernels a step, which Python cannot ask for as fast as they
run.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from limner.inference.precision import Arithmetic, autocast
from limner.losses.loss import Mined, Sextuples
from limner.models.dual_encoder import DualEncoder
from limner.training.objective import Objective, TrainingBatch
from limner.training.recipe import StageSettings

_UNRECORDED = 3
"""Steps of a shape before it is recorded: the libraries choose their kernels and take their memory in them."""


def is_recordable(stage: StageSettings, objective: Objective) -> bool:
    """True if the same operations on the same memory are a step of this stage, whatever the batch.

    A network that changes from step to step, a loss that keeps state of its own in Python or draws classes, and stages
    that split a batch or compute a layer twice have no such step.
    """
    steady = type(objective.model).anneal is DualEncoder.anneal
    return (
        steady
        and stage.reranker_pairs is None
        and stage.chunk is None
        and not stage.checkpointing
        # how many classes a batch has, and so what is drawn, differs from step to step
        and not stage.sparse_parts
        and all(objective.loss(settings.kind).recordable for settings in stage.losses)
    )


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    batch: TrainingBatch
    losses: dict[str, Tensor]
    gradients: list[tuple[nn.Parameter, Tensor | None]]


class RecordedStep:
    """The losses of a batch, with their gradients in `.grad` of what learns; for one process on a CUDA device.

    The first steps of each shape of a batch are taken as usual, the next is recorded, the others are replays. They are
    the same operations in the same order; what is drawn at random in them follows `torch.manual_seed` as always, but
    from other places of its stream.
    """

    def __init__(self, objective: Objective, precision: Arithmetic, device: torch.device) -> None:
        self._objective = objective
        self._precision = precision
        self._device = device
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._recordings: dict[tuple[object, ...], _Recording] = {}
        # A graph is recorded on a stream of its own, and what autograd keeps of a parameter is bound to its stream.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, batch: TrainingBatch) -> dict[str, Tensor]:
        """The losses of `Objective.forward`, without a graph behind them."""
        shape = tuple((name, *tensor.shape, tensor.dtype) for name, tensor in _tensors(batch))
        recording = self._recordings.get(shape)
        if recording is None:
            if self._seen[shape] < _UNRECORDED:
                self._seen[shape] += 1
                return self._unrecorded(batch)
            recording = self._recordings[shape] = self._record(batch)
        for (_, held), (_, given) in zip(_tensors(recording.batch), _tensors(batch), strict=True):
            held.copy_(given)
        recording.graph.replay()
        for parameter, gradient in recording.gradients:
            # Another shape has gradients of its own, and may have one where this one has none.
            parameter.grad = gradient
        return recording.losses

    def _unrecorded(self, batch: TrainingBatch) -> dict[str, Tensor]:
        main = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            losses = self._pass(batch)
        main.wait_stream(self._stream)
        return losses

    def _record(self, batch: TrainingBatch) -> _Recording:
        graph = torch.cuda.CUDAGraph()
        held = batch.copied()
        torch.cuda.synchronize(self._device)
        # thread_local: the threads that make batches go on copying them to the device meanwhile.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            losses = self._pass(held)
        gradients = [(parameter, parameter.grad) for parameter in self._objective.parameters()]
        return _Recording(graph, held, losses, gradients)

    def _pass(self, batch: TrainingBatch) -> dict[str, Tensor]:
        # None, so that the backward pass writes gradients anew where it would otherwise add to them.
        self._objective.zero_grad(set_to_none=True)
        with autocast(self._precision, self._device):
            losses: dict[str, Tensor] = self._objective(batch)
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        return {name: value.detach() for name, value in losses.items()}


def _tensors(holder: TrainingBatch | Mined | Sextuples, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a batch by name."""
    for field in fields(holder):
        value = getattr(holder, field.name)
        if isinstance(value, Tensor):
            yield prefix + field.name, value
        elif isinstance(value, Mined | Sextuples):
            yield from _tensors(value, f"{field.name}.")
