"""The manifest of an output folder: what was made from what, how; and what a resumed run need not do again.

``.gpen-manifest.jsonl`` in the output folder, one JSON object a line, appended and flushed as photos are finished; a line torn by
a killed run is passed over. ``--resume`` leaves out a photo when its file, the options and the setup are those of its line,
and its result is whole to the byte; everything else is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from gpen_cli import __version__
from gpen_cli.cache import sha256_of
from gpen_cli.data import Job, Outcome
from gpen_cli.device import Setup
from gpen_cli.errors import OutputError
from gpen_cli.options import NetOptions, Options, ReadOptions, RunOptions
from gpen_cli.paths import exists

log = logging.getLogger(__name__)

MANIFEST = ".gpen-manifest.jsonl"
MANIFEST_VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One finished photo. source and target: paths relative to the input and output folder, as JSON can hold them."""

    source: str
    source_size: int
    source_mtime_ns: int
    fingerprint: str
    target: str | None
    target_size: int | None
    sha256: str | None
    status: str
    origin: str | None = None
    """Digest of the photo's whole path: tells ``x/img.jpg`` from ``y/img.jpg`` of another run into the same folder."""


def _origin(job: Job) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(job.source))).hexdigest()[:16]


def fingerprint(options: Options, setup: Setup, nets: str) -> str:
    """Equal for runs that make the same bytes from the same photo: hex digits.

    What only says how the run goes (workers, limits, reports, which existing files may be replaced) has no part in it.
    """
    bytes_of_a_photo = replace(
        options,
        read=replace(ReadOptions(), channel_order=options.read.channel_order),
        run=replace(
            RunOptions(), in_place=options.run.in_place, aligned=options.run.aligned, no_face=options.run.no_face
        ),
        net=NetOptions(),  # what was asked for became the setup and the nets, which count below
    )
    content = json.dumps(
        [__version__, asdict(bytes_of_a_photo), asdict(replace(setup, precision_reason="")), nets],
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_only_writer(file: TextIO) -> bool:
    """Takes a lock that ends with the process; False when another process has it. True where there are no such locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


class Ledger:
    """The manifest, read once, made with its first line and appended to. A context manager.

    Raises OutputError when it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / MANIFEST
        self._entries: dict[str, Entry] = {}
        self._announced: dict[str, dict[str, str | None]] = {}  # target -> sha256 -> origin
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        self.setup: Setup | None = None
        """How the last run was set up, or None for a new folder."""
        self._read()

    def _open(self) -> TextIO:
        try:
            file = self._path.open("a", encoding="ascii")
            if file.tell() and not self._ends_with_newline():
                file.write("\n")  # a torn last line must not swallow the next
        except OSError as error:
            raise OutputError(
                f"{self._path} cannot be written: {error.strerror or error}; name another OUTPUT folder."
            ) from error
        if not _is_only_writer(file):
            log.warning(
                "another gpen is writing into %s: each will do, and replace, what the other does; stop one of them.",
                self._folder,
            )
        return file

    def _ends_with_newline(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _read(self) -> None:
        try:
            lines = self._path.read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                content = json.loads(line)
                if content.pop("version") != MANIFEST_VERSION:
                    continue
                if "setup" in content:
                    self.setup = Setup(**content["setup"])
                elif "announced" in content:
                    self._announced.setdefault(content["announced"], {})[content["sha256"]] = content.get("origin")
                else:
                    entry = Entry(**content)
                    self._entries[entry.source] = entry
                    if entry.target is not None and entry.sha256 is not None:
                        self._announced.setdefault(entry.target, {})[entry.sha256] = entry.origin
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # torn, or of another version: that photo is done again

    def begin(self, setup: Setup) -> None:
        """Writes down the setup of this run."""
        self.setup = setup
        self._append({"setup": asdict(setup)})

    def is_done(self, job: Job, mark: str) -> bool:
        """Whether the job's result is there, whole, and made from this file by a run with this fingerprint."""
        entry = self._entries.get(job.name)
        if entry is None or entry.fingerprint != mark or entry.target != self._relative(job):
            return False
        try:
            info = Path(job.source).stat()
            if (info.st_size, info.st_mtime_ns) != (entry.source_size, entry.source_mtime_ns):
                return False
            if job.target is None:
                return False
            if entry.target_size is None:  # left out by --no-face skip
                return not exists(job.target)
            return job.target.stat().st_size == entry.target_size and sha256_of(job.target) == entry.sha256
        except OSError:
            return False

    def announce(self, job: Job, sha256: str) -> None:
        """Writes down, before it happens, that a result which carries no mark of ours takes the job's name. Any thread."""
        assert job.target is not None
        name, origin = os.path.relpath(job.target, self._folder), _origin(job)
        self._append({"announced": name, "sha256": sha256, "origin": origin})
        with self._lock:
            self._announced.setdefault(name, {})[sha256] = origin

    def made(self, job: Job) -> bool:
        """Whether the file under the job's target is, to the byte, one that a run into this folder wrote for this photo."""
        assert job.target is not None
        known = self._announced.get(os.path.relpath(job.target, self._folder), {})
        try:
            if not known or (digest := sha256_of(job.target)) not in known:
                return False
            in_place = job.target == Path(job.source)  # a link then was replaced: its origin is no longer to be seen
            return in_place or known[digest] in (None, _origin(job))
        except OSError:
            return False

    def belongs_to(self, job: Job) -> bool:
        """Whether the result under the job's target was last made from the job's photo, as it is now or was. Any thread."""
        entry = self._entries.get(job.name)
        return entry is not None and entry.target == self._relative(job) and entry.origin in (None, _origin(job))

    def add(self, outcome: Outcome, mark: str) -> None:
        """Writes down a finished photo. Failed and skipped ones are not: they are done again."""
        if outcome.status not in ("done", "no_face") or outcome.source_stamp is None:
            return
        written = outcome.output_bytes is not None
        entry = Entry(
            source=outcome.job.name,
            source_size=outcome.source_stamp[0],
            source_mtime_ns=outcome.source_stamp[1],
            fingerprint=mark,
            target=self._relative(outcome.job),
            target_size=outcome.output_bytes,
            sha256=outcome.output_sha256 if written else None,
            status=outcome.status,
            origin=_origin(outcome.job),
        )
        self._append(asdict(entry))

    def _relative(self, job: Job) -> str | None:
        return None if job.target is None else os.path.relpath(job.target, self._folder)

    def _append(self, content: dict[str, Any]) -> None:
        try:
            with self._lock:  # writers announce while the run's thread writes down what is finished
                if self._file is None:
                    self._file = self._open()
                self._file.write(json.dumps({"version": MANIFEST_VERSION, **content}) + "\n")
                self._file.flush()
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written: {error.strerror or error}; free some space.") from error

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # each line was flushed, or its failure raised; nothing new to say here
                self._file.close()
