"""An image tower in int8: which convolutions it leaves alone, and the same embeddings by both engines."""

from pathlib import Path

import numpy as np
import pytest

from limner.export.int8 import _sensitive, quantise_images
from limner.export.sessions import OUTPUT, open_tower

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

WIDTH = 96
# of the last convolution, which is left alone for its place and not for its width
END = 80


def write_tower_of_two_views(path: Path) -> None:
    """A picture and its mirror image through a convolution, four of 1×1, one by channel, and one at the end.

    As an uneven padding is recorded, each view has weights of its own in its first convolution.
    """
    random = np.random.default_rng(0)
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    shapes = {"first": (WIDTH, 3, 3, 3), **{f"inner{number}": (WIDTH, WIDTH, 1, 1) for number in range(4)}}
    shapes |= {"by_channel": (WIDTH, 1, 3, 3), "last": (END, WIDTH, 1, 1)}
    weights = {
        name: random.normal(0, 1.4 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    for name in weights:
        if name.startswith("inner"):
            # all as large as the largest, and neighbours alike: by eight bits a weight they overflow 16 bits
            signs = np.sign(random.normal(size=(WIDTH, WIDTH // 2))).repeat(2, axis=1)
            weights[name] = (0.25 * signs[:, :, None, None]).astype(np.float32)
    weights["first_mirrored"] = weights["first"][:, :, :, ::-1].copy()
    nodes = [
        helper.make_node("Cast", ["pixels"], ["float"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["channels_first"], perm=[0, 3, 1, 2]),
        helper.make_node("Div", ["channels_first", "scale"], ["scaled"]),
        helper.make_node("Sub", ["scaled", "one"], ["view"]),
    ]
    for side, first in (("left", "first"), ("right", "first_mirrored")):
        value = "view"
        for name in (first, "inner0", "inner1", "by_channel", "inner2", "inner3", "last"):
            groups = {"group": WIDTH, "pads": [1] * 4} if name == "by_channel" else {}
            out = f"{side}-{name}"
            nodes.append(helper.make_node("Conv", [value, name], [out], name=out, **groups))
            value = out
            # every other one is linear, so that what is quantised has both signs
            if name in (first, "inner1", "inner2", "last"):
                nodes.append(helper.make_node("Clip", [out, "zero", "six"], [f"{out}-clipped"]))
                value = f"{out}-clipped"
        nodes.append(helper.make_node("GlobalAveragePool", [value], [f"{side}-pooled"]))
    nodes.append(helper.make_node("Add", ["left-pooled", "right-pooled"], ["sum"]))
    nodes.append(helper.make_node("Flatten", ["sum"], [OUTPUT]))
    constants = {"scale": 127.5, "one": 1.0, "zero": 0.0, "six": 6.0}
    tensors = [
        *(numpy_helper.from_array(value, name) for name, value in weights.items()),
        *(numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()),
    ]
    of_pixels = helper.make_tensor_value_info("pixels", onnx.TensorProto.UINT8, ["images", 24, 24, 3])
    of_embeddings = helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.FLOAT, ["images", END])
    graph = helper.make_graph(nodes, "tower", [of_pixels], [of_embeddings], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def test_narrow_convolutions_and_the_last_of_each_view_stay(tmp_path: Path) -> None:
    write_tower_of_two_views(tmp_path / "image.onnx")
    assert sorted(_sensitive(tmp_path / "image.onnx")) == [
        *("left-by_channel", "left-first", "left-last", "right-by_channel"),
        *("right-first_mirrored", "right-last"),
    ]


def test_both_engines_give_what_the_file_says(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    whole, small = tmp_path / "image.onnx", tmp_path / "small.onnx"
    write_tower_of_two_views(whole)
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (40, 24, 24, 3), dtype=np.uint8)
    quantise_images(whole, small, "pixels", pixels[:8])
    openvino.save_model(openvino.convert_model(str(small)), str(tmp_path / "small.xml"))
    right = open_tower(whole, "onnx")(pixels)
    by_onnx = open_tower(small, "onnx")(pixels)
    by_openvino = open_tower(tmp_path / "small.xml", "openvino")(pixels)
    assert _cosines(by_onnx, right).min() >= 0.999
    assert _cosines(by_openvino, by_onnx).min() >= 0.9999


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    found: np.ndarray = (one * other).sum(axis=1) / (
        np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    )
    return found
