"""GPEN from an .onnx file through onnxruntime: gpen's own exports and the public GPEN-BFR-*.onnx. No torch here."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpen_cli.data import UInt8Image
from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError, WeightsError
from gpen_cli.runtime.onnx_buffers import GpuBuffers
from gpen_cli.runtime.protocol import NetMemoryError, NonFiniteOutputError
from gpen_cli.runtime.providers import (
    failures,
    first_line,
    gpu_number,
    import_onnxruntime,
    open_session,
    provider_options,
)
from gpen_cli.runtime.tensorrt import EngineKey, describe_gpu, open_tensorrt, tensorrt_version
from gpen_cli.weights.find import FoundWeights, content_sha256

if TYPE_CHECKING:
    import onnxruntime

log = logging.getLogger(__name__)

HALF_RANGE = 127.5
"""uint8 0..255 and the net's [-1, 1]: x / 127.5 − 1."""
MEAN_OUTPUT = "mean"
"""Second output of a uint8 export: (N,) float32, not finite where the net overflowed, which uint8 cannot tell."""
SMALLEST_CROP, LARGEST_CROP = 64, 2048
_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_UINT8 = "tensor(uint8)"


@dataclass(frozen=True)
class Layout:
    """What the graph takes. batch: None for any number of faces; dtype: of the tensor, NHWC when uint8, NCHW when float."""

    input_name: str
    output_names: tuple[str, ...]
    crop_size: int
    batch: int | None
    dtype: type[np.generic]

    def shape(self, faces: int) -> tuple[int, ...]:
        side = self.crop_size
        return (faces, side, side, 3) if self.dtype is np.uint8 else (faces, 3, side, side)


class OnnxGpen:
    """A ``CropNet`` over one .onnx file. Threads may share it: onnxruntime's ``run`` is safe to call from several at once.

    The file's own number of faces a pass is taken where it has one, else the setup's; a short batch is filled up to it.
    Raises WeightsError for a file that is damaged or no face restorer, DeviceError when the provider does not work.
    """

    def __init__(self, weights: FoundWeights, setup: Setup) -> None:
        self.name = weights.name
        self._path = weights.path
        self._provider = setup.provider or "cpu"
        self._errors = failures(import_onnxruntime())
        self._device_id = gpu_number(setup.device)
        self._buffers: GpuBuffers | None = None
        self._lock = threading.Lock()
        self._layout = self._look(setup)
        self.crop_size = self._layout.crop_size
        self.micro_batch = self._layout.batch or setup.micro_batch
        self._session = self._open(weights, setup)

    def run(self, crops: UInt8Image) -> np.ndarray:
        """(N, S, S, 3) uint8 -> (N, S, S, 3) uint8, N from 1 to ``micro_batch``."""
        count = len(crops)
        outputs = self._forward(self._session, self.feed(crops))
        if self._layout.dtype is np.uint8:
            if not np.isfinite(outputs[1][:count]).all():
                raise self._overflow()
            return outputs[0][:count]
        faces = outputs[0][:count].astype(np.float32, copy=False)
        if not np.isfinite(faces).all():
            raise self._overflow()
        levels = np.rint((faces + np.float32(1.0)) * np.float32(HALF_RANGE)).clip(0, 255)
        return np.ascontiguousarray(levels.astype(np.uint8).transpose(0, 2, 3, 1))

    def feed(self, crops: UInt8Image) -> np.ndarray:
        """(N, S, S, 3) uint8 -> what the graph is given for them, ``micro_batch`` faces: see ``Layout``."""
        missing = self.micro_batch - len(crops)
        if missing > 0:
            # One shape a net: kernels, and so the last bit, must not depend on how full the batch was.
            crops = np.concatenate((crops, np.repeat(crops[-1:], missing, axis=0)))
        if self._layout.dtype is np.uint8:
            return np.ascontiguousarray(crops)
        planes = crops.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(HALF_RANGE) - np.float32(1.0)
        return np.ascontiguousarray(planes, dtype=self._layout.dtype)

    def halve(self) -> bool:
        """See ``CropNet.halve``. A file for a fixed number of faces, and TensorRT's engine, take no other."""
        if self._layout.batch is not None or self._provider == "tensorrt":
            return False
        self.micro_batch, before = max(1, self.micro_batch // 2), self.micro_batch
        return before > 1

    def _overflow(self) -> NonFiniteOutputError:
        return NonFiniteOutputError(f"{self.name} gave NaN or infinity; the photo's own face stays.")

    def _forward(self, session: onnxruntime.InferenceSession, tensor: np.ndarray) -> list[np.ndarray]:
        try:
            outputs = self._answers(session, tensor)
        except self._errors as error:
            if "alloc" in str(error).lower():  # onnxruntime has no class for it: "Failed to allocate memory for …"
                raise NetMemoryError(
                    f"the memory of {self._provider} does not hold {len(tensor)} face(s) at once"
                ) from error
            raise DeviceError(f"{self.name}: onnxruntime failed ({first_line(error)}).") from error
        if outputs[0].shape != tensor.shape:
            raise WeightsError(f"{self._path} is no GPEN net: it answers {outputs[0].shape} to {tensor.shape}.")
        return outputs

    def _answers(self, session: onnxruntime.InferenceSession, tensor: np.ndarray) -> list[np.ndarray]:
        names = self._layout.output_names
        if self._provider not in ("cuda", "tensorrt"):
            return list(session.run(list(names), {self._layout.input_name: tensor}))
        with self._lock:
            if self._buffers is None or not self._buffers.fit(session, tensor):
                self._buffers = None  # its memory is free before the new one is taken
                self._buffers = GpuBuffers(session, self._layout.input_name, names, tensor, device_id=self._device_id)
            return self._buffers.run(tensor)

    def _look(self, setup: Setup) -> Layout:
        """Opens the file on the CPU to see what it is: what fails there is the file's fault, not a provider's."""
        try:
            session = open_session(self._path, [("cpu", {})], threads=setup.threads)
        except self._errors as error:
            raise WeightsError(
                f"{self._path} is damaged, or no ONNX net that onnxruntime can run ({first_line(error)}); get it again."
            ) from error
        layout = _layout(session)
        if isinstance(layout, str):
            raise WeightsError(
                f"{self._path} is no GPEN net: {layout}; name a file made by gpen export or a GPEN-BFR-*.onnx."
            )
        self._cpu_session = session
        return layout

    def _open(self, weights: FoundWeights, setup: Setup) -> onnxruntime.InferenceSession:
        """The session that restores, having run once where that is not the plain CPU."""
        if self._provider == "cpu":
            return self._cpu_session
        del self._cpu_session
        device_id = self._device_id
        if setup.provider == "tensorrt":
            int8 = weights.export is not None and weights.export.precision == "int8"
            key = EngineKey(
                model_sha256=content_sha256(weights),
                input_name=self._layout.input_name,
                shape=self._layout.shape(self.micro_batch),
                precision=f"int8+{setup.precision}" if int8 else setup.precision,
                gpu=describe_gpu(device_id),
                onnxruntime=import_onnxruntime().__version__,
                tensorrt=tensorrt_version(),
            )
            return open_tensorrt(self._path, key, device_id=device_id, threads=setup.threads, warm_up=self._warm_up)
        told = provider_options(setup.provider, device_id=device_id)
        try:
            session = open_session(self._path, [(setup.provider, told)], threads=setup.threads)
        except self._errors as error:
            raise DeviceError(f"--provider {setup.provider} cannot run {self._path} ({first_line(error)}).") from error
        self._warm_up(session)
        return session

    def _warm_up(self, session: onnxruntime.InferenceSession) -> None:
        self._forward(session, self.feed(np.full((1, self.crop_size, self.crop_size, 3), 127, np.uint8)))


def _layout(session: onnxruntime.InferenceSession) -> Layout | str:
    """What the graph takes, or why it is no face restorer."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1:
        return f"it takes {len(inputs)} inputs instead of one"
    given = inputs[0]
    uint8 = given.type == _UINT8
    if not uint8 and given.type not in _FLOATS:
        return f"it takes {given.type}"
    batch, side = _batch_and_side(given.shape, uint8=uint8)
    if side is None:
        return f"its input has the shape {given.shape}"
    answer = outputs[0]
    if answer.type != given.type or len(answer.shape) != 4:
        return f"it answers {answer.type} of the shape {answer.shape} to {given.type}"
    expected = (side, side, 3) if uint8 else (3, side, side)
    if any(isinstance(have, int) and have != want for have, want in zip(answer.shape[1:], expected, strict=True)):
        return f"it answers the shape {answer.shape} to {given.shape}"
    names = [answer.name]
    if uint8:
        if MEAN_OUTPUT not in [item.name for item in outputs]:
            return f"it takes uint8, but has no output {MEAN_OUTPUT!r} as gpen's exports do"
        names.append(MEAN_OUTPUT)
    dtype: type[np.generic] = np.uint8 if uint8 else _FLOATS[given.type]
    return Layout(given.name, tuple(names), side, batch, dtype)


def _batch_and_side(shape: list[int | str | None], *, uint8: bool) -> tuple[int | None, int | None]:
    """(faces a pass or None for any, side in pixels); side None when the shape is not that of square RGB crops."""
    if len(shape) != 4:
        return None, None
    batch = shape[0] if isinstance(shape[0], int) and shape[0] > 0 else None
    height, width, colours = shape[1:] if uint8 else (shape[2], shape[3], shape[1])
    if not isinstance(height, int) or height != width or colours != 3 or not SMALLEST_CROP <= height <= LARGEST_CROP:
        return batch, None
    return batch, height
