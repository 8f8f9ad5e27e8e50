"""Where results go, and what they may not destroy: checks before the work, encoding and writing after it.

The original is never changed, with one exception that is asked for: ``--in-place`` puts the result under the photo's own
name, after the original was put aside as ``<name>.orig``, which is never written over.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpen_cli import compose
from gpen_cli.data import Job, Outcome, Photo, UInt8Image
from gpen_cli.errors import OutputError, PhotoError
from gpen_cli.extras import compare_path, require_replaceable, save_compare, save_face_pictures, save_mask
from gpen_cli.naming import refuse_own_input
from gpen_cli.options import Options
from gpen_cli.paths import exists, is_dir, is_file, same_file
from gpen_cli.photos.formats import FORMATS, is_format, resolve_format
from gpen_cli.photos.metadata import digest_of, is_our_output, made_from
from gpen_cli.photos.temporary import temporary_beside
from gpen_cli.photos.write import Encoded, encode_photo, write_atomically
from gpen_cli.restoration import Crop, Restoration
from gpen_cli.sources import ORIGINAL_SUFFIX


class Record(Protocol):
    """What remembers results that cannot carry our mark (BMP, --strip-metadata); the ledger is one. Any thread."""

    def announce(self, job: Job, sha256: str) -> None:
        """Called before the result takes its name. Raises OutputError."""
        ...

    def made(self, job: Job) -> bool:
        """Whether the file under the job's target is a result of its photo that was announced earlier, to the byte."""
        ...

    def belongs_to(self, job: Job) -> bool:
        """Whether the result under the job's target was made from the job's photo, as it is now or was."""
        ...


@dataclass(frozen=True)
class Delivered:
    """What was written. size: in bytes; payload: the picture itself, when it goes to standard output."""

    size: int
    sha256: str
    warnings: tuple[str, ...]
    payload: bytes | None


def check_target(job: Job, options: Options, record: Record | None = None) -> Outcome | None:
    """Before the work: raises PhotoError where the result would destroy something; an outcome where nothing is to do."""
    if job.refusal is not None:
        raise PhotoError(job.refusal)
    target, run = job.target, options.run
    if run.debug_mask is not None:
        if target is not None and run.debug_mask.absolute() == target.absolute():
            raise PhotoError(f"--debug-mask {run.debug_mask} is the result's own name; give another.")
        if same_file(run.debug_mask, Path(job.source)):
            raise PhotoError(f"--debug-mask {run.debug_mask} is the photo itself; give another name.")
        if not run.overwrite:
            require_replaceable(run.debug_mask)
    if target is None or run.dry_run:
        return None
    if run.in_place:
        return _check_in_place(job, Path(job.source), record)
    refuse_own_input(job)
    if run.compare and not run.overwrite:
        require_replaceable(compare_path(target))
    if is_dir(target):
        raise PhotoError(f"{job.name}: the result's name {target} is taken by a folder; give another -o.")
    if exists(target) and not is_file(target):
        raise PhotoError(f"{job.name}: {target} is a pipe or device; give a file, or -o - to pipe.")
    if not exists(target):
        return None
    if run.skip_existing:
        return Outcome(job, "skipped", warnings=(f"{target} exists",))
    if not run.overwrite:
        _require_own(job, target, record)
    return None


def _require_own(job: Job, target: Path, record: Record | None) -> None:
    """Raises PhotoError unless the file under the result's name is an earlier result of this photo."""
    if record is not None and record.made(job):
        return
    require_replaceable(target)
    source = Path(job.source)
    if (record is not None and record.belongs_to(job)) or _same_folder(source, target):
        return
    try:
        origin = made_from(target.read_bytes())
        if origin is None or not is_file(source) or origin == digest_of(source.read_bytes()):
            return
    except OSError:
        return  # reading the photo, or writing the result, will say what is wrong
    raise PhotoError(
        f"{target} is the result of another photo than {job.name} (or of an earlier state of it), so it stays; give --overwrite, "
        "or another name or folder."
    )


def _same_folder(source: Path, target: Path) -> bool:
    """Beside each other, names alone tell photos apart."""
    return is_file(source) and same_file(source.parent, target.parent)


def _check_in_place(job: Job, path: Path, record: Record | None) -> Outcome | None:
    if not is_file(path):
        return None  # reading it will say what is wrong
    if not any(path.suffix.lower() in row.suffixes for row in FORMATS.values()):
        raise PhotoError(
            f"{job.name} cannot be written back as {path.suffix or 'a file without suffix'}; use another folder."
        )
    if is_our_output(path.read_bytes()) or (record is not None and record.made(job)):
        done = exists(original_path(path))
        reason = "was restored in place already" if done else "is a picture that gpen made; it is left as it is"
        return Outcome(job, "skipped", warnings=(f"{job.name} {reason}",))
    original = original_path(path)
    if exists(original) and not filecmp.cmp(path, original, shallow=False):
        raise PhotoError(
            f"{job.name}: {original.name} exists and is another picture; it is never written over. Move it away."
        )
    return None


def original_path(path: Path) -> Path:
    """Where ``--in-place`` keeps the original."""
    return path.with_name(path.name + ORIGINAL_SUFFIX)


def deliver(
    job: Job,
    photo: Photo,
    crops: Sequence[Crop],
    done: Restoration,
    options: Options,
    *,
    stamp: tuple[int, int] | None,
    record: Record | None = None,
) -> Delivered:
    """Encodes and writes the result and what was asked for beside it. Raises PhotoError, OutputError.

    stamp: the source's size and mtime in ns, for --keep-mtime; None for what is no file.
    """
    encoded = _encode(job, photo, done, options)
    sha256 = hashlib.sha256(encoded.data).hexdigest()
    _write_extras(job, photo, crops, done, options)  # first: a photo whose extras fail has failed, and has no result
    if job.target is not None:
        if record is not None and not is_our_output(encoded.data):
            record.announce(job, sha256)
        own = _keep_original(job.target) if options.run.in_place else None
        write_atomically(job.target, encoded.data, like=own)
        if options.write.keep_mtime and stamp is not None:
            os.utime(job.target, ns=(stamp[1], stamp[1]))
    return Delivered(
        size=len(encoded.data),
        sha256=sha256,
        warnings=tuple(f"{job.name}: {text}" for text in encoded.warnings),
        payload=encoded.data if job.target is None else None,
    )


def _encode(job: Job, photo: Photo, done: Restoration, options: Options) -> Encoded:
    write = options.write
    wanted = write.format or "png"
    if job.target is not None and (is_format(job.target.suffix) or write.format is None):
        wanted = job.target.suffix
    if write.format == "same" or options.run.in_place:
        same = resolve_format("same", photo.source_format)
        # "same" also keeps a JPEG's own quantisation; a name that lies about its content is not carried on.
        if resolve_format(wanted, photo.source_format) == same:
            wanted = "same"
    try:
        return encode_photo(
            photo,
            done.pixels,
            done.alpha,
            format_name=wanted,
            quality=write.quality,
            strip_metadata=write.strip_metadata,
        )
    except PhotoError as error:
        raise PhotoError(f"{job.name}: {error}") from error


def _keep_original(path: Path) -> os.stat_result:
    """Puts the photo aside as ``<name>.orig``: a second name for the same file, or a copy where the disk has no links.

    Returns whose it is and who may read it: the result is as private.
    """
    original = original_path(path)
    try:
        own = path.stat()
        if exists(original):
            return own  # an earlier run was stopped just after this step; ``check_target`` has compared the two
        try:
            os.link(path, original)
        except OSError:
            copy = temporary_beside(original)
            shutil.copy2(path, copy)
            copy.rename(original)
    except OSError as error:
        raise OutputError(
            f"The original of {path} cannot be kept as {original.name}: {error.strerror or error}; nothing was changed. "
            "Free space or give yourself the right to write there, then run again, or name an OUTPUT folder."
        ) from error
    return own


def _write_extras(job: Job, photo: Photo, crops: Sequence[Crop], done: Restoration, options: Options) -> None:
    run = options.run
    if run.compare and job.target is not None:
        save_compare(job.target, photo, done)
    if run.save_faces is not None:
        pairs: list[tuple[UInt8Image, UInt8Image]] = [
            (crop.face.pixels, crop.restored) for crop in crops if crop.restored is not None
        ]
        save_face_pictures(run.save_faces, job.label, pairs, overwrite=run.overwrite)
    if run.debug_mask is not None:
        size = (done.pixels.shape[1], done.pixels.shape[0])
        save_mask(run.debug_mask, compose.mask_picture(photo, done.patches, size))
