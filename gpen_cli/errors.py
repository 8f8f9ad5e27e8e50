"""Everything that can go wrong and be explained, each class with the exit code it ends the run with.

An error says what happened, to which thing, and what to do next, in one sentence.
Errors of a photo are values (they travel in an ``Outcome``); errors of the run are raised to the front door.
"""

from __future__ import annotations

from typing import ClassVar


class GpenError(Exception):
    """Base of all errors this project raises on purpose; ``str(error)`` is the sentence shown to the user."""

    exit_code: ClassVar[int] = 1


class UsageError(GpenError):
    """A bad flag or value, no input found, a port that is taken."""

    exit_code = 2


class PhotoError(GpenError):
    """One photo cannot be read, restored or named; the other photos go on."""

    exit_code = 3


class TooManyPixelsError(PhotoError):
    """The photo is larger than the reader's limit."""


class WeightsError(GpenError):
    """Weights are missing, damaged, or belong to another net."""

    exit_code = 4


class DeviceError(GpenError):
    """The device or runtime that was asked for is not there, or failed."""

    exit_code = 5


class OutputError(GpenError):
    """The output folder cannot be written: every further photo would fail the same way."""

    exit_code = 6


SOME_FAILED = 7
"""Exit code of a run over several inputs when at least one photo failed."""

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

TERMINATED = 143
"""Exit code after SIGTERM."""
