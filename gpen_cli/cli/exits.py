"""From whatever happened to an exit code and one sentence on stderr: the only translator."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from gpen_cli.errors import INTERRUPTED, TERMINATED, GpenError, OutputError, UsageError

log = logging.getLogger(__name__)


class TerminatedError(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt, no ``except Exception`` may swallow it."""


_STOPS = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])
"""Ctrl-C, a polite kill, and the terminal that is closed."""


_asked: type[BaseException] | None = None
"""The stop that was asked for, and that the command has not yet ended by."""


@contextmanager
def _stoppable() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops the run in order; a second ends the process at once, whatever it waits for."""
    global _asked

    def stop(number: int, frame: FrameType | None) -> None:
        global _asked
        if _asked is not None:
            os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)
        _asked = KeyboardInterrupt if number == signal.SIGINT else TerminatedError
        raise _asked

    _asked = None
    before = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception:
        stop_if_asked()  # an import that a signal breaks into fails, and says so in its own words
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_if_asked() -> None:
    """Raises the stop again that was asked for and lost: where Python imports or tidies up, a signal's error may vanish."""
    if _asked is not None:
        raise _asked


@contextmanager
def exit_codes(stopped: str = "what was finished stays; run it again for the rest") -> Iterator[None]:
    """Runs a command's body; leaves by ``typer.Exit`` with the code of design.md, never by a traceback of the user's fault.

    stopped: what is true of this command once Ctrl-C or SIGTERM has ended it.
    """
    try:
        with _stoppable():
            _require_working_folder()
            yield
    except GpenError as error:
        _say(str(error))
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        _say(f"interrupted; {stopped}.")
        raise typer.Exit(INTERRUPTED) from None
    except TerminatedError:
        _say(f"told to stop; {stopped}.")
        raise typer.Exit(TERMINATED) from None
    except BrokenPipeError:
        # Text that nobody reads is let go; a picture that nobody took is a result that was not delivered.
        silence_stdout()
        _say("what reads standard output has gone, so the picture was not delivered; give -o FILE.")
        raise typer.Exit(OutputError.exit_code) from None
    except (typer.Exit, typer.Abort):
        raise
    except OSError as error:
        if error.errno in _OF_PATHS and error.filename is not None:
            _leave_for_path(error)
        if error.errno != errno.ENOSPC:
            _report_bug()
        _leave_unprinted()
    except Exception:  # noqa: BLE001  a bug of ours: shown whole, because that is what we need to mend it
        _report_bug()


def _require_working_folder() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise UsageError("The working folder no longer exists; change to another one.") from error


_OF_PATHS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS)
"""What is wrong with a path, and not with us, wherever it was met."""


def _leave_for_path(error: OSError) -> NoReturn:
    log.debug("met here", exc_info=error)
    _say(f"{error.filename} cannot be used: {error.strerror}; check the path and its permissions.")
    raise typer.Exit(UsageError.exit_code) from None


def _report_bug() -> NoReturn:
    traceback.print_exc()
    _say("this is an error inside gpen; please report it with the lines above.")
    raise typer.Exit(1) from None


def _leave_unprinted() -> NoReturn:
    silence_stdout()
    _say("what is printed cannot be written: the disk is full.")
    raise typer.Exit(OutputError.exit_code) from None


@contextmanager
def text_may_go_unread() -> Iterator[None]:
    """For printing help, lists, paths: who reads standard output may have seen enough (``| head -1``), which is no failure.

    The first line that nobody takes ends the block; the command goes on, and so does its exit code. Raises typer.Exit where a
    full disk takes nothing.
    """
    try:
        yield
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _leave_unprinted()
    except SystemExit:  # Rich's answer to a pipe without a reader (``Console.on_broken_pipe``); it has silenced stdout
        pass


def silence_stdout() -> None:
    """Sends what is still written to stdout nowhere: its reader has gone, and Python would complain again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(sentence: str) -> None:
    """Through the log when it is set up (so that the log file has it too), else plainly."""
    if logging.getLogger("gpen_cli").handlers:
        log.error("%s", sentence)
    else:
        print(f"error: {sentence}", file=sys.stderr)
