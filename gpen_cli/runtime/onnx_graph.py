"""The exported graph: what the exporter leaves behind is tidied away, what remains is held to the rules. Needs onnx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import onnx
from onnx import GraphProto, ModelProto

from gpen_cli.errors import DeviceError

OPSET = 17
"""TensorRT 8.6 to 10 and onnxruntime from 1.13 on read it."""
OPERATORS = frozenset({
    "Add", "Cast", "Clip", "Concat", "Conv", "ConvTranspose", "Div", "Flatten", "Gemm", "LeakyRelu", "MatMul", "Mul",
    "Reciprocal", "ReduceMean", "Round", "Sqrt", "Sub", "Transpose", "Unsqueeze",
})  # fmt: skip
"""What a GPEN graph may hold: ONNX's own operators that every runtime has, none of them about shapes."""
INT8_OPERATORS = OPERATORS | {"DepthToSpace", "DequantizeLinear", "QuantizeLinear"}
"""The same, after ``gpen quantize``."""


def tidied(model: bytes, metadata: Mapping[str, str]) -> ModelProto:
    """The exporter's graph without casts to the type a value has, without identities, with constants as initializers."""
    proto = onnx.load_model_from_string(model)
    graph = proto.graph
    _constants_to_initializers(graph)
    _drop_what_does_nothing(proto)
    _drop_unused(graph)
    return described(proto, metadata)


def described(proto: ModelProto, metadata: Mapping[str, str]) -> ModelProto:
    """``proto``, saying of itself ``metadata`` and nothing else."""
    del proto.metadata_props[:]
    onnx.helper.set_model_props(proto, dict(metadata))
    proto.producer_name = "gpen"
    proto.producer_version = metadata["gpen.version"]
    return proto


def batch_of(proto: ModelProto) -> int | None:
    """Faces in one pass; None for any number."""
    return proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value or None


def checked(proto: ModelProto, opset: int, *, batch: int | None, allowed: frozenset[str] = OPERATORS) -> bytes:
    """The model, serialized, when it is what was promised. Raises DeviceError with the rule that it breaks."""
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise DeviceError(f"The exported graph is not valid ONNX ({str(error).splitlines()[0]}).") from error
    imports = {item.domain: item.version for item in proto.opset_import}
    if imports != {"": opset}:
        raise DeviceError(f"The exported graph imports {imports} instead of opset {opset} alone.")
    foreign = set(operators(proto)) - allowed
    if foreign:
        raise DeviceError(f"The exported graph holds operators that do not belong: {', '.join(sorted(foreign))}.")
    _check_groups(proto.graph)
    for value in (*proto.graph.input, *proto.graph.output):
        first = value.type.tensor_type.shape.dim[0]
        if (first.dim_value or None) != batch:
            raise DeviceError(f"{value.name} of the exported graph has another batch than {batch or 'a free one'}.")
    return proto.SerializeToString(deterministic=True)


def operators(proto: ModelProto) -> Counter[str]:
    """How often each operator occurs; those of another domain than ONNX's own with it before their names."""
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in proto.graph.node)


def _check_groups(graph: GraphProto) -> None:
    """Every convolution is whole, or depthwise with weights of its own: none has a face a group."""
    shapes = {item.name: tuple(item.dims) for item in graph.initializer}
    shapes |= {
        node.output[0]: shapes[node.input[0]]
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in shapes
    }
    for node in graph.node:
        if node.op_type not in ("Conv", "ConvTranspose"):
            continue
        shape = shapes.get(node.input[1])
        if shape is None:
            raise DeviceError(f"{node.name} of the exported graph convolves with weights that depend on the face.")
        groups = next((item.i for item in node.attribute if item.name == "group"), 1)
        if groups != 1 and (node.op_type, groups, shape[1]) != ("Conv", shape[0], 1):
            raise DeviceError(f"{node.name} of the exported graph has {groups} groups.")


def _constants_to_initializers(graph: GraphProto) -> None:
    kept = []
    for node in graph.node:
        if node.op_type != "Constant":
            kept.append(node)
            continue
        tensor = next(item.t for item in node.attribute if item.name == "value")
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
    _set_nodes(graph, kept)


def _drop_what_does_nothing(proto: ModelProto) -> None:
    graph = proto.graph
    known = onnx.shape_inference.infer_shapes(proto).graph
    types = {item.name: item.type.tensor_type.elem_type for item in (*known.value_info, *known.input, *known.output)}
    types |= {item.name: item.data_type for item in graph.initializer}
    outputs = {item.name for item in graph.output}
    source: dict[str, str] = {}
    kept = []
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = source.get(name, name)
        same_type = node.op_type == "Cast" and types.get(node.input[0]) == node.attribute[0].i
        if (same_type or node.op_type == "Identity") and node.output[0] not in outputs:
            source[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    _set_nodes(graph, kept)


def _drop_unused(graph: GraphProto) -> None:
    used = {name for node in graph.node for name in node.input}
    kept = [item for item in graph.initializer if item.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.value_info[:]


def _set_nodes(graph: GraphProto, nodes: list[onnx.NodeProto]) -> None:
    nodes = [
        onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes
    ]  # they die with the list they lie in
    del graph.node[:]
    graph.node.extend(nodes)
