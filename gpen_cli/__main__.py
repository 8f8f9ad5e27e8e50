"""``python -m gpen_cli`` and ``gpen``: the way in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gpen_cli.ending import ending_at_once

_INTERRUPTED = 130  # as in errors.py, which is not imported yet


@contextmanager
def whole_program() -> Iterator[None]:
    """Around all that a program of ours does, its imports too."""
    signal.signal(signal.SIGINT, _leave)
    # Before NumPy is imported: its products here are of three numbers, and threads that wait for the next one take cores away.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ending_at_once():
        yield


def run() -> None:
    """Entry point of the console script."""
    with whole_program():
        from gpen_cli.cli.main import run as run_command

        run_command()


def _leave(number: int, frame: FrameType | None) -> None:
    """Ctrl-C before a command has begun (importing takes a moment) or after it has ended: nothing is to be tidied up."""
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
