"""From a weight file to an .onnx file that every runtime takes: drawn, checked, proven equal on real faces, and only then kept.

The graph is real opset 17 from PyTorch's TorchScript exporter (the newer one writes 18 whatever is asked), tidied, and held
to a list of operators. Nothing of it is work on shapes, so that TensorRT, CoreML and phones need no special case.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gpen_cli import __version__
from gpen_cli.aligned_faces import TEMPLATE, example_crops
from gpen_cli.data import UInt8Image
from gpen_cli.device import Setup, cpu_count, require_onnx
from gpen_cli.errors import DeviceError, OutputError, UsageError, WeightsError
from gpen_cli.models.gpen import Gpen
from gpen_cli.models.onnx_form import OnnxForm
from gpen_cli.models.stylegan2 import fold_constants
from gpen_cli.options import ExportOptions
from gpen_cli.parity import Parity, parity
from gpen_cli.runtime.onnx import MEAN_OUTPUT, OnnxGpen
from gpen_cli.runtime.onnx_graph import OPSET, checked, tidied
from gpen_cli.runtime.onnx_linked import linked
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import FoundWeights, cached_onnx_path, content_sha256, find_cached_onnx, from_path
from gpen_cli.weights.load import load_gpen
from gpen_cli.weights.onnx_file import OnnxExport, check_target, read_export, replacing, sealed

log = logging.getLogger(__name__)

MOST_LEVELS = 1
"""fp32: no value of any pixel may differ by more from the net in PyTorch."""
LEAST_PSNR = 45.0
"""fp16: dB, of the worst face."""
PARITY_BATCH = 3
_FP16_LIMIT = 65504.0 / 2
"""Half of fp16's largest number: other faces reach a little higher than those of the check."""


def export_net(weights: FoundWeights, target: Path, options: ExportOptions) -> list[Parity]:
    """Writes ``target`` and returns the figures of its check. A failing export leaves no file, and what was there before.

    Raises UsageError (target, linked), WeightsError, DeviceError (onnx missing, parity), OutputError.
    """
    require_onnx("Exporting")
    check_target(target, overwrite=options.overwrite)
    if options.linked:  # what is read from beside the graph has to lie there itself, not as a link
        weights = replace(weights, path=weights.path.resolve())
        if weights.path.parent != target.resolve().parent:
            raise UsageError(
                f"--linked: {weights.path.name} has to lie beside the graph; write it into {weights.path.parent}."
            )
    net = load_gpen(weights.path)
    size = net.config.size
    crops = example_crops(size)
    if options.precision == "fp16":
        _require_range(weights, crops)
    about = OnnxExport(
        model=weights.name,
        crop_size=size,
        template=TEMPLATE,
        licence=weights.licence,
        version=__version__,
        source_sha256=content_sha256(weights),
        io=options.io,
        precision=options.precision,
        linked=weights.path.name if options.linked else "",
    )
    proto = tidied(_drawn(net, options), about.metadata())
    model = checked(proto, OPSET, batch=options.batch)
    if options.linked:
        model = linked(proto, load_gpen(weights.path), weights.path).SerializeToString(deterministic=True)
    with replacing(target, sealed(model)) as file:
        return _compare(weights, FoundWeights(file, None, export=read_export(file)), crops, options)


def cached_export(weights: FoundWeights, precision: str) -> FoundWeights:
    """The net as an .onnx file in the user's cache, made if it is not there, damaged, or of another version.

    Raises what ``export_net`` raises.
    """
    path = cached_onnx_path(weights, precision)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            there = find_cached_onnx(weights, precision)
            if there is not None:
                return there
            log.info("%s is made into an ONNX file; that takes a few seconds, and is done once.", weights.name)
            figures = export_net(weights, path, ExportOptions(precision=precision, overwrite=True))
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}; set GPEN_CACHE_DIR to a folder that can be."
        ) from error
    log.info("%s: %s", path, figures[-1].sentence())
    return from_path(path)


def _drawn(net: Gpen, options: ExportOptions) -> bytes:
    """The graph as PyTorch's exporter draws it. Takes ``net`` over."""
    dtype = torch.float16 if options.precision == "fp16" else torch.float32
    size = net.config.size
    fold_constants(net, dtype)
    form = OnnxForm(net, dtype, uint8=options.io == "uint8").eval()
    count = options.batch or 1
    example = (
        torch.zeros(count, size, size, 3, dtype=torch.uint8)
        if options.io == "uint8"
        else torch.zeros(count, 3, size, size)
    )
    outputs = ["output", MEAN_OUTPUT] if options.io == "uint8" else ["output"]
    free = {name: {0: "batch"} for name in ("input", *outputs)} if options.batch is None else None
    file = io.BytesIO()
    with _quiet(), torch.inference_mode():
        torch.onnx.export(
            form, (example,), file, input_names=["input"], output_names=outputs, opset_version=OPSET, dynamic_axes=free,
            dynamo=False,
        )  # fmt: skip
    return file.getvalue()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch warns that this exporter is the older one; it is the one that writes opset 17."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compare(weights: FoundWeights, file: FoundWeights, crops: UInt8Image, options: ExportOptions) -> list[Parity]:
    """The figures, at one face a pass and at three (or at the file's own number). Raises DeviceError when they miss."""
    setup = Setup(device="cpu", precision="fp32", micro_batch=1, threads=cpu_count())
    eager = TorchGpen(weights, setup)
    expected = np.concatenate([eager.run(crop[None]) for crop in crops])
    del eager
    net = OnnxGpen(file, Setup("cpu", "fp32", 1, cpu_count(), runtime="onnx", provider="cpu"))
    figures = []
    for batch in (options.batch,) if options.batch else (1, PARITY_BATCH):
        net.micro_batch = batch
        given = np.concatenate([net.run(crops[start : start + batch]) for start in range(0, len(crops), batch)])
        figures.append(parity(expected, given, batch))
        _hold(figures[-1], options)
    return figures


def _hold(figures: Parity, options: ExportOptions) -> None:
    if options.precision == "fp32" and figures.most_levels > MOST_LEVELS:
        raise DeviceError(
            f"The exported file was not kept: {figures.sentence()}; fp32 has to be within {MOST_LEVELS} level."
        )
    if figures.psnr < LEAST_PSNR:
        raise DeviceError(
            f"The exported file was not kept: {figures.sentence()}; it has to be {LEAST_PSNR:g} dB at least."
        )


class _Range(TorchDispatchMode):
    """Keeps the largest magnitude of all maps (N, C, H, W) that are computed inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.ndim == 4 and result.is_floating_point():
            self.largest = max(self.largest, float(torch.Tensor.abs(result).max()))
        return result


def _require_range(weights: FoundWeights, crops: UInt8Image) -> None:
    """Raises WeightsError when a map's values leave fp16's range: a CPU computes fp16 in fp32 and would not show it."""
    net = load_gpen(weights.path)
    fold_constants(net, torch.float32)
    form = OnnxForm(net, torch.float32, uint8=True).eval()
    with torch.inference_mode(), _Range() as seen:
        for crop in crops:
            form(torch.from_numpy(crop[None]))
    if not seen.largest < _FP16_LIMIT:
        raise WeightsError(
            f"{weights.name} reaches {seen.largest:.0f} inside, and fp16 ends at 65504; export it with --precision fp32."
        )
