"""An exported graph in a leaner form with the same numbers: fewer passes over large maps, no transposed 3×3 convolution.

What ``gpen quantize`` starts from: engines on CPUs have no int8 kernel for transposed convolutions. Needs onnx.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from gpen_cli.data import Float32Array


def lean(proto: ModelProto) -> ModelProto:
    """``proto``, an export of gpen in fp32, in that form; it stays as it is."""
    changed = ModelProto.FromString(proto.SerializeToString())
    draft = _Draft(changed.graph)
    _fold_gains(draft)
    _spread_phases(draft)
    draft.put_back()
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


class _Draft:
    """A graph's nodes and constants as Python's own lists, to be changed and put back."""

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        # Copies, because protobuf's items die with the list they lie in.
        self.nodes = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        self._constants = [TensorProto.FromString(item.SerializeToString()) for item in graph.initializer]
        self._by_name = {item.name: item for item in self._constants}

    def constant(self, name: str) -> Float32Array | None:
        """The values of a constant; None for what is computed."""
        item = self._by_name.get(name)
        return None if item is None else numpy_helper.to_array(item)

    def add_constant(self, name: str, values: np.ndarray) -> str:
        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def users(self) -> dict[str, list[NodeProto]]:
        found: dict[str, list[NodeProto]] = defaultdict(list)
        for node in self.nodes:
            for name in node.input:
                found[name].append(node)
        return found

    def put_back(self) -> None:
        """Also drops the constants that nothing takes any more."""
        del self._graph.node[:]
        self._graph.node.extend(self.nodes)
        taken = {name for node in self.nodes for name in node.input}
        del self._graph.initializer[:]
        self._graph.initializer.extend(item for item in self._constants if item.name in taken)


def _fold_gains(draft: _Draft) -> None:
    """The activations' √2 goes to what multiplies the map next: styles, and the weights of filters and features."""
    users = draft.users()
    maker = {node.output[0]: node for node in draft.nodes}
    nodes: list[NodeProto] = []
    extra: dict[int, NodeProto] = {}
    for node in draft.nodes:
        gain = draft.constant(node.input[1]) if node.op_type == "Mul" else None
        takers = users[node.output[0]]
        if (
            gain is not None
            and gain.ndim == 0
            and takers
            and all(_multiplies(item, node, maker, draft) for item in takers)
        ):
            for item in takers:
                extra |= _hand_over(item, node, gain, draft)
        else:
            nodes.append(node)
    draft.nodes = [part for node in nodes for part in ((extra[id(node)], node) if id(node) in extra else (node,))]


def _multiplies(taker: NodeProto, gain: NodeProto, maker: dict[str, NodeProto], draft: _Draft) -> bool:
    """Whether ``taker`` multiplies the map that ``gain`` makes by constants, or by a style (N, C, 1, 1)."""
    if taker.op_type not in ("Mul", "Conv") or taker.input[0] != gain.output[0]:
        return False
    other = taker.input[1]
    return draft.constant(other) is not None or (other in maker and maker[other].op_type == "Unsqueeze")


def _hand_over(taker: NodeProto, gain: NodeProto, values: Float32Array, draft: _Draft) -> dict[int, NodeProto]:
    """Lets ``taker`` do the gain's work; the node that goes before it, where there is one, by its ``id``."""
    taker.input[0] = gain.input[0]
    weights = draft.constant(taker.input[1])
    name = f"{taker.name}/gain"
    if weights is not None:
        taker.input[1] = draft.add_constant(name, weights * values)
        return {}
    style = helper.make_node("Mul", [taker.input[1], gain.input[1]], [f"{name}_output"], name=name)
    taker.input[1] = f"{name}_output"
    return {id(taker): style}


def _spread_phases(draft: _Draft) -> None:
    """Convolutions that double a map become plain ones: see ``phase_kernels``.

    A 3×3 kernel with stride 2 meets an output of even row and column with four of its taps, others with two, two and one: four
    small kernels, which one 2×2 convolution computes side by side, and DepthToSpace interleaves. Its map has one row and one
    column of zeros more than before, so the low-pass behind it is given one less to pad.
    """
    nodes: list[NodeProto] = []
    for node in draft.nodes:
        weight = draft.constant(node.input[1]) if node.op_type == "ConvTranspose" else None
        if weight is not None and weight.shape[2:] == (3, 3):
            nodes += _phases(node, draft, weight)
            continue
        if nodes and nodes[-1].op_type == "DepthToSpace":
            _pad_less(node, nodes[-1].output[0])
        nodes.append(node)
    draft.nodes = nodes


def _phases(node: NodeProto, draft: _Draft, weight: Float32Array) -> list[NodeProto]:
    name = f"{node.name}/phases"
    kernels = draft.add_constant(f"{name}.weight", phase_kernels(weight))
    return [
        helper.make_node(
            "Conv", [node.input[0], kernels], [f"{name}_output"], name=name, kernel_shape=[2, 2], pads=[1, 1, 1, 1]
        ),
        helper.make_node(
            "DepthToSpace", [f"{name}_output"], list(node.output), name=f"{node.name}/spread", blocksize=2, mode="DCR"
        ),
    ]


def _pad_less(low_pass: NodeProto, given: str) -> None:
    assert (low_pass.op_type, low_pass.input[0]) == ("Conv", given), "an export's doubled map goes to its low-pass"
    kept = [item for item in low_pass.attribute if item.name != "pads"]
    del low_pass.attribute[:]
    low_pass.attribute.extend([*kept, helper.make_attribute("pads", [1, 1, 0, 0])])
