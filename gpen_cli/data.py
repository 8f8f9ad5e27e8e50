"""The records that flow through a run. All are frozen: a stage returns a new record, it never fills one in.

Frames: *photo* = pixels of the upright photo; *crop* = pixels of an aligned face crop; *canvas* = pixels of the output.
Pixel centres lie at whole numbers: the middle of the top left pixel is (0, 0). Points are (x, y), sizes (width, height).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

UInt8Image = npt.NDArray[np.uint8]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
PhotoPixels = npt.NDArray[Any]  # uint8 or uint16


@dataclass(frozen=True)
class Job:
    """One photo to do: where it comes from and where its result goes.

    ``source`` is a path, an http(s) URL or ``-`` (stdin); ``target`` is None for stdout.
    """

    source: str
    target: Path | None
    name: str
    """What the user sees in logs and reports: the path as given, or relative to the batch's input folder."""
    label: str = ""
    """Unique in the run and safe as a relative path without suffix: names what belongs to the photo (--save-faces)."""
    refusal: str | None = None
    """Why this photo cannot be done, when planning already knows; the run reports it as the photo's error."""


@dataclass(frozen=True)
class Metadata:
    """What travels with the picture besides pixels, as read from the file; writers decide what still holds.

    exif: raw EXIF block without the ``Exif\\0\\0`` prefix; xmp: the XMP packet; icc: the profile of the *output* pixels
    (None = sRGB assumed); dpi: (x, y) in dots per inch.
    """

    exif: bytes | None = None
    xmp: bytes | None = None
    icc: bytes | None = None
    dpi: tuple[float, float] | None = None
    captions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Titles, keywords … that the file holds in another form than XMP, by XMP property (``photos.captions``)."""
    digest: str | None = None
    """Stands for the photo's file in what is made from it (``photos.metadata.digest_of``)."""


@dataclass(frozen=True)
class SourceFormat:
    """How the file was stored. name: Pillow's format name, e.g. ``JPEG``; quantization: the JPEG's tables."""

    name: str
    quantization: dict[int, list[int]] | None = None


@dataclass(frozen=True)
class Photo:
    """A picture, upright, in memory.

    pixels: (H, W, 3) uint8 or uint16, RGB, in the photo's own colour space.
    shown:  (H, W, 3) uint8, sRGB view of ``pixels`` for the nets. May be the same array as ``pixels``.
    alpha:  (H, W) of the pixels' type, or None.
    gray:   the file held one channel (the three channels of ``pixels`` are equal); the output is gray again.
    warnings: sentences for log and report (e.g. a dropped gain map).
    """

    pixels: PhotoPixels
    shown: UInt8Image
    alpha: PhotoPixels | None = None
    gray: bool = False
    metadata: Metadata = field(default_factory=Metadata)
    source_format: SourceFormat | None = None
    warnings: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return int(self.pixels.shape[1]), int(self.pixels.shape[0])


@dataclass(frozen=True)
class Face:
    """A face as the detector found it. box: (4,) float32 x0, y0, x1, y1; landmarks: (5, 2) float32: image-left eye,
    image-right eye, nose, image-left and image-right mouth corner; photo frame. score: 0..1."""

    box: Float32Array
    landmarks: Float32Array
    score: float

    @property
    def side(self) -> float:
        """Longer side of the box, in photo pixels."""
        return float(max(self.box[2] - self.box[0], self.box[3] - self.box[1]))


@dataclass(frozen=True)
class AlignedFace:
    """A crop ready for a net of its size. pixels: (S, S, 3) uint8 sRGB; crop_from_photo: (2, 3) float64.

    own_detail: 0..1, how far the photo's own face is sharper than this crop can hold (``sharpness.own_detail``).
    """

    face: Face
    net: str
    pixels: UInt8Image
    crop_from_photo: Float64Array
    own_detail: float = 0.0


@dataclass(frozen=True)
class FaceReport:
    """What was decided about one face.

    decision: ``restored`` | ``skipped`` (not wanted) | ``kept`` (the photo's own is better) | ``planned`` (--dry-run).
    """

    face: Face
    decision: str
    net: str | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How one job ended. ``error`` is one sentence or None; seconds: stage name -> seconds."""

    job: Job
    status: str
    """``done`` | ``no_face`` (done, nothing to restore) | ``skipped`` | ``failed``."""
    faces: tuple[FaceReport, ...] = ()
    size: tuple[int, int] | None = None
    scale: float | None = None
    output_bytes: int | None = None
    output_size: tuple[int, int] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    error_code: int = 0
    warnings: tuple[str, ...] = ()
    source_stamp: tuple[int, int] | None = None
    """The source file's size and mtime in ns, as they were before it was read."""
    output_sha256: str | None = None
    payload: bytes | None = None
    """The encoded picture when the job has no target (stdout)."""
