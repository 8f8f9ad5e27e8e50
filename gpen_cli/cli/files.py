"""Checks of paths and names that the commands share, made before any work."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from gpen_cli.data import Job
from gpen_cli.errors import SOME_FAILED, UsageError
from gpen_cli.naming import check_suffix
from gpen_cli.paths import is_file
from gpen_cli.photos.formats import HEAD_BYTES, is_format, looks_like_image, resolve_format

log = logging.getLogger(__name__)


def make_folders(jobs: Sequence[Job]) -> None:
    """Makes every folder that results will lie in, but for photos' own. Raises OutputError."""
    from gpen_cli.photos.write import make_folder  # NumPy and Pillow: not before a usage error

    folders = {job.target.parent for job in jobs if job.target and job.target.parent != Path(job.source).parent}
    for folder in sorted(folders):
        make_folder(folder)


def tell_unseen(unseen: Sequence[str]) -> None:
    """Names what a search could not look into (``FoundPhotos.unseen``)."""
    for sentence in unseen:
        log.error("%s", sentence)


def whole_code(code: int, unseen: Sequence[str]) -> int:
    """The run's exit code, when photos may be missing from it: never 0."""
    if unseen:
        log.error("%d folder(s) or link(s) could not be looked into; they are named above", len(unseen))
    return code or (SOME_FAILED if unseen else 0)


def require_log_file(file: Path | None) -> None:
    """Raises UsageError for a --log-file that is a picture: the log would be appended to it."""
    if file is None or not is_file(file):
        return
    with contextlib.suppress(OSError), file.open("rb") as stream:
        if looks_like_image(stream.read(HEAD_BYTES)):
            raise UsageError(f"--log-file {file} is a picture; name another file.")


def require_suffix(suffix: str) -> None:
    """Raises UsageError for a --suffix that cannot be part of a file name."""
    if not check_suffix(suffix):
        raise UsageError(f"--suffix {suffix!r} cannot be part of a file name; give one like _enhanced.")


def require_format(file: Path, format_name: str | None) -> None:
    """Raises UsageError when -o's suffix names no format and --format gives none, or when they name two."""
    if format_name is not None and not is_format(file.suffix):
        return
    by_suffix = resolve_format(file.suffix, None)
    if format_name is not None and format_name != "same" and resolve_format(format_name, None) != by_suffix:
        raise UsageError(f"-o {file} and --format {format_name} name two formats; leave --format out or rename.")
