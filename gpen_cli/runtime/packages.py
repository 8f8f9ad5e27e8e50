"""Compiled nets kept between runs: AOTInductor's libraries in the user's cache folder.

Compiling takes about a minute and loading what was compiled a fraction of a second, so the second process should not compile.
A package is native code: only files in a folder of ours that nobody else may write, with the digest written down when they were
made, are ever loaded. The key holds everything the code depends on (weights, shape, precision, threads, versions, CPU); a
package that is damaged, or was made otherwise, is made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from filelock import FileLock

from gpen_cli.cache import cache_dir, read_json, sha256_of, write_json
from gpen_cli.device import Setup
from gpen_cli.weights.find import FoundWeights, content_sha256

log = logging.getLogger(__name__)

SUFFIX = ".so"
LIMIT_BYTES = 2 * 1024**3
"""Of all packages; the least recently used go first. One takes as much as its weights in the run's precision, and a little."""
FIRST_TORCH = (2, 6)
"""``aoti_compile_and_package`` takes an exported program, and its package is loaded by one call, from here on."""


@dataclass(frozen=True)
class Package:
    """A compiled net on disk. crop_size: side of its crops, px; seconds: what making it took."""

    path: Path
    crop_size: int
    seconds: float


def supported() -> bool:
    """Whether this torch makes packages, and this kind of system lets us know who may write a file."""
    major, minor = (int(part) for part in metadata.version("torch").split(".")[:2])
    return (major, minor) >= FIRST_TORCH and hasattr(os, "getuid")


def find_package(weights: FoundWeights, setup: Setup) -> Package | None:
    """The package for this net and setup, when it is there, whole, and nobody else's."""
    path = package_path(weights, setup)
    known = read_json(_note(path))
    try:
        if not (_is_private(path) and _is_private(path.parent)) or sha256_of(path) != known.get("sha256"):
            log.debug("%s is damaged, or others may write it: it is not used", path)
            return None
        os.utime(path)  # the least recently used are removed first
        return Package(path, int(known["crop_size"]), float(known["seconds"]))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def package_path(weights: FoundWeights, setup: Setup) -> Path:
    """Where the package for this net and setup is kept; the name holds a digest of all that its code depends on."""
    parts = [
        content_sha256(weights),
        setup.precision,
        setup.micro_batch,
        setup.threads,
        metadata.version("torch"),
        platform.python_version_tuple()[:2],
        _cpu(),
        _form(),
    ]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
    return cache_dir() / "compiled" / f"{weights.name}-{digest}{SUFFIX}"


@contextmanager
def being_made(path: Path) -> Iterator[Path]:
    """A name to make the package under. One process at a time makes one; others wait, and should look again. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        temporary = path.with_name(f"{path.stem}.{os.getpid()}{SUFFIX}")
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)


def keep(temporary: Path, path: Path, *, crop_size: int, since: float) -> Package:
    """Puts a new package in its place and removes old ones over the limit. since: ``time.monotonic()`` when it was begun."""
    seconds = time.monotonic() - since
    temporary.chmod(0o600)
    note = {"sha256": sha256_of(temporary), "crop_size": crop_size, "seconds": seconds}
    temporary.replace(path)
    write_json(_note(path), note)
    _remove_old(path)
    return Package(path, crop_size, seconds)


def discard(package: Package) -> None:
    """Removes a package that does not load."""
    for path in (package.path, _note(package.path)):
        path.unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return path.with_suffix(".json")


def _is_private(path: Path) -> bool:
    """Whether the file or folder is this user's and nobody else may change it. Raises OSError."""
    info = path.lstat()
    return info.st_uid == os.getuid() and not info.st_mode & 0o022


def _remove_old(newest: Path) -> None:
    packages = sorted(newest.parent.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for path in packages:
        total += path.stat().st_size
        if total > LIMIT_BYTES and path != newest:
            log.info("removing the compiled net %s: more than %d GB are kept", path.name, LIMIT_BYTES // 1024**3)
            for item in (path, _note(path), path.with_suffix(".lock")):
                item.unlink(missing_ok=True)


def _cpu() -> str:
    """What the compiler made the code for: the CPU's model and what it can."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    lines = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in text.splitlines()}
    return "|".join(lines.get(key, "") for key in ("model name", "flags", "CPU part", "Features"))


def _form() -> str:
    """A digest of the nets' code: a package of another form of the net would still load, and answer otherwise."""
    package = Path(__file__).resolve().parents[1]
    sources = (
        "models/gpen.py",
        "models/stylegan2.py",
        "runtime/crops.py",
        "runtime/torch_compiled.py",
        "runtime/aoti.py",
    )
    return hashlib.sha256(b"".join((package / source).read_bytes() for source in sources)).hexdigest()
