"""What lies under a name that a user gave, asked without an error.

Below a folder that is closed to us, or under a name longer than the disk takes, there is nothing to be seen; pathlib (before
Python 3.14) raises there. Reading or writing the path then says what is wrong, in the words of whoever does it.
"""

from __future__ import annotations

import os
from pathlib import Path


def exists(path: Path) -> bool:
    """Whether anything can be seen there; a broken link is nothing."""
    return os.path.exists(path)  # noqa: PTH110


def is_dir(path: Path) -> bool:
    """Whether a folder can be seen there."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path) -> bool:
    """Whether a plain file can be seen there."""
    return os.path.isfile(path)  # noqa: PTH113


def same_file(one: Path, other: Path) -> bool:
    """Whether both can be seen and are one file or folder."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False
