"""A pass captured once as a CUDA graph and replayed: one launch a batch instead of hundreds.

A graph reads and writes the memory it was captured with. So there is one input buffer and one output, on the device and (pinned)
on the host; every batch has the one shape; and what a replay wrote is copied out before anyone may ask for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from gpen_cli.runtime.crops import Pass

WARM_UP = 3
"""Passes before the capture: the first ones choose algorithms and allocate, which a graph must not hold."""

Outputs = tuple[Tensor, Tensor]


class GraphApi(Protocol):
    """What is asked of CUDA, so that the contract can be tested where there is none."""

    def device_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor: ...

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor: ...

    def warm_up(self, work: Callable[[], Outputs]) -> None: ...

    def capture(self, work: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        """(a function that replays ``work``, the tensors every replay writes)."""
        ...

    def wait(self) -> None:
        """Returns when the device has done all it was given."""
        ...


class CudaGraphs:
    """``GraphApi`` by ``torch.cuda``. One thread at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def device_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self._device)

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, pin_memory=True)

    def warm_up(self, work: Callable[[], Outputs]) -> None:
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream(self._device).wait_stream(side)

    def capture(self, work: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        graph = torch.cuda.CUDAGraph()
        # thread_local: readers may run a detector on the same GPU meanwhile; that is no part of this capture.
        with torch.cuda.device(self._device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = work()
        return graph.replay, outputs

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).synchronize()


class GraphPass:
    """A ``Pass`` whose crops and answers lie on the host. shape: (N, S, S, 3), the only one it takes."""

    @torch.inference_mode()
    def __init__(self, run: Pass, shape: tuple[int, int, int, int], api: GraphApi) -> None:
        self._api = api
        self._shape = shape
        self._host_crops = api.host_buffer(shape, torch.uint8)
        self._crops = api.device_buffer(shape, torch.uint8)
        api.warm_up(lambda: run(self._crops))
        self._replay, self._outputs = api.capture(lambda: run(self._crops))
        self._host_outputs = tuple(api.host_buffer(tuple(output.shape), output.dtype) for output in self._outputs)
        self._addresses = self._buffers()

    @torch.inference_mode()
    def __call__(self, crops: Tensor) -> Outputs:
        if tuple(crops.shape) != self._shape or crops.dtype != torch.uint8:
            raise ValueError(
                f"crops are {tuple(crops.shape)} {crops.dtype}; the graph was captured for {self._shape} uint8"
            )
        assert self._buffers() == self._addresses, "a buffer of the graph moved"
        self._host_crops.copy_(crops)
        self._crops.copy_(self._host_crops, non_blocking=True)
        self._replay()
        for host, output in zip(self._host_outputs, self._outputs, strict=True):
            host.copy_(output, non_blocking=True)
        self._api.wait()
        pixels, finite = self._host_outputs
        return pixels.clone(), finite.clone()  # the next replay writes over the buffers

    def _buffers(self) -> tuple[int, ...]:
        return tuple(tensor.data_ptr() for tensor in (self._crops, *self._outputs))
