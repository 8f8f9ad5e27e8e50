"""A pass captured once as a CUDA graph and replayed: one launch a batch instead of hundreds, and copies beside the computing.

A graph reads and writes the memory it was captured with. So there are ``SLOTS`` of them, each with an input buffer and an output
on the device and (pinned) on the host; every batch has the one shape. While one slot computes, the host fills the other. A
slot is free again once its answer was copied out, which is before anyone gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gpen_cli.runtime.crops import Pass

WARM_UP = 3
"""Passes before the capture: the first ones choose algorithms and allocate, which a graph must not hold."""
SLOTS = 2
"""Batches on the device at a time: one that computes, one that is copied."""

Outputs = tuple[Tensor, Tensor]
Replay = Callable[[], None]
Wait = Callable[[], None]


class GraphApi(Protocol):
    """What is asked of CUDA, so that the contract can be tested where there is none."""

    def device_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor: ...

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor: ...

    def warm_up(self, work: Callable[[], Outputs]) -> None: ...

    def capture(self, work: Callable[[], Outputs]) -> tuple[Replay, Outputs]:
        """(a function that replays ``work``, the tensors every replay writes). One api's replays never run at the same time."""
        ...

    def submit(self, given: tuple[Tensor, Tensor], replay: Replay, taken: Sequence[tuple[Tensor, Tensor]]) -> Wait:
        """Copies ``given`` (to the device, from the host), replays, copies each of ``taken`` (to the host, from the device).

        In this order, without waiting; what is submitted later may be copied meanwhile. Returns what waits until all is done.
        """
        ...


class CudaGraphs:
    """``GraphApi`` by ``torch.cuda``: copies go through a stream for each direction, the current one computes. One thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._in, self._out = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._pool: Any = None

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
        # The copies' streams do not wait for the buffers' first filling by themselves.
        torch.cuda.synchronize(self._device)

    def capture(self, work: Callable[[], Outputs]) -> tuple[Replay, Outputs]:
        graph = torch.cuda.CUDAGraph()
        # One pool for all: they replay one after the other on one stream, and outputs that are held are never given out again.
        # thread_local: readers may run a detector on the same GPU meanwhile; that is no part of this capture.
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            outputs = work()
        self._pool = graph.pool()
        return graph.replay, outputs

    def submit(self, given: tuple[Tensor, Tensor], replay: Replay, taken: Sequence[tuple[Tensor, Tensor]]) -> Wait:
        compute = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._in):
            given[0].copy_(given[1], non_blocking=True)
        compute.wait_stream(self._in)
        replay()
        self._out.wait_stream(compute)
        with torch.cuda.stream(self._out):
            for host, device in taken:
                host.copy_(device, non_blocking=True)
            done = self._out.record_event()
        return done.synchronize


class Slot:
    """One captured graph with its buffers. free: whether its last answer was taken."""

    def __init__(self, run: Pass, shape: tuple[int, int, int, int], api: GraphApi) -> None:
        self._api = api
        self._host_crops = api.host_buffer(shape, torch.uint8)
        self._crops = api.device_buffer(shape, torch.uint8)
        api.warm_up(lambda: run(self._crops))
        self._replay, self._outputs = api.capture(lambda: run(self._crops))
        self._host_outputs = tuple(api.host_buffer(tuple(output.shape), output.dtype) for output in self._outputs)
        self._addresses = self._buffers()
        self.free = True

    def begin(self, crops: Tensor) -> Callable[[], Outputs]:
        """Sends ``crops`` on their way, and gives what waits for the answer; to be called once, before the slot's next use."""
        assert self.free, "the slot's last answer was not taken"
        assert self._buffers() == self._addresses, "a buffer of the graph moved"
        self.free = False
        self._host_crops.copy_(crops)
        pairs = tuple(zip(self._host_outputs, self._outputs, strict=True))
        wait = self._api.submit((self._crops, self._host_crops), self._replay, pairs)

        def answer() -> Outputs:
            wait()
            pixels, finite = (
                host.clone() for host in self._host_outputs
            )  # the slot's next pass writes over the buffers
            self.free = True
            return pixels, finite

        return answer

    def _buffers(self) -> tuple[int, ...]:
        return tuple(tensor.data_ptr() for tensor in (self._crops, *self._outputs))


class GraphPass:
    """A ``Pass`` whose crops and answers lie on the host. shape: (N, S, S, 3), the only one it takes.

    ``begin`` sends a batch without waiting for it; up to ``SLOTS`` may be on their way. Answers may be taken in any order.
    """

    @torch.inference_mode()
    def __init__(self, run: Pass, shape: tuple[int, int, int, int], api: GraphApi) -> None:
        self._shape = shape
        self._slots = [Slot(run, shape, api) for _ in range(SLOTS)]

    def __call__(self, crops: Tensor) -> Outputs:
        return self.begin(crops)()

    @torch.inference_mode()
    def begin(self, crops: Tensor) -> Callable[[], Outputs]:
        """What gives the answer to ``crops``, which are read at once. Raises ValueError for another shape or type."""
        if tuple(crops.shape) != self._shape or crops.dtype != torch.uint8:
            raise ValueError(
                f"crops are {tuple(crops.shape)} {crops.dtype}; the graph was captured for {self._shape} uint8"
            )
        slot = next((slot for slot in self._slots if slot.free), None)
        assert slot is not None, f"more than {SLOTS} batches at a time"
        return slot.begin(crops)
