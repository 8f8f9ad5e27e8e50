"""Faces of many photos share a device: the one scheduler.

Crops are queued by net; one thread owns the device and runs whatever waits, full batches first. It never waits for a batch to
fill while there is something to do, so its feeders can wait for it without deadlock; under load batches fill by themselves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass

import numpy as np

from gpen_cli.data import UInt8Image
from gpen_cli.runtime.protocol import CropNet, NetMemoryError, NonFiniteOutputError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CropResult:
    """pixels: what the net answered for one crop; seconds: this crop's share of its forward pass."""

    pixels: np.ndarray
    seconds: float


@dataclass
class _Waiting:
    crop: UInt8Image
    result: Future[CropResult]
    order: int


class Batcher:
    """Runs crops through nets on one thread. ``net_by_name`` is called on that thread, the first time a net is needed."""

    def __init__(self, net_by_name: Callable[[str], CropNet], *, preload: str | None = None) -> None:
        self._net_by_name = net_by_name
        self._queues: dict[str, deque[_Waiting]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._submitted = 0
        self.passes = 0
        self.crops_run = 0
        self._preload = preload
        self._thread = threading.Thread(target=self._run, name="gpen-device", daemon=True)
        self._thread.start()

    def submit(self, crop: UInt8Image, net: str) -> Future[CropResult]:
        """(S, S, 3) uint8 -> a future of its result. A net's error becomes the future's exception."""
        waiting = _Waiting(crop, Future(), 0)
        with self._changed:
            if self._closed:
                raise CancelledError("the device thread has ended")
            waiting.order = self._submitted
            self._submitted += 1
            self._queues.setdefault(net, deque()).append(waiting)
            self._changed.notify()
        return waiting.result

    def close(self, *, cancel: bool = False) -> None:
        """Ends the thread once the queue is empty; ``cancel`` drops what has not begun. Safe to call twice."""
        with self._changed:
            self._closed = True
            if cancel:
                for queue in self._queues.values():
                    for waiting in queue:
                        waiting.result.cancel()
                    queue.clear()
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        if self._preload is not None:
            self._load_ahead(self._preload)
        while True:
            with self._changed:
                while not (name := self._next_net()):
                    if self._closed:
                        return
                    self._changed.wait()
            self._run_batch(name)

    def _load_ahead(self, name: str) -> None:
        """Loads while the first photos are read. An error is not lost: the first crop for this net meets it again."""
        try:
            self._net_by_name(name)
        except Exception:  # noqa: BLE001  raised again, on demand, for whoever submits
            return

    def _next_net(self) -> str | None:
        """The net whose oldest crop has waited longest. Called with the lock held."""
        heads = [(queue[0].order, name) for name, queue in self._queues.items() if queue]
        return min(heads)[1] if heads else None

    def _run_batch(self, name: str) -> None:
        try:
            net = self._net_by_name(name)
        except BaseException as error:  # noqa: BLE001  whatever it is, those who wait must hear of it
            for waiting in self._take(name, len(self._queues[name])):
                waiting.result.set_exception(error)
            return
        batch = self._take(name, net.micro_batch)
        if batch:
            self._forward(net, batch)

    def _take(self, name: str, count: int) -> list[_Waiting]:
        with self._changed:
            queue = self._queues[name]
            taken = [queue.popleft() for _ in range(min(count, len(queue)))]
        return [waiting for waiting in taken if waiting.result.set_running_or_notify_cancel()]

    def _forward(self, net: CropNet, batch: list[_Waiting]) -> None:
        begin = time.perf_counter()
        try:
            output = net.run(np.stack([waiting.crop for waiting in batch]))
            if len(output) != len(batch):
                raise RuntimeError(f"{net.name} gave {len(output)} results for {len(batch)} crops")
        except NonFiniteOutputError as error:
            if len(batch) == 1:
                batch[0].result.set_exception(error)
                return
            for waiting in batch:  # one bad face must not take its neighbours along
                self._forward(net, [waiting])
            return
        except NetMemoryError as error:
            self._forward_in_parts(net, batch, error)
            return
        except BaseException as error:  # noqa: BLE001  a dead device thread would leave its feeders waiting for ever
            for waiting in batch:
                waiting.result.set_exception(error)
            return
        share = (time.perf_counter() - begin) / len(batch)
        self.passes += 1
        self.crops_run += len(batch)
        for index, waiting in enumerate(batch):
            waiting.result.set_result(CropResult(output[index], share))

    def _forward_in_parts(self, net: CropNet, batch: list[_Waiting], error: NetMemoryError) -> None:
        """The device's memory did not hold the batch: smaller ones, from here on."""
        if not net.halve():
            for waiting in batch:
                waiting.result.set_exception(error)
            return
        log.warning("%s: %s; %d face(s) a pass from here on.", net.name, error, net.micro_batch)
        begin = 0
        while begin < len(batch):  # the parts may be halved in turn, while this loop goes on
            part = batch[begin : begin + net.micro_batch]
            begin += len(part)
            self._forward(net, part)
