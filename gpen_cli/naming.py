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
from gpen_cli.paths import same_file
from gpen_cli.photos.formats import FORMATS, resolve_format
from gpen_cli.sources import STDIN, is_url, stem_of

SUFFIX = "_enhanced"
NAME_LIMIT_BYTES = 230
"""Longest name we give, in bytes. Most file systems take 255; the rest is for names built on it (``_face01_restored``)."""
SUFFIX_LIMIT_BYTES = 100


class _Names:
    """The names given so far. Two that differ only in letter case or Unicode form (which Windows and macOS hold for one
    name), or in how their folder is spelt, count as the same."""

    def __init__(self) -> None:
        self._tried: dict[str, int] = {}  # what is taken, with the last number tried behind it
        self._real_folders: dict[Path, str] = {}

    def _key(self, path: Path) -> str:
        folder = self._real_folders.get(path.parent)
        if folder is None:
            folder = self._real_folders[path.parent] = os.path.realpath(path.parent)
        return _key(Path(folder, path.name))

    def __contains__(self, path: Path) -> bool:
        return self._key(path) in self._tried

    def bar(self, path: Path) -> None:
        """No result may be called ``path``."""
        self._tried.setdefault(self._key(path), 1)

    def take(self, path: Path, extension: str) -> Path:
        """``path``, which ends in ``extension``, or the first of path-2, path-3 … that is free; taken from then on."""
        key = self._key(path)
        candidate, number = path, self._tried.get(key, 1)
        while candidate in self:
            number += 1
            candidate = path.with_name(_name(path.name.removesuffix(extension), f"-{number}", extension))
        self.bar(candidate)
        self._tried[key] = number
        return candidate


def plan_batch(
    relatives: Sequence[Path],
    source: Path,
    output: Path,
    *,
    suffix: str,
    format_name: str | None,
    earlier: Sequence[Job] = (),
) -> list[Job]:
    """A job a photo: OUTPUT/<relative folder>/<stem><suffix>.<png, or what --format says>, unique even where letter case
    or Unicode form is all that differs, and never the name of a photo of the run or of a folder of results.

    earlier: jobs of the same run that were planned before (--watch); their names are theirs."""
    wanted = [
        relative.with_name(_name(relative.stem, suffix, _extension(source / relative, format_name)))
        for relative in relatives
    ]
    counts = Counter(_key(path) for path in wanted)
    names, labels = _Names(), _Names()
    for relative in relatives:
        names.bar(source / relative)
        for folder in relative.parents:
            names.bar(output / folder)
    for job in earlier:
        labels.bar(Path(job.label))
        if job.target is not None:
            names.bar(job.target)
    jobs = []
    for relative, path in zip(relatives, wanted, strict=True):
        if counts[_key(path)] > 1 or output / path in names:
            # a.jpg and a.png: the source's suffix goes into the name of both.
            path = relative.with_name(_name(relative.name, suffix, path.suffix))
        target = names.take(output / path, path.suffix)
        label = labels.take(target.relative_to(output).with_suffix(""), "")
        jobs.append(Job(str(source / relative), target, str(relative), label=str(label)))
    return jobs


def plan_enhance(
    sources: Sequence[str], *, output: Path | None, output_dir: Path | None, suffix: str, format_name: str | None
) -> list[Job]:
    """A job an input of ``gpen enhance``. output: the one result's path; output_dir: a folder for all results; neither:
    beside each photo (a URL's result in the working folder). Standard input without either goes to standard output."""
    jobs = []
    names, labels = _Names(), _Names()
    for source in sources:
        if not _is_remote(source):
            names.bar(Path(source))
    for source in dict.fromkeys(sources):
        label = str(labels.take(Path(_name(stem_of(source), "", "")), ""))
        if output is not None:
            target: Path | None = output
        elif source == STDIN and output_dir is None:
            target = None
        else:
            folder = output_dir if output_dir is not None else Path() if _is_remote(source) else Path(source).parent
            path = folder / _name(stem_of(source), suffix, _extension(source, format_name))
            if path in names:
                path = folder / _name(_full_name(source), suffix, path.suffix)
            target = names.take(path, path.suffix)
        jobs.append(Job(source, target, source, label=label))
    return jobs


def _is_remote(source: str) -> bool:
    return source == STDIN or is_url(source)


def _full_name(source: str) -> str:
    return stem_of(source) if _is_remote(source) else Path(source).name


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
    short = stem
    while short and len(os.fsencode(short + tail)) > NAME_LIMIT_BYTES:
        short = short[:-1]
    return short + tail


def _key(path: Path) -> str:
    """Equal for names that some file system holds for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", str(path)).casefold())


def check_suffix(suffix: str) -> bool:
    """Whether --suffix can be part of a file name."""
    return bool(suffix) and not re.search(r"[/\\\x00]", suffix) and len(os.fsencode(suffix)) <= SUFFIX_LIMIT_BYTES


def plan_in_place(relatives: Sequence[Path], source: Path) -> list[Job]:
    """A job a photo whose result takes the photo's own name (--in-place)."""
    return [
        Job(str(source / relative), source / relative, str(relative), label=str(relative.with_suffix("")))
        for relative in relatives
    ]


def refuse_own_input(job: Job) -> None:
    """Raises PhotoError when the target is the photo itself: originals are never written over."""
    if job.target is None or _is_remote(job.source):
        return
    if same_file(job.target, Path(job.source)):  # what cannot be seen, the reader will tell
        raise PhotoError(
            f"{job.name} would be written over by its own result; give another -o, --output-dir or --suffix."
        )
