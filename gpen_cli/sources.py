"""Where photos come from: folders, single files, URLs, standard input."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.fetch import fetch_url, is_url
from gpen_cli.paths import exists, is_dir
from gpen_cli.photos.formats import IMAGE_SUFFIXES, looks_like_image

__all__ = [
    "ORIGINAL_SUFFIX",
    "STDIN",
    "FoundPhotos",
    "find_photos",
    "is_url",
    "read_source",
    "require_photo_folder",
    "stamp_of",
    "stem_of",
]

log = logging.getLogger(__name__)

STDIN = "-"
ORIGINAL_SUFFIX = ".orig"
"""What --in-place keeps originals under; such files are no photos of a folder."""
SNIFF_BYTES = 64
STREAM_LIMIT_BYTES = 2 * 1024**3
_BLOCK = 1 << 20
_UNSAFE_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


@dataclass(frozen=True)
class FoundPhotos:
    """What lies under a folder. photos: paths relative to it, sorted; ignored: files that are no photos, or excluded; unseen: a
    sentence for each folder that could not be listed, and each link of a photo's name that leads nowhere: what may be missing."""

    photos: list[Path]
    ignored: int
    unseen: tuple[str, ...] = ()


def find_photos(folder: Path, *, exclude: Sequence[str] = (), leave_out: Path | None = None) -> FoundPhotos:
    """Every photo under ``folder``: a file with an image suffix, or whose first bytes are an image's.

    Hidden files and folders are passed over; sockets and pipes are ignored; links are followed, each folder
    once, under its real name where that lies below ``folder`` too; ``exclude`` are glob patterns (or plain names) held
    against the relative path and the name; ``leave_out`` is a folder not to enter (the run's output).
    """
    photos: list[Path] = []
    unseen: list[str] = []
    ignored = 0
    for path in _walk(folder, leave_out, unseen):
        relative = path.relative_to(folder)
        if path.name.endswith(ORIGINAL_SUFFIX) or _excluded(relative, exclude):
            ignored += 1
        elif (reason := _leads_nowhere(path)) is not None:
            unseen.append(f"{path} is a link to what cannot be read ({reason}); it is left out.")
        elif not _is_photo(path):
            ignored += 1
        else:
            photos.append(relative)
    return FoundPhotos(sorted(photos, key=os.fsencode), ignored, tuple(unseen))


def _leads_nowhere(path: Path) -> str | None:
    """Why what a link with a photo's name means cannot be read; None for all else."""
    if path.suffix.lower() not in IMAGE_SUFFIXES or not path.is_symlink():
        return None
    try:
        path.stat()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _walk(folder: Path, leave_out: Path | None, unseen: list[str]) -> Iterator[Path]:
    """Whatever is no folder, below ``folder``. unseen: gets a sentence for each folder that cannot be listed."""
    seen: set[tuple[int, int]] = set()
    barred = _identity(leave_out) if leave_out is not None and is_dir(leave_out) else None
    waiting = deque([folder])
    while waiting:
        current = waiting.pop()
        identity = _identity(current)
        if identity is None or identity in seen or identity == barred:
            continue
        seen.add(identity)
        try:
            entries = sorted(os.scandir(current), key=lambda entry: os.fsencode(entry.name))
        except OSError as error:
            unseen.append(f"{current} cannot be listed ({error.strerror or error}); its photos are left out.")
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not _is_folder(entry):
                yield Path(entry.path)
            elif entry.is_symlink():
                waiting.appendleft(Path(entry.path))  # links last: a folder met both ways keeps its own name
            else:
                waiting.append(Path(entry.path))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder that is closed to us
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _excluded(relative: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern means the file, or a folder it lies in."""
    paths = [relative, *relative.parents[:-1]]
    return any(
        pattern.rstrip("/") in (path.as_posix(), path.name)  # a real name like "a [1].jpg" means itself first
        or fnmatch.fnmatch(path.as_posix(), pattern.rstrip("/"))
        or fnmatch.fnmatch(path.name, pattern.rstrip("/"))
        for pattern in patterns
        for path in paths
    )


def _is_photo(path: Path) -> bool:
    if not _is_regular(path):
        return False
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            return looks_like_image(file.read(SNIFF_BYTES))
    except OSError:
        return False


def read_source(source: str, name: str, *, allow_private_urls: bool = False) -> bytes:
    """The bytes of a file, URL or standard input. Raises PhotoError with one sentence."""
    if source == STDIN:
        data = b"" if sys.stdin is None else _read_stream(sys.stdin.buffer, "Standard input")  # None: closed
        if not data:
            raise PhotoError(
                "Standard input is empty; pipe a picture into it: gpen enhance - < photo.jpg > restored.png"
            )
        return data
    if is_url(source):
        return fetch_url(source, allow_private=allow_private_urls)
    path = Path(source)
    try:
        if exists(path) and not _is_regular(path) and not is_dir(path):
            if not path.is_fifo():
                raise PhotoError(f"{name} is a device or socket, no photo; name a file.")
            with path.open("rb") as stream:
                return _read_stream(stream, name)
        return path.read_bytes()
    except FileNotFoundError as error:
        raise PhotoError(f"{name} does not exist; check the path.") from error
    except IsADirectoryError as error:
        raise PhotoError(f"{name} is a folder; to restore the photos in it: gpen batch {name} OUTPUT") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise PhotoError(f"{name} cannot be read: {reason}; check the file and its permissions.") from error


def _read_stream(stream: BinaryIO, name: str) -> bytes:
    """What a pipe holds, up to a limit: it may never end."""
    blocks: list[bytes] = []
    total = 0
    while block := stream.read(_BLOCK):
        blocks.append(block)
        total += len(block)
        if total > STREAM_LIMIT_BYTES:
            raise PhotoError(
                f"{name} gives more than {STREAM_LIMIT_BYTES / 2**30:g} GB; save it as a file and name that."
            )
    return b"".join(blocks)


def stamp_of(source: str) -> tuple[int, int] | None:
    """(size, mtime in ns) of a source that is a file, else None."""
    if source == STDIN or is_url(source):
        return None
    try:
        info = Path(source).stat()
    except (OSError, ValueError):
        return None  # reading it will say what is wrong
    return info.st_size, info.st_mtime_ns


def stem_of(source: str) -> str:
    """The name results of this source are built from, without suffix: never empty, no path."""
    if source == STDIN:
        return "stdin"
    if is_url(source):
        stem = Path(_UNSAFE_IN_NAMES.sub("_", unquote(urlsplit(source).path.rpartition("/")[2]))).stem
        return stem if stem.strip(".") else "download"
    stem = Path(source).stem
    return stem if stem.strip(".") else "photo"


def require_photo_folder(folder: Path) -> None:
    """Raises UsageError unless ``folder`` is a folder that can be listed."""
    try:
        os.scandir(folder).close()
    except FileNotFoundError as error:
        raise UsageError(f"The input folder {folder} does not exist; check the path.") from error
    except NotADirectoryError as error:
        raise UsageError(f"{folder} is a file, not a folder; for one photo: gpen enhance {folder}") from error
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"The input folder {folder} cannot be listed: {reason}; check its permissions.") from error
