"""Where photos come from: folders, single files, URLs, standard input."""

from __future__ import annotations

import fnmatch
import os
import stat
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.photos.formats import IMAGE_SUFFIXES, looks_like_image

STDIN = "-"
URL_LIMIT_BYTES = 200 * 1024 * 1024
URL_TIMEOUT_SECONDS = 30.0
SNIFF_BYTES = 64
_BLOCK = 1 << 20


@dataclass(frozen=True)
class FoundPhotos:
    """What lies under a folder. photos: paths relative to it, sorted; ignored: files that are no photos, or excluded."""

    photos: list[Path]
    ignored: int


def is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def find_photos(folder: Path, *, exclude: Sequence[str] = (), leave_out: Path | None = None) -> FoundPhotos:
    """Every photo under ``folder``: a file with an image suffix, or whose first bytes are an image's.

    Hidden files and folders, sockets and pipes are passed over; links are followed, each folder once; ``exclude`` are
    glob patterns held against the relative path and the name; ``leave_out`` is a folder not to enter (the run's output).
    """
    photos: list[Path] = []
    ignored = 0
    for path in _walk(folder, leave_out):
        relative = path.relative_to(folder)
        if _excluded(relative, exclude) or not _is_photo(path):
            ignored += 1
        else:
            photos.append(relative)
    return FoundPhotos(sorted(photos, key=os.fsencode), ignored)


def _walk(folder: Path, leave_out: Path | None) -> Iterator[Path]:
    seen: set[tuple[int, int]] = set()
    barred = _identity(leave_out) if leave_out is not None and leave_out.is_dir() else None
    stack = [folder]
    while stack:
        current = stack.pop()
        identity = _identity(current)
        if identity is None or identity in seen or identity == barred:
            continue
        seen.add(identity)
        try:
            entries = sorted(os.scandir(current), key=lambda entry: os.fsencode(entry.name))
        except OSError:
            continue  # a folder that cannot be listed holds no photo we could read; its parent is still done
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            if entry.is_dir():
                stack.append(path)
            elif _is_regular(path):
                yield path


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
    text = relative.as_posix()
    return any(fnmatch.fnmatch(text, pattern) or fnmatch.fnmatch(relative.name, pattern) for pattern in patterns)


def _is_photo(path: Path) -> bool:
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            return looks_like_image(file.read(SNIFF_BYTES))
    except OSError:
        return False


def read_source(source: str, name: str) -> bytes:
    """The bytes of a file, URL or standard input. Raises PhotoError with one sentence."""
    if source == STDIN:
        data = sys.stdin.buffer.read()
        if not data:
            raise PhotoError(
                "Standard input is empty; pipe a picture into it: gpen enhance - < photo.jpg > restored.png"
            )
        return data
    if is_url(source):
        return _download(source)
    path = Path(source)
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise PhotoError(f"{name} does not exist; check the path.") from error
    except IsADirectoryError as error:
        raise PhotoError(f"{name} is a folder; to restore the photos in it: gpen batch {name} OUTPUT") from error
    except OSError as error:
        raise PhotoError(
            f"{name} cannot be read: {error.strerror or error}; check the file and its permissions."
        ) from error


def _download(url: str) -> bytes:
    """Fetches at most 200 MB within 30 s of silence. What came is checked by the reader, like any file."""
    request = urllib.request.Request(url, headers={"User-Agent": "gpen"})
    try:
        with urllib.request.urlopen(request, timeout=URL_TIMEOUT_SECONDS) as response:
            return _read_limited(response, url)
    except urllib.error.HTTPError as error:
        raise PhotoError(
            f"{url} cannot be fetched: the server answered {error.code} {error.reason}; check the address."
        ) from error
    except urllib.error.URLError as error:
        raise PhotoError(f"{url} cannot be fetched: {error.reason}; check the address and the network.") from error
    except (OSError, ValueError) as error:
        raise PhotoError(f"{url} cannot be fetched: {error}; check the address and the network.") from error


def _read_limited(response: IO[bytes], url: str) -> bytes:
    blocks: list[bytes] = []
    total = 0
    while block := response.read(_BLOCK):
        total += len(block)
        if total > URL_LIMIT_BYTES:
            raise PhotoError(f"{url} is larger than {URL_LIMIT_BYTES // 2**20} MB; download it and name the file.")
        blocks.append(block)
    return b"".join(blocks)


def stem_of(source: str) -> str:
    """The name results of this source are built from, without suffix."""
    if source == STDIN:
        return "stdin"
    if is_url(source):
        name = Path(unquote(urlsplit(source).path)).name
        return Path(name).stem or "download"
    return Path(source).stem or Path(source).name


def require_photo_folder(folder: Path) -> None:
    """Raises UsageError unless ``folder`` is a folder that can be listed."""
    if not folder.exists():
        raise UsageError(f"The input folder {folder} does not exist; check the path.")
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder; for one photo: gpen enhance {folder}")
