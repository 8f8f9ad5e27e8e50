"""Where the project keeps what it can make again: one folder a user, never needed for a correct run."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import platformdirs

_HASH_BLOCK = 1 << 22


def cache_dir() -> Path:
    """The user's cache folder: ``$GPEN_CACHE_DIR``, else the platform's place. It may not exist or not be writable."""
    own = os.environ.get("GPEN_CACHE_DIR")
    return Path(own) if own else Path(platformdirs.user_cache_dir("gpen", appauthor=False))


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file, read in blocks. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``; an absent, unreadable or damaged file is an empty one, since caches can be made again."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: dict[str, Any]) -> bool:
    """Replaces ``path`` in one step. Returns False, and leaves things as they were, where the cache cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    except OSError:
        return False
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True
