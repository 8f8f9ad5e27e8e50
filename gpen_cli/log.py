"""The log: set-up, per-stage clocks, and the closing table. stderr only; stdout belongs to result paths."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np

from gpen_cli.errors import UsageError

LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
STAGES = ("decode", "detect", "align", "restore", "compose", "encode")
WAITS = ("wait for restore",)
_FILE_FORMAT = "%(asctime)s %(levelname)s %(message)s"
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.DEBUG: "\x1b[2m"}


class _ConsoleFormatter(logging.Formatter):
    """``warning: …`` and ``error: …`` in colour on a terminal; plain sentences otherwise."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__("%(message)s")
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        colour = _COLOURS.get(record.levelno) if self._colour else None
        return f"{colour}{text}\x1b[0m" if colour else text


class _ConsoleHandler(logging.Handler):
    """Writes above a progress bar when one is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write_above_bar(self.format(record), error=True)
        except Exception:  # noqa: BLE001  a log that cannot be written (stderr closed) must not end the run
            self.handleError(record)


class _FileHandler(logging.FileHandler):
    """A full disk must not stop the photos: it is told once, on stderr."""

    _told = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        if not self._told:
            self._told = True
            write_above_bar(
                f"warning: the log file {self.baseFilename} cannot be written; it is not whole.", error=True
            )

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what the full disk did not take before
            super().close()


_bar_is_shown = False


def bar_shown(shown: bool) -> None:
    """Told by the front door that owns the terminal's progress bar."""
    global _bar_is_shown
    _bar_is_shown = shown


def write_above_bar(line: str, *, error: bool = False) -> None:
    """A line to stderr (or stdout) that does not tear a progress bar. What stderr cannot spell is escaped; a path on stdout
    that is no text keeps its own bytes, so that what reads it finds the file."""
    stream = sys.stderr if error else sys.stdout
    if stream is None:  # closed by whoever started us
        return
    if _bar_is_shown:
        from tqdm import tqdm

        with tqdm.external_write_mode(file=stream):
            _write_line(stream, line, escaped=error)
    else:
        _write_line(stream, line, escaped=error)


def _write_line(stream: TextIO, line: str, *, escaped: bool) -> None:
    encoding = stream.encoding or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        if not escaped:
            stream.flush()
            stream.buffer.write(os.fsencode(line) + b"\n")
            stream.buffer.flush()
            return
        line = line.encode(encoding, "backslashreplace").decode(encoding)
    stream.write(line + "\n")
    stream.flush()


def set_up(level: str, file: Path | None, *, append: bool = True) -> None:
    """Sends the project's log to stderr at ``level`` and, with its times, to ``file``. Raises UsageError."""
    if level not in LEVELS:
        raise UsageError(f"--log-level {level!r} is not known; choose one of: auto, {', '.join(LEVELS)}.")
    logging.captureWarnings(True)  # what libraries warn developers of (Pillow, of damaged tags) is not for users
    root = logging.getLogger("gpen_cli")
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.setLevel(LEVELS[level])
    root.propagate = False
    console = _ConsoleHandler()
    console.setFormatter(_ConsoleFormatter(colour=sys.stderr is not None and sys.stderr.isatty()))
    root.addHandler(console)
    if file is not None:
        try:
            handler = _FileHandler(file, mode="a" if append else "w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(
                f"--log-file {file} cannot be written: {error.strerror or error}; name another."
            ) from error
        handler.setFormatter(logging.Formatter(_FILE_FORMAT))
        root.addHandler(handler)


class StageClock:
    """Seconds by stage, for one photo. Not shared between threads."""

    def __init__(self, start: dict[str, float] | None = None) -> None:
        self.seconds: dict[str, float] = dict(start or {})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time the block takes to ``name``."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class RunSummary:
    """Collects photos' seconds and draws the closing table of a debug log. Grows by one number a stage and photo."""

    def __init__(self) -> None:
        self._samples: dict[str, list[float]] = {}

    def add(self, seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            self._samples.setdefault(name, []).append(value)

    def table(self) -> list[str]:
        """Lines: stage, total, mean, 95th percentile, share of the work; waits below."""
        work = sum(sum(values) for name, values in self._samples.items() if name not in WAITS)
        lines = [f"{'stage':<18}{'total s':>10}{'mean s':>10}{'p95 s':>10}{'share':>8}"]
        for name in (*STAGES, *WAITS):
            values = self._samples.get(name)
            if not values:
                continue
            share = "" if name in WAITS or work == 0 else f"{100 * sum(values) / work:.0f} %"
            p95 = float(np.percentile(values, 95))
            lines.append(f"{name:<18}{sum(values):>10.2f}{np.mean(values):>10.3f}{p95:>10.3f}{share:>8}")
        return lines
