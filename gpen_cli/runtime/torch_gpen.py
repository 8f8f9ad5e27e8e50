"""GPEN in PyTorch, on any device: plain (the runtime that always works), or through torch.compile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gpen_cli.data import UInt8Image
from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError
from gpen_cli.models.stylegan2 import fold_constants
from gpen_cli.runtime.crops import to_tensor, to_uint8
from gpen_cli.runtime.protocol import NetMemoryError, NonFiniteOutputError
from gpen_cli.weights.find import FoundWeights
from gpen_cli.weights.load import load_gpen

log = logging.getLogger(__name__)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch means that the device, or the machine, has no memory left."""
    # The CPU's allocator has no class of its own: "DefaultCPUAllocator: not enough memory: you tried to allocate …".
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


class TorchGpen:
    """A ``CropNet`` over one GPEN weight file. Raises WeightsError when the file does not fit, DeviceError when compiling
    was asked for and is not possible."""

    def __init__(self, weights: FoundWeights, setup: Setup) -> None:
        self.name = weights.name
        self.micro_batch = setup.micro_batch
        self._weights = weights
        self._device = torch.device(setup.device)
        self._dtype = DTYPES[setup.precision]
        net = load_gpen(weights.path).to(self._device)
        self.crop_size = net.config.size
        fold_constants(net, self._dtype)
        self._net: Callable[[Tensor], Tensor] = net
        if setup.runtime == "compiled":
            self._compile()

    @torch.inference_mode()
    def _compile(self) -> None:
        """Compiles for the one shape this net is ever given, now, so that the first photo does not pay for it unannounced."""
        log.info("%s is being compiled; this takes about a minute.", self.name)
        begin = time.monotonic()
        plain = self._net
        self._net = torch.compile(plain, fullgraph=True, dynamic=False)
        try:
            self._forward(np.full((self.micro_batch, self.crop_size, self.crop_size, 3), 127, np.uint8))
        except Exception as error:
            # torch's compiler has no common error class: a missing C compiler, Triton, or a bug of its own all end here.
            raise DeviceError(
                f"--runtime compiled: torch.compile failed ({type(error).__name__}); a C++ compiler (and on GPUs Triton) "
                "is needed. Install one, or give --runtime eager."
            ) from error
        log.info("%s compiled in %.0f s.", self.name, time.monotonic() - begin)

    @torch.inference_mode()
    def run(self, crops: UInt8Image) -> np.ndarray:
        """(N, S, S, 3) uint8 -> (N, S, S, 3) uint8, N from 1 to ``micro_batch``."""
        count = len(crops)
        if count < self.micro_batch:
            # One shape a net: kernels, and so the last bit, must not depend on how full the batch was.
            crops = np.concatenate((crops, np.repeat(crops[-1:], self.micro_batch - count, axis=0)))
        output = self._forward(crops)[:count]
        if not bool(torch.isfinite(output).all()):
            output = self._again_in_fp32(crops)[:count]
        return to_uint8(output)

    def halve(self) -> bool:
        """See ``CropNet.halve``."""
        self.micro_batch, before = max(1, self.micro_batch // 2), self.micro_batch
        return before > 1

    def _forward(self, crops: UInt8Image) -> Tensor:
        try:
            return self._net(to_tensor(crops, self._device, self._dtype))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise NetMemoryError(f"the memory of {self._device} does not hold {len(crops)} face(s) at once") from error

    def _again_in_fp32(self, crops: UInt8Image) -> Tensor:
        """Low precision overflowed (fp16 on some GPUs): the same faces in fp32, and fp32 from now on."""
        if self._dtype != torch.float32:
            log.warning("%s gave NaN or infinity in %s; it runs in fp32 from here on.", self.name, self._dtype)
            self._dtype = torch.float32
            net = load_gpen(self._weights.path).to(self._device)
            fold_constants(net, self._dtype)
            self._net = net
            output = self._forward(crops)
            if bool(torch.isfinite(output).all()):
                return output
        raise NonFiniteOutputError(f"{self.name} gave NaN or infinity in fp32; the photo's own face stays.")
