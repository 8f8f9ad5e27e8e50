"""Photos of a folder as they become complete (``gpen batch --watch``).

A file that is being copied grows, or stands still with its end missing. It is taken when two looks find the same size and time
and its end is there; one that stays without its end for ``PATIENCE`` seconds is taken all the same, and told to be cut off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpen_cli.errors import PhotoError
from gpen_cli.photos.opening import identify, is_cut_off
from gpen_cli.sources import find_photos

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks."""
PATIENCE = 60.0

Stamp = tuple[int, int]


class Watcher:
    """What is new, or changed, and complete, under a folder; look by look. Keeps one stamp a file."""

    def __init__(
        self,
        folder: Path,
        *,
        exclude: Sequence[str] = (),
        leave_out: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._exclude = exclude
        self._leave_out = leave_out
        self._clock = clock
        self._seen: dict[Path, tuple[Stamp, float]] = {}
        self._taken: dict[Path, Stamp] = {}
        self._told: set[str] = set()

    def look(self) -> list[Path]:
        """The photos, relative to the folder and sorted, that were not handed out as they are now, and are complete."""
        found = self._photos()
        now, ready = self._clock(), []
        stamps = {path: stamp for path in found if (stamp := self._stamp(path)) is not None}
        for path, stamp in stamps.items():
            before, since = self._seen.get(path, (None, now))
            if stamp != before:
                self._seen[path] = (stamp, now)
            elif self._taken.get(path) != stamp and (self._is_whole(path) or now - since >= PATIENCE):
                self._taken[path] = stamp
                ready.append(path)
        self._seen = {path: seen for path, seen in self._seen.items() if path in stamps}
        self._taken = {path: stamp for path, stamp in self._taken.items() if path in stamps}
        return ready

    def _photos(self) -> list[Path]:
        """What is there now; what cannot be looked into is told once."""
        found = find_photos(self._folder, exclude=self._exclude, leave_out=self._leave_out)
        for sentence in found.unseen:
            if sentence not in self._told:
                self._told.add(sentence)
                log.error("%s", sentence)
        return found.photos

    def waiting(self) -> list[Path]:
        """Photos that were seen and not yet handed out: they still grow, or their end is missing."""
        return [path for path, (stamp, _) in self._seen.items() if self._taken.get(path) != stamp]

    def _stamp(self, path: Path) -> Stamp | None:
        try:
            info = (self._folder / path).stat()
        except OSError:
            return None  # moved away since it was listed
        return info.st_size, info.st_mtime_ns

    def _is_whole(self, path: Path) -> bool:
        try:
            data = (self._folder / path).read_bytes()
            return not is_cut_off(data, identify(data, str(path)))
        except (PhotoError, OSError):
            return False  # perhaps not yet; when it stays so, the run says why
