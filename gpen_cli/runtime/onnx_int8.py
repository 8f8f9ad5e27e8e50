"""An exported graph in int8: which convolutions, in which form, and how much of the arithmetic that is. Needs onnx.

Quantised is what costs: the 3×3 convolutions. Each takes and gives 8-bit numbers of one scale a tensor, weights of one scale an
output channel, all symmetric (TensorRT takes no other), and stands between QuantizeLinear and DequantizeLinear, the form that
engines fuse into one kernel. Everything between two convolutions stays float32: styles, sums and activations in 8 bit cost 9 dB
and gained no time (docs/deployment.md has the figures), and the convolutions from and to RGB decide the picture's last bit.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from gpen_cli.data import Float32Array
from gpen_cli.errors import WeightsError

_COLOURS = 3
_PREPROCESSED = ("onnx.quant.pre_process", "onnxruntime.quant")
"""Metadata by which onnxruntime's quantizer knows a prepared graph; without it, it advises to prepare it, on the root logger."""
_MULTIPLYING = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def quantized(proto: ModelProto, feeds: Iterable[np.ndarray]) -> ModelProto:
    """``proto``, an export in fp32, with its convolutions in int8; ranges are the least and largest values over ``feeds``.

    feeds: values of the graph's input, each a whole pass. Raises WeightsError for a graph that has none to quantise.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    prepared = with_phases(proto)
    nodes = [node.name for node, _ in _wide_convolutions(prepared.graph)]
    if not nodes:
        raise WeightsError("The graph holds no convolution that could be quantised; name a file made by gpen export.")
    helper.set_model_props(prepared, dict([_PREPROCESSED]))
    with tempfile.TemporaryDirectory(prefix="gpen-quantize-") as folder:
        target = Path(folder) / "int8.onnx"
        quantize_static(
            prepared,
            target,
            _Feeds(proto.graph.input[0].name, feeds),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            nodes_to_quantize=nodes,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"ActivationSymmetric": True},
        )
        return onnx.load(target)


def share_in_int8(proto: ModelProto) -> float:
    """The share, 0 to 1, of the graph's multiply-adds whose two factors are 8-bit numbers, for one face."""
    dequantised = {node.output[0] for node in proto.graph.node if node.op_type == "DequantizeLinear"}
    total = inside = 0
    for node, count in _multiply_adds(proto):
        total += count
        inside += count if set(node.input[:2]) <= dequantised else 0
    return inside / total if total else 0.0


def with_phases(proto: ModelProto) -> ModelProto:
    """The same numbers without the transposed convolutions that double a map: no engine on CPUs has those in int8.

    A 3×3 kernel with stride 2 meets an output of even row and column with four of its taps, others with two, two and one: four
    small kernels, which one 2×2 convolution computes side by side, and DepthToSpace interleaves. Its map has one row and one
    column of zeros more than before, so the low-pass behind it is given one less to pad.
    """
    changed = ModelProto.FromString(proto.SerializeToString())
    graph = changed.graph
    weights = {item.name: item for item in graph.initializer}
    nodes: list[NodeProto] = []
    for node in [NodeProto.FromString(item.SerializeToString()) for item in graph.node]:
        if _doubles(node, weights):
            nodes += _phases(node, graph, weights)
        elif nodes and nodes[-1].op_type == "DepthToSpace" and node.input[0] == nodes[-1].output[0]:
            _set_pads(node, [1, 1, 0, 0])
            nodes.append(node)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [item for item in graph.initializer if item.name in used]
    kept = [TensorProto.FromString(item.SerializeToString()) for item in kept]  # they die with the list they lie in
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return changed


def phase_kernels(weight: Float32Array) -> Float32Array:
    """(I, O, 3, 3) of a transposed convolution with stride 2 -> (4·O, I, 2, 2): rows' phase, columns' phase, then channels.

    Row 2m + p of the doubled map sums x[m − d]·w[p + 2d] over d = 0, 1; the 2×2 kernel's tap a meets x[m − 1 + a], so d = 1 − a.
    """
    inputs, outputs = weight.shape[:2]
    kernels = np.zeros((2, 2, outputs, inputs, 2, 2), np.float32)
    for row, column, a, b in np.ndindex(2, 2, 2, 2):
        y, x = row + 2 * (1 - a), column + 2 * (1 - b)
        if y < 3 and x < 3:
            kernels[row, column, :, :, a, b] = weight[:, :, y, x].T
    return kernels.reshape(4 * outputs, inputs, 2, 2)


class _Feeds:
    """What onnxruntime's calibration asks for its inputs."""

    def __init__(self, name: str, feeds: Iterable[np.ndarray]) -> None:
        self._name = name
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        feed = next(self._feeds, None)
        return None if feed is None else {self._name: feed}


def _wide_convolutions(graph: GraphProto) -> Iterator[tuple[NodeProto, TensorProto]]:
    """Those from many channels to many: not the filters, which are depthwise, nor what begins or ends in RGB."""
    weights = {item.name: item for item in graph.initializer}
    for node in graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "Conv" else None
        if weight is not None and min(weight.dims[:2]) > _COLOURS:
            yield node, weight


def _doubles(node: NodeProto, weights: dict[str, TensorProto]) -> bool:
    if node.op_type != "ConvTranspose" or node.input[1] not in weights:
        return False
    told = {item.name: list(item.ints) for item in node.attribute}
    shape = list(weights[node.input[1]].dims)
    return shape[2:] == [3, 3] and told.get("strides") == [2, 2] and not any(told.get("pads", [0]))


def _phases(node: NodeProto, graph: GraphProto, weights: dict[str, TensorProto]) -> list[NodeProto]:
    kernels = phase_kernels(numpy_helper.to_array(weights[node.input[1]]))
    name = f"{node.name}/phases"
    graph.initializer.append(numpy_helper.from_array(kernels, f"{name}.weight"))
    conv = helper.make_node(
        "Conv", [node.input[0], f"{name}.weight"], [f"{name}_output"], name=name, kernel_shape=[2, 2], pads=[1, 1, 1, 1]
    )
    spread = helper.make_node(
        "DepthToSpace", [f"{name}_output"], list(node.output), name=f"{node.name}/spread", blocksize=2, mode="DCR"
    )
    return [conv, spread]


def _set_pads(node: NodeProto, pads: list[int]) -> None:
    kept = [item for item in node.attribute if item.name != "pads"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", pads)])


def _multiply_adds(proto: ModelProto) -> Iterator[tuple[NodeProto, int]]:
    one = ModelProto.FromString(proto.SerializeToString())
    for value in (*one.graph.input, *one.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del one.graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(one).graph
    shapes = {
        item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        for item in (*graph.value_info, *graph.input, *graph.output)
    }
    shapes |= {item.name: list(item.dims) for item in graph.initializer}
    for node in graph.node:
        if node.op_type in _MULTIPLYING:
            given, weight, answer = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
            if node.op_type == "Conv":
                yield node, math.prod(answer) * math.prod(weight[1:])
            elif node.op_type == "ConvTranspose":
                yield node, math.prod(given) * math.prod(weight[1:])
            else:
                yield node, math.prod(weight)  # one row, the face's style
