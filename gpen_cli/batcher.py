"""Faces of many photos share a device: the one scheduler.

Crops are queued by net; one thread owns a device and runs whatever waits, full batches first (several devices: a thread each,
which serve the one queue). It does not wait for a batch to fill, so its feeders can wait for it without deadlock; under load
batches fill by themselves. Only for owners that have announced faces (``expect``) it waits, and never longer than the window.

Owners (requests of a server) take turns: each crop gets the number of the round in which its owner's turn comes, and the lowest
round is run first (start-time fair queueing; Goyal, Vin, Cheng 1996). Crops without an owner are one owner's: first come, first
served.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace

import numpy as np

from gpen_cli.data import UInt8Image
from gpen_cli.runtime.protocol import CropNet, NetMemoryError, NonFiniteOutputError, OverlappingNet

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CropResult:
    """pixels: what the net answered for one crop; seconds: this crop's share of its forward pass."""

    pixels: np.ndarray
    seconds: float


@dataclass(order=True)
class _Waiting:
    """A crop in the queue of its net. Compared by turn: the round of its owner, then the order of coming."""

    round: int
    order: int
    crop: UInt8Image = field(compare=False)
    result: Future[CropResult] = field(compare=False)
    owner: Hashable = field(compare=False)
    came: float = field(compare=False)
    """On the monotonic clock."""


@dataclass
class _Owner:
    """Who has crops waiting: how many, and the round of the last one."""

    waiting: int
    last_round: int


@dataclass(frozen=True)
class _Pass:
    """A pass that was begun, and what gives its answer (or raises)."""

    net: CropNet
    batch: list[_Waiting]
    answer: Callable[[], np.ndarray]
    begun: float


class Batcher:
    """Runs crops through nets, on one thread for each of ``lanes``: a device's nets by name. They are asked for on that
    thread, when a net is first needed.

    preload: the nets to load as soon as the thread starts. window: seconds that a crop waits at most for the faces that other
    owners have announced, so that they share its pass.
    """

    def __init__(self, *lanes: Callable[[str], CropNet], preload: Sequence[str] = (), window: float = 0.0) -> None:
        self._lanes = lanes
        self._queues: dict[str, list[_Waiting]] = {}
        """Heaps, by net."""
        self._owners: dict[Hashable, _Owner] = {}
        self._round = 0
        """Of the crop that was taken last. Who comes new joins the next one, so that a stream of newcomers overtakes nobody."""
        self._changed = threading.Condition()
        self._closed = False
        self._submitted = 0
        self.passes = 0
        self.crops_run = 0
        self.busy_seconds = 0.0
        """Spent in forward passes so far, by all devices together."""
        self._preload = preload
        self._window = window
        self._expected: set[Hashable] = set()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Starts the threads, if they do not run yet; ``submit`` does so too.

        They are not started when the batcher is made: a stop signal that comes between that and the owner's ``try`` would leave
        threads that nobody closes. Owners that signals can interrupt call this on a thread of theirs that they cannot.
        """
        with self._changed:
            if self._threads or self._closed:
                return
            for number, net_by_name in enumerate(self._lanes):
                name = f"gpen-device-{number}" if number else "gpen-device"
                thread = threading.Thread(target=self._run, args=(net_by_name,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    @property
    def waiting(self) -> int:
        """Crops that have not begun."""
        with self._changed:
            return sum(len(queue) for queue in self._queues.values())

    def submit(self, crop: UInt8Image, net: str, *, owner: Hashable = None) -> Future[CropResult]:
        """(S, S, 3) uint8 -> a future of its result. A net's error becomes the future's exception.

        owner: whose crop it is; owners take turns, crop by crop.
        """
        self.start()
        with self._changed:
            if self._closed:
                raise CancelledError("the device thread has ended")
            self._expected.discard(owner)
            whose = self._owners.setdefault(owner, _Owner(0, self._round))
            whose.waiting += 1
            whose.last_round = max(self._round, whose.last_round) + 1
            waiting = _Waiting(whose.last_round, self._submitted, crop, Future(), owner, time.monotonic())
            self._submitted += 1
            heapq.heappush(self._queues.setdefault(net, []), waiting)
            self._changed.notify_all()
        return waiting.result

    def expect(self, owner: Hashable) -> None:
        """The owner's photo is being read: its first crop, or ``drop``, follows soon, and is worth the window's wait."""
        with self._changed:
            self._expected.add(owner)

    def drop(self, owner: Hashable) -> None:
        """Cancels the owner's crops that have not begun (its client has gone), and expects no more of it."""
        with self._changed:
            self._expected.discard(owner)
            self._changed.notify_all()
            if owner not in self._owners:
                return
            dropped: list[_Waiting] = []
            for queue in self._queues.values():
                dropped += [waiting for waiting in queue if waiting.owner == owner]
                queue[:] = [waiting for waiting in queue if waiting.owner != owner]
                heapq.heapify(queue)
            del self._owners[owner]
        for waiting in dropped:  # without the lock: whoever waits for it may come back here
            waiting.result.cancel()

    def close(self, *, cancel: bool = False) -> None:
        """Ends the thread once the queue is empty; ``cancel`` drops what has not begun. Safe to call twice."""
        with self._changed:
            self._closed = True
            if cancel:
                for queue in self._queues.values():
                    for waiting in queue:
                        waiting.result.cancel()
                    queue.clear()
                self._owners.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self, net_by_name: Callable[[str], CropNet]) -> None:
        self._load_ahead(net_by_name)
        running: _Pass | None = None
        while True:
            with self._changed:
                while not (name := self._next_net()) and running is None:
                    if self._closed:
                        return
                    self._changed.wait()
            if name is not None:
                running = self._run_batch(net_by_name, name, running)
            elif running is not None:
                self._finish(running)
                running = None

    def _load_ahead(self, net_by_name: Callable[[str], CropNet]) -> None:
        """Loads while the first photos are read. An error is not lost: the first crop for that net meets it again."""
        for name in self._preload:
            with self._changed:
                if self._closed or any(self._queues.values()):
                    return  # what is waited for comes first
            with contextlib.suppress(Exception):
                net_by_name(name)

    def _next_net(self) -> str | None:
        """The net of the crop whose turn it is. Called with the lock held."""
        heads = [(queue[0], name) for name, queue in self._queues.items() if queue]
        return min(heads)[1] if heads else None

    def _run_batch(self, net_by_name: Callable[[str], CropNet], name: str, running: _Pass | None) -> _Pass | None:
        """Runs or begins a pass of the net, and takes the answer of the one that is ``running``; returns what runs then."""
        try:
            net = net_by_name(name)
        except BaseException as error:  # noqa: BLE001  whatever it is, those who wait must hear of it
            for waiting in self._take(name, len(self._queues[name])):
                waiting.result.set_exception(error)
            return running
        overlaps = isinstance(net, OverlappingNet) and net.overlaps
        if running is not None and (self._expected or not overlaps or running.net is not net):
            self._finish(
                running
            )  # nobody waits for an answer that is there while another batch fills or another net runs
            running = None
        self._let_it_fill(name, net.micro_batch)
        batch = self._take(name, net.micro_batch)
        begun = self._begin(net, batch) if batch else None
        if running is not None:
            self._finish(running)
            begun = replace(begun, begun=time.perf_counter()) if begun else None  # the time of both is counted once
        if begun is not None and not overlaps:
            self._finish(begun)
            return None
        return begun

    def _begin(self, net: CropNet, batch: list[_Waiting]) -> _Pass:
        """A pass on its way, where the net's passes overlap; else one that runs when its answer is asked for."""
        crops, begun = np.stack([waiting.crop for waiting in batch]), time.perf_counter()
        if not (isinstance(net, OverlappingNet) and net.overlaps):
            return _Pass(net, batch, lambda: net.run(crops), begun)
        try:
            return _Pass(net, batch, net.begin(crops), begun)
        except BaseException as error:  # noqa: BLE001  met where answers are taken
            return _Pass(net, batch, _raiser(error), begun)

    def _let_it_fill(self, name: str, size: int) -> None:
        """Waits while faces are announced that may share the pass, and the crop that waits longest has not waited a window."""
        with self._changed:
            while self._expected and not self._closed and 0 < len(queue := self._queues[name]) < size:
                left = min(waiting.came for waiting in queue) + self._window - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _take(self, name: str, count: int) -> list[_Waiting]:
        with self._changed:
            queue = self._queues[name]
            taken = [heapq.heappop(queue) for _ in range(min(count, len(queue)))]
            for waiting in taken:
                self._round = max(self._round, waiting.round)
                whose = self._owners[waiting.owner]
                whose.waiting -= 1
                if whose.waiting == 0:
                    del self._owners[waiting.owner]
        return [waiting for waiting in taken if waiting.result.set_running_or_notify_cancel()]

    def _forward(self, net: CropNet, batch: list[_Waiting]) -> None:
        self._finish(self._begin(net, batch))

    def _finish(self, begun: _Pass) -> None:
        """Takes a pass's answer to those who wait for it."""
        net, batch = begun.net, begun.batch
        try:
            output = begun.answer()
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
        self._deliver(begun, output)

    def _deliver(self, begun: _Pass, output: np.ndarray) -> None:
        seconds = time.perf_counter() - begun.begun
        with self._changed:
            self.busy_seconds += seconds
            self.passes += 1
            self.crops_run += len(begun.batch)
        for index, waiting in enumerate(begun.batch):
            waiting.result.set_result(CropResult(output[index], seconds / len(begun.batch)))

    def _forward_in_parts(self, net: CropNet, batch: list[_Waiting], error: NetMemoryError) -> None:
        """The device's memory did not hold the batch: smaller ones, from here on."""
        if len(batch) <= net.micro_batch:  # else it had begun before an earlier one was halved
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


def _raiser(error: BaseException) -> Callable[[], np.ndarray]:
    def answer() -> np.ndarray:
        raise error

    return answer
