"""How far a run is: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType

from gpen_cli.log import bar_shown

log = logging.getLogger(__name__)

PLAIN_SECONDS = 10.0


class Progress:
    """A context manager; ``step`` after each photo. Nothing is shown when ``shown`` is False.

    total: photos of the run; None while nobody knows (--watch), and then there is nothing to show.
    """

    def __init__(self, total: int | None, *, shown: bool) -> None:
        shown = shown and total is not None
        self._total = total or 0
        self._done = 0
        self._begin = self._last = time.monotonic()
        self._shown = shown
        self._bar = None
        if shown and sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, unit="photo", file=sys.stderr, dynamic_ncols=True, smoothing=0.1)
            bar_shown(True)

    def leave_out(self, count: int) -> None:
        """So many photos need not be done (--resume)."""
        self._total -= count
        if self._bar is not None:
            self._bar.total = self._total
            self._bar.refresh()

    def step(self, failed: int) -> None:
        self._done += 1
        if self._bar is not None:
            if failed:
                self._bar.set_postfix_str(f"{failed} failed", refresh=False)
            self._bar.update(1)
            return
        now = time.monotonic()
        if self._shown and (now - self._last >= PLAIN_SECONDS) and self._done < self._total:
            self._last = now
            rate = self._done / (now - self._begin)
            left = (self._total - self._done) / rate
            trouble = f", {failed} failed" if failed else ""
            log.info("%d of %d photos, %.2f a second, %s left%s", self._done, self._total, rate, _clock(left), trouble)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
            bar_shown(False)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        if whole >= 3600
        else f"{whole // 60}:{whole % 60:02d}"
    )
