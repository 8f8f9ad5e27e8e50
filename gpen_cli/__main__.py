"""``python -m gpen_cli`` and ``gpen``: the way in."""

from __future__ import annotations

import os
import signal
from types import FrameType

_INTERRUPTED = 130  # as in errors.py, which is not imported yet


def run() -> None:
    """Entry point of the console script."""
    signal.signal(signal.SIGINT, _leave)
    from gpen_cli.cli.main import run as run_command

    run_command()


def _leave(number: int, frame: FrameType | None) -> None:
    """Ctrl-C before a command has begun (importing takes a moment) or after it has ended: nothing is to be tidied up."""
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
