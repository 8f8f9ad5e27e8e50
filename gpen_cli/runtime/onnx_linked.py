"""An exported graph whose weights stay in the .safetensors file beside it: 200 KB instead of a second copy of the net.

ONNX lets a constant lie in another file, at an offset; a safetensors file is plain numbers at offsets. What an export has worked
out beforehand (scaled weights, sums of squares) the linked graph says as nodes over the file's own numbers, and a runtime works
them out once, when it loads the graph. Needs onnx and torch; who runs the result needs neither.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import nn

from gpen_cli.errors import DeviceError, WeightsError
from gpen_cli.models.stylegan2 import EqualConv2d, EqualLinear, ModulatedConv2d

SMALLEST = 1024
"""Bytes; smaller constants stay in the graph."""
MOST_LEFT = 2**19
"""Bytes of larger constants that may stay in it: filters, which no weight file holds in this form."""
_TYPES = {"F16": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16, "F32": TensorProto.FLOAT}
_LENGTH_BYTES = 8  # of a safetensors file's header, before it


@dataclass(frozen=True)
class Recipe:
    """How a constant of an export follows from a tensor of the weight file.

    scale: factor; squares: then summed over the taps (axes 2 and 3) as squares; order: of the axes at last, None: as they are.
    """

    tensor: str
    scale: float
    order: tuple[int, ...] | None = None
    squares: bool = False


def linked(proto: ModelProto, net: nn.Module, weights: Path) -> ModelProto:
    """``proto``, an fp32 export of ``net``, with its large constants in ``weights``. The net has to be as loaded, not folded.

    Raises WeightsError when ``weights`` is no .safetensors file, DeviceError when a large constant is in no tensor of it.
    """
    table = _table(weights)
    recipes = {_key(values): recipe for recipe, values in _recipes(net)}
    constants: list[TensorProto] = []
    nodes: list[NodeProto] = []
    taken: set[str] = set()
    left = 0
    for item in proto.graph.initializer:
        values = numpy_helper.to_array(item)
        recipe = recipes.get(_key(values)) if values.nbytes > SMALLEST else None
        if recipe is None or recipe.tensor not in table:
            left += values.nbytes
            constants.append(TensorProto.FromString(item.SerializeToString()))
            continue
        if recipe.tensor not in taken:
            taken.add(recipe.tensor)
            more, first = _scaled(recipe, table[recipe.tensor], weights.name)
            constants += more
            nodes += first
        nodes += _made(recipe, item.name)
    if left > MOST_LEFT:
        raise DeviceError(f"{left:,} bytes of the exported graph are in no tensor of {weights}.")
    changed = ModelProto.FromString(proto.SerializeToString())
    graph = changed.graph
    after = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes + after)
    graph.initializer.extend(constants)
    return changed


@dataclass(frozen=True)
class _Tensor:
    """Where a tensor lies in its file, in bytes from the beginning; type: of ONNX."""

    type: int
    shape: tuple[int, ...]
    offset: int
    length: int


def _table(weights: Path) -> dict[str, _Tensor]:
    """By name. The format: eight bytes for the length of a JSON header, the header, the numbers."""
    try:
        with weights.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(_LENGTH_BYTES))
            header = json.loads(file.read(length))
        begin = _LENGTH_BYTES + length
        return {
            name: _Tensor(
                _TYPES[entry["dtype"]], tuple(entry["shape"]), begin + entry["data_offsets"][0],
                entry["data_offsets"][1] - entry["data_offsets"][0],
            )
            for name, entry in header.items() if name != "__metadata__"
        }  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, struct.error, OverflowError, MemoryError) as error:
        raise WeightsError(f"{weights} is no .safetensors file of GPEN ({error}); a linked graph needs one.") from error


def _recipes(net: nn.Module) -> Iterator[tuple[Recipe, np.ndarray]]:
    """Every constant that an export may hold, with its values."""
    for name, module in net.named_modules():
        tensor = f"{name}.weight"
        if isinstance(module, EqualConv2d):
            yield Recipe(tensor, module.scale), _values(module.scaled_weight())
        elif isinstance(module, ModulatedConv2d):
            weight, energy = module.scaled_weight()
            yield Recipe(tensor, module.scale, (1, 0, 2, 3) if module.double else None), _values(weight)
            yield Recipe(tensor, module.scale, (1, 0), squares=True), _values(energy)
        elif isinstance(module, EqualLinear):
            scaled = _values(module.weight * module.scale)
            yield Recipe(tensor, module.scale), scaled
            yield Recipe(tensor, module.scale, (1, 0)), scaled.T


def _values(tensor: object) -> np.ndarray:
    return np.asarray(tensor.detach().numpy())  # type: ignore[attr-defined]


def _key(values: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    return values.shape, np.ascontiguousarray(values).tobytes()


def _scaled(recipe: Recipe, tensor: _Tensor, file: str) -> tuple[list[TensorProto], list[NodeProto]]:
    """The file's numbers as a constant, and the nodes that make them float32 and scale them."""
    name = recipe.tensor
    shape = (
        tensor.shape[1:] if len(tensor.shape) == 5 else tensor.shape
    )  # (1, O, I, k, k): the public files' spare axis
    there = TensorProto(name=name, data_type=tensor.type, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", file), ("offset", tensor.offset), ("length", tensor.length)):
        there.external_data.add(key=key, value=str(value))
    scale = numpy_helper.from_array(np.float32(recipe.scale), f"{name}/scale")
    return [there, scale], [
        helper.make_node("Cast", [name], [f"{name}/fp32"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}/fp32", scale.name], [f"{name}/scaled"]),
    ]


def _made(recipe: Recipe, constant: str) -> list[NodeProto]:
    """The nodes between the scaled tensor and the constant of the export that it takes the place of."""
    value, nodes = f"{recipe.tensor}/scaled", []
    if recipe.squares:
        nodes.append(helper.make_node("ReduceSumSquare", [value], [f"{constant}/sum"], axes=[2, 3], keepdims=0))
        value = f"{constant}/sum"
    if recipe.order is None:
        nodes.append(helper.make_node("Identity", [value], [constant]))
    else:
        nodes.append(helper.make_node("Transpose", [value], [constant], perm=list(recipe.order)))
    return nodes
