"""Weights in int8 or fp16 and sums in fp32: a smaller tower that gives nearly the embeddings of the whole one."""

from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

WeightType = Literal["int8", "fp16"]

_SMALL = 1024
"""Weights of fewer numbers stay as they are."""

# normally distributed weights lose 0.8 %; of the text CNN of `dual-path-flickr8k-strong`, whose start as a bag of words
# makes rows of one large number among small ones, int8 lost all that was learnt beside it (docs/log/2026-11-26.md)
_MOST_LOST = 0.01
"""Share of a weight's length that int8 may lose; of a weight that would lose more, fp16 is taken."""

_LARGEST = 127
"""Largest value of an int8 weight; -128 would have no opposite."""


def write_small_weights(source: Path, target: Path, *, tables: WeightType, others: WeightType) -> None:
    """Write a tower in fp32 with its weights in fewer bits: `tables` are those whose rows are looked up.

    An int8 weight has a scale for each row or channel, and a weight that would lose more than 1 % by it stands in fp16.
    Activations stay in fp32, so that any operator will do. ONNX Runtime makes fp32 of all but the tables when it loads
    the file.
    """
    import onnx

    model: Any = onnx.load(source)
    graph = model.graph
    users: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    # the nodes of graphs within nodes, such as a loop's, see a weight by its name, too
    inner = {name for node in graph.node for name in _named_within(node)}
    for node in graph.node:
        for place, name in enumerate(node.input):
            users[name].append((node, place))
    weights: list[Any] = []
    replaced: dict[int, list[Any]] = {}
    first: list[Any] = []
    for weight in graph.initializer:
        name = weight.name
        if (
            weight.data_type != onnx.TensorProto.FLOAT
            or len(weight.dims) < 2
            or int(np.prod(weight.dims)) < _SMALL
            or name in inner
        ):
            weights.append(weight)
            continue
        values = onnx.numpy_helper.to_array(weight)
        used = users[name]
        if used and all(_is_look_up(node, place) for node, place in used):
            parts = _parts(values, tables, 0)
            weights += _tensors(onnx, name, parts)
            for node, _ in used:
                # looked up first and spread then: the other way round each sentence would spread the whole table
                rows = [f"{node.output[0]}/row{number}" for number in range(len(parts))]
                found = [
                    onnx.helper.make_node("Gather", [f"{name}/part{number}", node.input[1]], [row], axis=0)
                    for number, row in enumerate(rows)
                ]
                replaced[id(node)] = [*found, *_spread(onnx, rows, node.output[0])]
        else:
            parts = _parts(values, others, None)
            weights += _tensors(onnx, name, parts)
            first += _spread(onnx, [f"{name}/part{number}" for number in range(len(parts))], name)
    nodes = [*first, *(new for node in graph.node for new in replaced.get(id(node), [node]))]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    onnx.save(model, target)


def _named_within(node: Any) -> set[str]:
    """Names that graphs in a node's attributes use."""
    graphs = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
    inside = [one for graph in graphs for one in graph.node]
    return {name for one in inside for name in one.input}.union(*map(_named_within, inside))


def _is_look_up(node: Any, place: int) -> bool:
    axes = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
    return node.op_type == "Gather" and place == 0 and not any(axes)


def _parts(values: np.ndarray, kind: WeightType, axis: int | None) -> list[np.ndarray]:
    """Halves, or whole numbers and their scales along an axis; None = the one that loses least."""
    half = [values.astype(np.float16)]
    if kind == "fp16":
        return half
    tried = [_rounded(values, one) for one in (range(values.ndim) if axis is None else (axis,))]
    losses = [float(np.square(numbers * scales - values).sum()) for numbers, scales in tried]
    least = int(np.argmin(losses))
    lost = (losses[least] / max(float(np.square(values).sum()), 1e-30)) ** 0.5
    return half if lost > _MOST_LOST else list(tried[least])


def _rounded(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    across = tuple(place for place in range(values.ndim) if place != axis)
    scales = np.abs(values).max(axis=across, keepdims=True).astype(np.float32) / np.float32(_LARGEST)
    # a row of zeros has no scale of its own
    scales = np.where(scales == 0, np.float32(1), scales)
    return np.rint(values / scales).astype(np.int8), scales


def _spread(onnx: Any, parts: list[str], name: str) -> list[Any]:
    """Nodes that make fp32 of halves, or of whole numbers and scales.

    No DequantizeLinear: some builds of ONNX Runtime join it with the product behind it, and round the activations.
    """
    if len(parts) == 1:
        return [onnx.helper.make_node("Cast", parts, [name], to=onnx.TensorProto.FLOAT)]
    whole = f"{name}/whole"
    return [
        onnx.helper.make_node("Cast", parts[:1], [whole], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Mul", [whole, parts[1]], [name]),
    ]


def _tensors(onnx: Any, name: str, parts: list[np.ndarray]) -> list[Any]:
    return [
        onnx.numpy_helper.from_array(np.ascontiguousarray(part), f"{name}/part{number}")
        for number, part in enumerate(parts)
    ]
