"""Where photos come from: folders, single files, URLs, standard input."""

from __future__ import annotations

import fnmatch
import http.client
import logging
import os
import re
import stat
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.photos.formats import IMAGE_SUFFIXES, looks_like_image

log = logging.getLogger(__name__)

STDIN = "-"
URL_LIMIT_BYTES = 200 * 1024 * 1024
URL_SILENCE_SECONDS = 30.0
URL_TOTAL_SECONDS = 300.0
SNIFF_BYTES = 64
_BLOCK = 1 << 20
_REASON_LENGTH = 200
_UNSAFE_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
_RESERVED_IN_URLS = "%/:=&?~#+!$,;'@()*[]"  # RFC 3986, section 2.2, and what is escaped already


@dataclass(frozen=True)
class FoundPhotos:
    """What lies under a folder. photos: paths relative to it, sorted; ignored: files that are no photos, or excluded."""

    photos: list[Path]
    ignored: int


def is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def find_photos(folder: Path, *, exclude: Sequence[str] = (), leave_out: Path | None = None) -> FoundPhotos:
    """Every photo under ``folder``: a file with an image suffix, or whose first bytes are an image's.

    Hidden files and folders are passed over; sockets, pipes and broken links are ignored; links are followed, each folder
    once, under its real name where that lies below ``folder`` too; ``exclude`` are glob patterns (or plain names) held
    against the relative path and the name; ``leave_out`` is a folder not to enter (the run's output).
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
    """Whatever is no folder, below ``folder``."""
    seen: set[tuple[int, int]] = set()
    barred = _identity(leave_out) if leave_out is not None and leave_out.is_dir() else None
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
            log.warning("%s cannot be listed (%s); its photos are left out.", current, error.strerror or error)
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
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise PhotoError(f"{name} cannot be read: {reason}; check the file and its permissions.") from error


def stamp_of(source: str) -> tuple[int, int] | None:
    """(size, mtime in ns) of a source that is a file, else None."""
    if source == STDIN or is_url(source):
        return None
    try:
        info = Path(source).stat()
    except (OSError, ValueError):
        return None  # reading it will say what is wrong
    return info.st_size, info.st_mtime_ns


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects from web address to web address only; urllib would also go on to ftp."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not is_url(newurl):
            raise urllib.error.URLError(f"it sends on to {newurl}, which is no http(s) address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str) -> bytes:
    """Fetches at most 200 MB, within 30 s of silence and 5 minutes in all. What came is checked by the reader, like any
    file."""
    answer: Future[bytes] = Future()
    deadline = time.monotonic() + URL_TOTAL_SECONDS

    def fetch() -> None:
        try:
            answer.set_result(_fetch(url, deadline))
        except BaseException as error:  # noqa: BLE001  raised where the answer is waited for
            answer.set_exception(error)

    # On a thread of its own, left behind at the deadline: a socket's timeout does not bound a server that drips headers.
    threading.Thread(target=fetch, name="gpen-fetch", daemon=True).start()
    if not wait([answer], timeout=URL_TOTAL_SECONDS).done:
        raise _too_slow(url)
    return answer.result()


def _fetch(url: str, deadline: float) -> bytes:
    opener = urllib.request.build_opener(_WebRedirects)
    try:
        request = urllib.request.Request(quote(url, safe=_RESERVED_IN_URLS), headers={"User-Agent": "gpen"})
        with opener.open(request, timeout=URL_SILENCE_SECONDS) as response:
            return _read_limited(response, url, deadline)
    except urllib.error.HTTPError as error:
        answer = f"the server answered {error.code} {_one_line(error.reason)}"
        raise PhotoError(f"{url} cannot be fetched: {answer}; check the address.") from error
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = _one_line(getattr(error, "reason", error))
        raise PhotoError(f"{url} cannot be fetched: {reason}; check the address and the network.") from error


def _one_line(reason: object) -> str:
    """What a server or a library says, fit for one sentence."""
    return " ".join(str(reason).split())[:_REASON_LENGTH] or type(reason).__name__


def _read_limited(response: http.client.HTTPResponse, url: str, deadline: float) -> bytes:
    announced = int(response.headers.get("Content-Length") or 0)
    blocks: list[bytes] = []
    total = 0
    while announced <= URL_LIMIT_BYTES and (block := response.read1(_BLOCK)):
        blocks.append(block)
        total += len(block)
        if total > URL_LIMIT_BYTES:
            break
        if time.monotonic() > deadline:
            raise _too_slow(url)
    if max(announced, total) > URL_LIMIT_BYTES:
        raise PhotoError(f"{url} is larger than {URL_LIMIT_BYTES / 2**20:g} MB; download it and name the file.")
    if total < announced:
        raise PhotoError(f"{url} was cut off after {total:,} of {announced:,} bytes; try again.")
    return b"".join(blocks)


def _too_slow(url: str) -> PhotoError:
    return PhotoError(f"{url} did not arrive within {URL_TOTAL_SECONDS:g} s; download it and name the file.")


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
