"""index.csv: what is known of each crop of a folder. ``gpen train prepare`` writes one; training reads any with these columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpen_cli.errors import UsageError
from gpen_cli.paths import exists, is_file
from gpen_cli.photos.write import write_atomically

INDEX_NAME = "index.csv"


@dataclass(frozen=True)
class IndexRow:
    """One crop. source: where it comes from ("" unknown); confidence: a letter for how sure its licence is.

    pad: pixels at left, top, right, bottom of the crop as filed that show no photo.
    """

    source: str = ""
    confidence: str = ""
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)


def find_index(folder: Path) -> Path | None:
    """The nearest ``index.csv`` with a column ``file``, in ``folder`` or above it."""
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        path = place / INDEX_NAME
        if is_file(path) and _is_index(path):
            return path
    return None


def _is_index(path: Path) -> bool:
    """Whether a file found by chance, maybe far above the crops, is one of ours."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            return "file" in next(csv.reader(stream), [])
    except (OSError, csv.Error):
        return False


def read_index(path: Path) -> Mapping[Path, IndexRow]:
    """Every row by its file's resolved path; ``file`` is relative to the index's folder.

    Raises UsageError: cannot be read, no column ``file``, a padding that is no whole number of 0 or more.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            rows = csv.DictReader(stream)
            if "file" not in (rows.fieldnames or []):
                raise UsageError(f"The index {path} has no column 'file'; see docs/training_data.md for its columns.")
            folder = path.resolve().parent
            return {
                (folder / row["file"]).resolve(): _row(row, f"{path}, line {rows.line_num}")
                for row in rows
                if row["file"]
            }
    except (OSError, csv.Error) as error:
        raise UsageError(f"The index {path} cannot be read: {error}; write it anew with gpen train prepare.") from error


def _row(row: Mapping[str, str | None], place: str) -> IndexRow:
    left, top, right, bottom = (_padding(row, name, place) for name in ("pad_l", "pad_t", "pad_r", "pad_b"))
    return IndexRow(row.get("source") or "", row.get("confidence") or "", (left, top, right, bottom))


def _padding(row: Mapping[str, str | None], name: str, place: str) -> int:
    text = row.get(name) or "0"
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{place}: {name} is {text!r}; it must be a whole number of pixels, 0 or more.")
    return int(text)


COLUMNS = (
    "file",
    "source",
    "size_class",
    "sharpness",
    "split",
    "person",
    "licence",
    "confidence",
    "scale",
    "outside",
    "pad_l",
    "pad_t",
    "pad_r",
    "pad_b",
    "yaw",
    "roll",
    "landmarks",
    "photo",
)
"""What ``gpen train prepare`` writes, in this order; docs/training_data.md says what each means."""


def write_index(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Replaces ``path`` in one step. Raises OutputError, PhotoError."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode("utf-8", "surrogateescape"))


def files_of_own_index(path: Path) -> list[str]:
    """``file`` of every row of an index that ``gpen train prepare`` wrote; none when there is no index.

    Raises UsageError when somebody else's lies there: it must not be replaced.
    """
    if not exists(path):
        return []
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            rows = csv.DictReader(stream)
            if tuple(rows.fieldnames or ()) == COLUMNS:
                return [row["file"] for row in rows]
    except (OSError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read: {error}; give another folder to write to.") from error
    raise UsageError(f"{path} was not written by gpen train prepare and stays; give another folder to write to.")
