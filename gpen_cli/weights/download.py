"""Fetches a known weight file: in parts that can be resumed, checked, put in place in one step. Never unasked. No torch here."""

from __future__ import annotations

import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from gpen_cli.cache import cache_dir, sha256_of
from gpen_cli.errors import OutputError, UsageError, WeightsError
from gpen_cli.weights.find import WEIGHTS_DIR_VARIABLE, check_known, find_model
from gpen_cli.weights.table import MODELS, Model

PART_SUFFIX = ".part"
SILENCE_SECONDS = 30.0
LOCK_SECONDS = 3600.0
"""How long a second process waits for the first one's download of the same file."""
MARGIN_BYTES = 64 * 1024 * 1024
"""Free space left over on the disk."""
_BLOCK = 1 << 20

OnProgress = Callable[[int, int | None], None]
"""Called with bytes so far, and in all (None when nobody knows)."""


class _MirrorError(Exception):
    """One mirror did not give the file; the next is tried. ``keep_part``: what arrived may be gone on from."""

    def __init__(self, sentence: str, *, keep_part: bool) -> None:
        super().__init__(sentence)
        self.keep_part = keep_part


def target_folder() -> Path:
    """Where downloads go: ``$GPEN_WEIGHTS_DIR``, else the user's cache folder."""
    own = os.environ.get(WEIGHTS_DIR_VARIABLE)
    return Path(own) if own else cache_dir() / "weights"


def downloadable(name: str) -> Model:
    """The row of a net that can be fetched. Raises UsageError."""
    model = MODELS.get(name)
    if model is None:
        raise UsageError(f"{name!r} is no net gpen knows; gpen models list has their names.")
    if not model.mirrors:
        raise UsageError(f"{name} comes with gpen; there is nothing to download.")
    return model


def download(model: Model, *, offline: bool = False, on_progress: OnProgress | None = None) -> Path:
    """The whole, checked file, fetched if it is not here. Safe to run in several processes at once.

    Raises WeightsError (no mirror gave the right file; offline), OutputError (folder, disk).
    """
    found = find_model(model)
    if found is not None:
        return found.path
    if offline:
        raise WeightsError(f"{model.name} is not on this machine and --offline forbids fetching it.")
    folder = target_folder()
    target = folder / model.files[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{target.name}.lock", timeout=LOCK_SECONDS):
            if target.is_file():  # another process was faster
                return check_known(target, model)
            return _from_mirrors(model, target, on_progress or (lambda done, total: None))
    except Timeout as error:
        raise WeightsError(
            f"Another process has been downloading {target} for an hour; end it and try again."
        ) from error
    except OSError as error:
        raise OutputError(
            f"{target} cannot be written: {error.strerror or error}; free or choose another folder."
        ) from error


def _from_mirrors(model: Model, target: Path, on_progress: OnProgress) -> Path:
    part = target.with_name(target.name + PART_SUFFIX)
    _require_space(model, part)
    failures = []
    for url in model.mirrors:
        try:
            _fetch(url, model, part, on_progress)
        except _MirrorError as error:
            failures.append(f"{url}: {error}")
            if not error.keep_part:
                part.unlink(missing_ok=True)
            continue
        part.replace(target)
        return target
    raise WeightsError(
        f"{model.name} could not be downloaded. {'; '.join(failures)}. Try again later; what arrived is kept."
    )


def _require_space(model: Model, part: Path) -> None:
    if model.bytes is None:
        return
    missing = model.bytes - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(part.parent).free
    if free < missing + MARGIN_BYTES:
        raise OutputError(
            f"{model.name} needs {missing / 1e6:.0f} MB in {part.parent}, where {free / 1e6:.0f} MB are free; "
            f"free some, or set {WEIGHTS_DIR_VARIABLE} to another folder."
        )


def _fetch(url: str, model: Model, part: Path, on_progress: OnProgress) -> None:
    """Completes ``part`` from ``url`` and checks it. Raises _MirrorError; OSError only from our own disk."""
    have = part.stat().st_size if part.exists() else 0
    if model.bytes is not None and have > model.bytes:
        part.unlink()
        have = 0
    if model.bytes is None or have < model.bytes:
        request = urllib.request.Request(url, headers={"User-Agent": "gpen"})
        if have:
            request.add_header("Range", f"bytes={have}-")
        try:
            response = urllib.request.urlopen(request, timeout=SILENCE_SECONDS)
        except urllib.error.HTTPError as error:
            # 416: what we have is not a beginning of what the server has.
            what = "redirects without end" if 300 <= error.code < 400 else f"answered {error.code}"
            raise _MirrorError(f"the server {what}", keep_part=error.code != 416) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _MirrorError(str(getattr(error, "reason", error)), keep_part=True) from error
        with response:
            _receive(
                response, part, append=have > 0 and response.status == 206, total=model.bytes, on_progress=on_progress
            )
    _check(model, part)


def _receive(
    response: http.client.HTTPResponse, part: Path, *, append: bool, total: int | None, on_progress: OnProgress
) -> None:
    if response.headers.get_content_type() == "text/html":
        raise _MirrorError("the server sent a web page instead of the file", keep_part=True)
    done = part.stat().st_size if append else 0
    with part.open("ab" if append else "wb") as file:
        while True:
            try:
                block = response.read(_BLOCK)
            except (OSError, http.client.HTTPException) as error:
                raise _MirrorError(f"the connection broke after {done:,} bytes", keep_part=True) from error
            if not block:
                break
            file.write(block)
            done += len(block)
            on_progress(done, total)
            if total is not None and done > total:
                raise _MirrorError(f"the server sent more than the {total:,} bytes the file has", keep_part=False)
        file.flush()
        os.fsync(file.fileno())


def _check(model: Model, part: Path) -> None:
    size = part.stat().st_size
    if model.bytes is not None and size < model.bytes:
        raise _MirrorError(f"the file was cut off after {size:,} of {model.bytes:,} bytes", keep_part=True)
    if model.sha256 is None:
        return
    digest = sha256_of(part)
    if digest != model.sha256:
        raise _MirrorError(f"the file's SHA-256 is {digest} instead of {model.sha256}", keep_part=False)
