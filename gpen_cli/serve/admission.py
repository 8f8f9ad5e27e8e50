"""Who is let in: places for requests, memory for uploads. Used on the event loop alone, so nothing here locks."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gpen_cli.serve.problems import Problem

_RECENT = 0.2
"""Weight of the newest request in the mean seconds a request takes."""


class Ticket:
    """One request's claim on the work: the owner of its crops. ``give_up`` tells the threads that nobody waits any more."""

    def __init__(self) -> None:
        self._gone = threading.Event()

    @property
    def gone(self) -> bool:
        return self._gone.is_set()

    def give_up(self) -> None:
        self._gone.set()


class Admission:
    """places: requests inside at once; at_once: how many of them are worked on; upload_bytes: what all uploads may hold."""

    def __init__(self, *, places: int, at_once: int, upload_bytes: int) -> None:
        self._places = places
        self._at_once = at_once
        self._upload_bytes = upload_bytes
        self.inside = 0
        self.held_bytes = 0
        self.mean_seconds = 0.0
        """A request at work, recently; 0 before the first."""

    def check(self) -> None:
        """Raises Problem 429 when no place is free: said before a body is read."""
        if self.inside >= self._places:
            raise self._full()

    def enter(self) -> None:
        """Takes a place. Raises Problem 429."""
        self.check()
        self.inside += 1

    def leave(self) -> None:
        """Frees a place."""
        self.inside -= 1

    def note_seconds(self, seconds: float) -> None:
        """Tells how long a request was worked on."""
        self.mean_seconds = seconds if not self.mean_seconds else (1 - _RECENT) * self.mean_seconds + _RECENT * seconds

    def seconds_ahead(self) -> float:
        """How long a request that came now would wait and work, by what was measured."""
        rounds = math.ceil((self.inside + 1) / self._at_once)
        return rounds * self.mean_seconds

    @contextmanager
    def upload(self) -> Iterator[Upload]:
        """Memory for one upload, given back at the end of the block."""
        upload = Upload(self)
        try:
            yield upload
        finally:
            self.held_bytes -= upload.held

    def hold(self, count: int) -> None:
        """Counts bytes of an upload. Raises Problem 429 when all uploads together hold too much."""
        if self.held_bytes + count > self._upload_bytes:
            raise self._full()
        self.held_bytes += count

    def _full(self) -> Problem:
        seconds = max(1, math.ceil(self.seconds_ahead() / 2))
        sentence = f"The server has as many requests as it takes; try again in {seconds} s."
        return Problem(429, "queue-full", sentence, {"Retry-After": str(seconds)})


class Upload:
    """What one upload holds of the memory for all."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.held = 0

    def hold(self, count: int) -> None:
        """Counts ``count`` bytes more. Raises Problem 429."""
        self._admission.hold(count)
        self.held += count
