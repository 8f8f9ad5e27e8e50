"""An exported graph in int8: which convolutions, in which form, and how much of the arithmetic that is. Needs onnx.

Quantised is what multiplies: the wide convolutions. Each takes and gives 8-bit numbers of one scale a tensor, has weights of one
scale an output channel, all symmetric (TensorRT takes no other), and stands between QuantizeLinear and DequantizeLinear, the
form that engines fuse into one kernel. Everything between two convolutions stays float32: activations and sums in 8 bit cost 9 dB
and are slower (docs/deployment.md has the figures), and the convolutions from and to RGB decide the picture's last bit.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper

from gpen_cli.errors import WeightsError
from gpen_cli.runtime.onnx_lean import lean

_COLOURS = 3
_PREPROCESSED = ("onnx.quant.pre_process", "onnxruntime.quant")
"""Metadata by which onnxruntime's quantizer knows a prepared graph; without it, it advises to prepare it, on the root logger."""
_MULTIPLYING = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def quantized(proto: ModelProto, feeds: Iterable[np.ndarray]) -> ModelProto:
    """``proto``, an export in fp32, with its convolutions in int8; ranges are the least and largest values over ``feeds``.

    feeds: values of the graph's input, each a whole pass. Raises WeightsError for a graph that has none to quantise.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    prepared = lean(proto)
    nodes = [node.name for node in _wide_convolutions(prepared.graph)]
    if not nodes:
        raise WeightsError("The graph holds no convolution that could be quantised; name a file made by gpen export.")
    helper.set_model_props(prepared, dict([_PREPROCESSED]))
    with tempfile.TemporaryDirectory(prefix="gpen-quantize-") as folder:
        # As a file: onnxruntime 1.20 writes a graph out of memory twice, and loses its weights on the way.
        source, target = (Path(folder) / name for name in ("fp32.onnx", "int8.onnx"))
        onnx.save(prepared, source)
        quantize_static(
            source,
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


class _Feeds:
    """What onnxruntime's calibration asks for its inputs."""

    def __init__(self, name: str, feeds: Iterable[np.ndarray]) -> None:
        self._name = name
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        feed = next(self._feeds, None)
        return None if feed is None else {self._name: feed}


def _wide_convolutions(graph: GraphProto) -> Iterator[NodeProto]:
    """Those from many channels to many: not the filters, which are depthwise, nor what begins or ends in RGB."""
    weights = {item.name: item for item in graph.initializer}
    for node in graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "Conv" else None
        if weight is not None and min(weight.dims[:2]) > _COLOURS:
            yield node


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
