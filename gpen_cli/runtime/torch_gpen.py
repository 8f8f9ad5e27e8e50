"""GPEN in PyTorch, on any device: plain (the runtime that always works), compiled, or replayed as a CUDA graph."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from gpen_cli.data import UInt8Image
from gpen_cli.device import Setup, keep_freed_memory
from gpen_cli.models.stylegan2 import filter_by_convolution, fold_constants
from gpen_cli.runtime.crops import OverlappingPass, Pass, UInt8Pass, begin_pass, on_device
from gpen_cli.runtime.protocol import NetMemoryError, NonFiniteOutputError
from gpen_cli.weights.find import FoundWeights
from gpen_cli.weights.load import load_gpen

log = logging.getLogger(__name__)

LARGE_CROP = 512
"""Pixels; the maps of such nets are over 32 MiB a layer."""

EVERY_MAP = 1 << 30
"""Channels. A plain pass filters every map by a convolution, for no compiler fuses its shifted slices: a 257 px map of
32 channels takes 5 ms instead of 70 (2 cores, bfloat16)."""
VECTOR_BITS = 512
"""Of AVX-512. The compiler's loops run along the channels; over a map whose channels do not fill a vector they go number by
number (docs/performance.md)."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class TorchGpen:
    """An ``OverlappingNet`` over one GPEN weight file.

    Raises WeightsError when the file does not fit, DeviceError when what was asked for (compiling, graphs) is not possible.
    """

    def __init__(self, weights: FoundWeights, setup: Setup) -> None:
        self.name = weights.name
        self._weights = weights
        self._use(setup)

    def run(self, crops: UInt8Image) -> np.ndarray:
        """(N, S, S, 3) uint8 -> (N, S, S, 3) uint8, N from 1 to ``micro_batch``."""
        return self.begin(crops)()

    @torch.inference_mode()
    def begin(self, crops: UInt8Image) -> Callable[[], np.ndarray]:
        """See ``OverlappingNet.begin``."""
        count = len(crops)
        if count < self.micro_batch:
            # One shape a net: kernels, and so the last bit, must not depend on how full the batch was.
            crops = np.concatenate((crops, np.repeat(crops[-1:], self.micro_batch - count, axis=0)))
        precision, forward = self._setup.precision, self._forward(crops)

        @torch.inference_mode()
        def answer() -> np.ndarray:
            pixels = forward()
            return (self._again_in_fp32(crops, precision) if pixels is None else pixels)[:count]

        return answer

    def halve(self) -> bool:
        """See ``CropNet.halve``."""
        if self.micro_batch == 1:
            return False
        self._use(replace(self._setup, micro_batch=self.micro_batch // 2))
        return True

    def _forward(self, crops: UInt8Image) -> Callable[[], UInt8Image | None]:
        """The pass, on its way where it overlaps others; then its answer, or None where that is not finite."""
        assert self._pass is not None
        with self._memory_errors(len(crops)):
            wait = begin_pass(self._pass, on_device(crops, self._entry))

        def answer() -> UInt8Image | None:
            with self._memory_errors(len(crops)):
                pixels, finite = wait()
                return pixels.cpu().numpy() if bool(finite) else None

        return answer

    @contextlib.contextmanager
    def _memory_errors(self, faces: int) -> Iterator[None]:
        """Raises NetMemoryError where the memory does not hold a pass over so many ``faces``."""
        try:
            yield
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise NetMemoryError(f"the memory of {self._setup.device} does not hold {faces} face(s) at once") from error

    def _again_in_fp32(self, crops: UInt8Image, precision: str) -> UInt8Image:
        """``precision`` overflowed (fp16 on some GPUs): the same faces in fp32, and fp32 from now on."""
        if precision != "fp32":
            if self._setup.precision != "fp32":  # a pass that began before may have met it first
                log.warning("%s gave NaN or infinity in %s; it runs in fp32 from here on.", self.name, precision)
                self._use(replace(self._setup, precision="fp32", runtime="eager", compiled=False))
            answer = self._forward(crops)()
            if answer is not None:
                return answer
        raise NonFiniteOutputError(f"{self.name} gave NaN or infinity in fp32; the photo's own face stays.")

    def _use(self, setup: Setup) -> None:
        self._pass: Pass | None = None  # the memory of the one before is needed for this one
        self._setup = setup
        self.micro_batch = setup.micro_batch
        # A graph has buffers of its own on both sides; any other pass wants its crops on the device.
        self._entry = torch.device("cpu" if setup.runtime == "cuda-graph" else setup.device)
        self._pass, self.crop_size = _make_pass(self._weights, setup)
        self.overlaps = isinstance(self._pass, OverlappingPass)
        if setup.device == "cpu" and self.crop_size >= LARGE_CROP:
            keep_freed_memory(large=True)


def _make_pass(weights: FoundWeights, setup: Setup) -> tuple[Pass, int]:
    """(the pass, side of its crops in px)."""
    if not setup.compiled:
        net = _plain(weights, setup)
        if setup.device == "cpu":
            filter_by_convolution(net.net, below=EVERY_MAP)
        run: Pass = net
        size = net.net.config.size
    else:
        run, size = _compiled(weights, setup)
    if setup.runtime == "cuda-graph":
        from gpen_cli.runtime.cuda_graph import CudaGraphs, GraphPass

        shape = (setup.micro_batch, size, size, 3)
        run = GraphPass(run, shape, CudaGraphs(torch.device(setup.device)))
    return run, size


def _compiled(weights: FoundWeights, setup: Setup) -> tuple[Pass, int]:
    from gpen_cli.runtime.torch_compiled import compile_net, from_cache

    compiled = from_cache(weights, setup)
    if compiled is None:
        net = _plain(weights, setup)
        if setup.device == "cpu":
            filter_by_convolution(net.net, below=VECTOR_BITS // torch.finfo(net.dtype).bits)
        compiled = compile_net(net, weights, setup, crop_size=net.net.config.size)
    return compiled.run, compiled.crop_size


def _plain(weights: FoundWeights, setup: Setup) -> UInt8Pass:
    net = load_gpen(weights.path).to(torch.device(setup.device))
    dtype = DTYPES[setup.precision]
    fold_constants(net, dtype)
    return UInt8Pass(net.eval().requires_grad_(False), dtype)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch means that the device, or the machine, has no memory left."""
    # The CPU's allocator has no class of its own: "DefaultCPUAllocator: not enough memory: you tried to allocate …".
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
