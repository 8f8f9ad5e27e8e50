"""Names of half-written files, so that those of a killed run are known at the next and nobody else's are touched."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PREFIX, SUFFIX = ".gpen-", ".tmp"
FOREIGN_AGE_SECONDS = 24 * 3600.0
"""Another machine's half-written file (a shared folder) is left alone for so long: its writer cannot be asked."""


@cache
def _machine() -> str:
    """Eight hex digits for this machine, boot and process namespace: where our process numbers mean something."""
    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8"))
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        pass  # not Linux: the host's name has to do
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:8]


def temporary_beside(target: Path) -> Path:
    """A new short name in the target's folder."""
    return target.parent / f"{PREFIX}{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"


def remove_leftovers(folders: Iterable[Path]) -> int:
    """Removes what killed runs left half-written in these folders; returns how many files."""
    removed = 0
    for folder in folders:
        for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
            if _is_orphan(path):
                path.unlink(missing_ok=True)
                removed += 1
    return removed


def _is_orphan(path: Path) -> bool:
    parts = path.name[len(PREFIX) : -len(SUFFIX)].split("-")
    try:
        if len(parts) == 3 and parts[0] == _machine():
            return not _is_alive(int(parts[1]))
        return time.time() - path.stat().st_mtime > FOREIGN_AGE_SECONDS
    except (OSError, ValueError):
        return False


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is there, and somebody else's
    return True
