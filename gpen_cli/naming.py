"""What results are called: every name is planned before any work, so that no two results share one."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gpen_cli.data import Job
from gpen_cli.errors import PhotoError
from gpen_cli.photos.formats import FORMATS, resolve_format
from gpen_cli.sources import STDIN, is_url, stem_of

SUFFIX = "_enhanced"
NAME_LIMIT_BYTES = 255
"""Longest file name most file systems take, in bytes."""


def plan_batch(
    relatives: Sequence[Path], source: Path, output: Path, *, suffix: str, format_name: str | None
) -> list[Job]:
    """A job a photo: OUTPUT/<relative folder>/<stem><suffix>.<png, or what --format says>, unique even where letter case
    or Unicode form is all that differs (Windows and macOS hold those for one name)."""
    wanted = [
        relative.with_name(_name(relative.stem, suffix, _extension(source / relative, format_name)))
        for relative in relatives
    ]
    counts = Counter(_key(path) for path in wanted)
    taken: set[str] = set()
    jobs = []
    for relative, path in zip(relatives, wanted, strict=True):
        if counts[_key(path)] > 1:  # a.jpg and a.png: the source's suffix goes into the name of both
            path = relative.with_name(_name(relative.name, suffix, path.suffix))
        path = _unique(path, taken)
        jobs.append(Job(str(source / relative), output / path, str(relative), label=str(path.with_suffix(""))))
    return jobs


def plan_enhance(
    sources: Sequence[str], *, output: Path | None, output_dir: Path | None, suffix: str, format_name: str | None
) -> list[Job]:
    """A job an input of ``gpen enhance``. output: the one result's path; output_dir: a folder for all results; neither:
    beside each photo (a URL's result in the working folder). Standard input without either goes to standard output."""
    jobs = []
    taken: set[str] = set()
    labels: set[str] = set()
    for source in dict.fromkeys(sources):
        label = str(_unique(Path(stem_of(source)), labels))
        if output is not None:
            target: Path | None = output
        elif source == STDIN and output_dir is None:
            target = None
        else:
            remote = source == STDIN or is_url(source)
            folder = output_dir if output_dir is not None else Path() if remote else Path(source).parent
            path = folder / _name(stem_of(source), suffix, _extension(source, format_name))
            if _key(path) in taken:
                path = folder / _name(_full_name(source), suffix, path.suffix)
            target = _unique(path, taken)
        jobs.append(Job(source, target, source, label=label))
    return jobs


def _full_name(source: str) -> str:
    return stem_of(source) if source == STDIN or is_url(source) else Path(source).name


def _extension(source: str | Path, format_name: str | None) -> str:
    """The target's suffix. ``same`` keeps the source's when it names a format we write (content is looked at later)."""
    if format_name is None:
        return ".png"
    if format_name != "same":
        return FORMATS[resolve_format(format_name, None)].suffixes[0]
    text = str(source)
    own = Path(urlsplit(text).path if is_url(text) else text).suffix
    writable = any(own.lower() in row.suffixes for row in FORMATS.values())
    return own if writable else ".png"


def _name(stem: str, suffix: str, extension: str) -> str:
    """``stem + suffix + extension``, shortened to what file systems take: the cut part lives on as a hash."""
    name = f"{stem}{suffix}{extension}"
    if len(os.fsencode(name)) <= NAME_LIMIT_BYTES:
        return name
    tail = f"-{hashlib.sha256(os.fsencode(stem)).hexdigest()[:8]}{suffix}{extension}"
    room = NAME_LIMIT_BYTES - len(os.fsencode(tail))
    short = stem
    while len(os.fsencode(short)) > room:
        short = short[:-1]
    return short + tail


def _key(path: Path) -> str:
    """Equal for names that some file system holds for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", str(path)).casefold())


def _unique(path: Path, taken: set[str]) -> Path:
    """``path``, or the first of path-2, path-3 … that is free; taken from then on."""
    candidate, number = path, 1
    while _key(candidate) in taken:
        number += 1
        candidate = path.with_name(_name(f"{path.stem}-{number}", "", path.suffix))
    taken.add(_key(candidate))
    return candidate


def check_suffix(suffix: str) -> bool:
    """Whether --suffix can be part of a file name."""
    return bool(suffix) and not re.search(r"[/\\\x00]", suffix)


def refuse_own_input(job: Job) -> None:
    """Raises PhotoError when the target is the photo itself: originals are never written over."""
    if job.target is None or job.source == STDIN or is_url(job.source):
        return
    try:
        same = job.target.samefile(job.source)
    except OSError:
        return  # the target does not exist yet, or the source cannot be read: the reader will say so
    if same:
        raise PhotoError(
            f"{job.name} would be written over by its own result; give another -o, --output-dir or --suffix."
        )
