"""Flags that cannot both be meant, or of which one would do nothing: refused before any work, never passed over in silence."""

from __future__ import annotations

from pathlib import Path

from gpen_cli.cli.flags import SharedFlags
from gpen_cli.errors import UsageError
from gpen_cli.photos.formats import FORMATS, is_format, resolve_format

STDOUT = "-"


def refuse_contradictions(shared: SharedFlags, *, file: str | None = None, in_place: bool = False) -> None:
    """Raises UsageError for what the flags say twice, or in vain. file: what -o names, ``-`` for standard output."""
    if shared.quiet and shared.log_level != "auto":
        raise UsageError(f"--quiet and --log-level {shared.log_level} exclude each other; give one of them.")
    if shared.weights is not None and shared.model != "auto":
        raise UsageError("--model and --weights both say which net; give one of them.")
    if shared.compare and file == STDOUT:
        raise UsageError("--compare has no place beside standard output; give -o FILE.")
    _refuse_vain_face_flags(shared)
    _refuse_vain_quality(shared, file, in_place=in_place)
    for flag, path in (("--report", shared.report), ("--log-file", shared.log_file)):
        _refuse_as_text(flag, path, file)


def _refuse_vain_face_flags(shared: SharedFlags) -> None:
    if not shared.aligned:
        return
    given = {
        "--only-largest": shared.only_largest,
        "--only-center": shared.only_center,
        "--try-rotations": shared.try_rotations,
        "--max-face": shared.max_face is not None,
        "--max-faces": shared.max_faces is not None,
    }
    vain = [flag for flag, is_given in given.items() if is_given]
    if vain:
        raise UsageError(f"--aligned looks for no faces, so {' and '.join(vain)} would do nothing; leave one out.")


def _refuse_vain_quality(shared: SharedFlags, file: str | None, *, in_place: bool) -> None:
    """What the result's format is decides; ``same`` is not known yet."""
    if shared.quality is None or in_place or shared.format == "same":
        return
    name = shared.format or "png"
    if shared.format is None and file is not None and file != STDOUT:
        suffix = Path(file).suffix
        if not is_format(suffix):
            return  # a folder, or a name that is refused elsewhere
        name = resolve_format(suffix, None)
    row = FORMATS.get(name)
    if row is not None and row.default_quality is None:
        raise UsageError(
            f"--quality is for JPEG and WebP, and the result is a {row.label}; give --format jpg, or leave it out."
        )


def _refuse_as_text(flag: str, path: Path | None, file: str | None) -> None:
    if path is None:
        return
    if str(path) == STDOUT:
        raise UsageError(f"{flag} - : standard output is for the results' paths; name a file.")
    if file is not None and path.absolute() == Path(file).absolute():
        raise UsageError(f"{flag} {path} is the result's own name; give another.")
