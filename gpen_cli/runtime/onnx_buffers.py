"""Where a GPU's answers go: memory on it that is taken once, instead of anew at every pass. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpen_cli.runtime.providers import import_onnxruntime

if TYPE_CHECKING:
    import onnxruntime


class GpuBuffers:
    """A session's input and outputs bound to memory of the device, for one shape. One thread at a time.

    Every output is as long as the input has faces: that of ``output`` has the input's shape and type, that of ``mean`` is (N,)
    float32. Raises what onnxruntime raises, also for memory that does not suffice.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        input_name: str,
        output_names: Sequence[str],
        tensor: np.ndarray,
        *,
        device_id: int,
        device: str = "cuda",
    ) -> None:
        value = import_onnxruntime().OrtValue
        self._session = session
        self._shape = tensor.shape
        self._input = value.ortvalue_from_numpy(tensor, device, device_id)
        self._binding = session.io_binding()
        self._binding.bind_ortvalue_input(input_name, self._input)
        self._outputs = []
        for place, name in enumerate(output_names):
            shape, dtype = (tensor.shape, tensor.dtype.type) if place == 0 else (tensor.shape[:1], np.float32)
            output = value.ortvalue_from_shape_and_type(shape, dtype, device, device_id)
            self._binding.bind_ortvalue_output(name, output)
            self._outputs.append(output)

    def fit(self, session: onnxruntime.InferenceSession, tensor: np.ndarray) -> bool:
        """Whether they are of this session, and for this shape."""
        return session is self._session and tensor.shape == self._shape

    def run(self, tensor: np.ndarray) -> list[np.ndarray]:
        """The outputs for the input ``tensor``, on the CPU, in the order of their names."""
        self._input.update_inplace(tensor)
        self._session.run_with_iobinding(self._binding)
        return [output.numpy() for output in self._outputs]
