"""How much a run will write, guessed from some of its photos, so that a disk too small is known before the night, not in it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from gpen_cli.data import Job
from gpen_cli.errors import PhotoError
from gpen_cli.options import Options
from gpen_cli.photos.opening import DECODE_FAILURES, identify, open_picture
from gpen_cli.upscale import canvas_size, choose_scale

SAMPLE = 24
"""Photos looked at, spread over the run."""
SAMPLE_BYTES = 64 << 20
"""Larger files are not read for a guess."""
BYTES_PER_PIXEL = {".png": 1.3, ".tiff": 1.4, ".tif": 1.4, ".webp": 0.2, ".bmp": 3.0}
"""Of the output, at its own size: means over shared/faces/whole and old (PNG 1.26, enlarged twice 0.98; JPEG 0.32 and 0.23;
WebP 0.21; TIFF 1.40 and 1.10)."""
JPEG_BYTES_PER_PIXEL = 0.32


def space_warning(jobs: Sequence[Job], options: Options) -> str | None:
    """A sentence when the results will hardly fit where they go; None when they do, or when nothing can be said."""
    targets = [job.target for job in jobs if job.target is not None]
    needed = bytes_needed(jobs, options)
    if not targets or needed is None:
        return None
    folder = targets[0].parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if needed < free:
        return None
    return (
        f"about {_size(needed)} will be written to {folder}, where {_size(free)} are free: the run will stop when the disk "
        "is full (what is done stays). Free some space, name another folder, or give --format jpg."
    )


def bytes_needed(jobs: Sequence[Job], options: Options) -> float | None:
    """The bytes of all results, from the sizes of up to ``SAMPLE`` photos; None when none of those can be read."""
    step = max(1, -(-len(jobs) // SAMPLE))
    found = [_bytes_of(job, options) for job in jobs[::step]]
    known = [size for size in found if size is not None]
    return len(jobs) * sum(known) / len(known) if known else None


def _bytes_of(job: Job, options: Options) -> float | None:
    try:
        path = Path(job.source)
        if job.target is None or path.stat().st_size > SAMPLE_BYTES:
            return None
        data = path.read_bytes()
        kind = identify(data, job.name)
        if kind == "HEIF":
            return None
        width, height = canvas_size(size := open_picture(data, kind).size, choose_scale(options, size))
    except (PhotoError, OSError, ValueError, *DECODE_FAILURES):
        return None  # the run itself will say what is wrong with it
    pixels = width * height
    result = pixels * BYTES_PER_PIXEL.get(job.target.suffix.lower(), JPEG_BYTES_PER_PIXEL)
    return result + (2 * pixels * BYTES_PER_PIXEL[".png"] if options.run.compare else 0.0)


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
