"""The user's limits on faces: how large, how many, which one. Photo frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpen_cli.data import Face
from gpen_cli.options import FaceOptions

Rejected = list[tuple[Face, str]]


def clip(face: Face, size: tuple[int, int]) -> Face:
    """The face with its box cut to a photo of ``size`` (width, height): x in 0..width-1, y in 0..height-1.

    Landmarks stay where they are, outside the photo too: alignment needs them there.
    """
    return replace(face, box=np.clip(face.box, 0, np.array([size[0] - 1, size[1] - 1] * 2, np.float32)))


def apply_limits(faces: list[Face], size: tuple[int, int], options: FaceOptions) -> tuple[list[Face], Rejected]:
    """(faces to keep, faces not to keep with the reason). Boxes come unclipped and leave clipped to ``size``.

    Sizes are those of the clipped box, and are looked at first: a face too small to keep is no candidate for the
    nearest or the largest.
    """
    kept: list[Face] = []
    rejected: Rejected = []
    for face in faces:
        clipped = clip(face, size)
        reason = _place_fault(face, size) or _size_fault(clipped, options)
        if reason is None:
            kept.append(clipped)
        else:
            rejected.append((clipped, reason))
    kept.sort(key=lambda face: (-face.side, *reading_order(face)))
    if options.only_center:
        kept.sort(key=lambda face: _distance_to_centre(face, size))  # stable: of two equally near the larger
    for count, reason in _counts(options):
        rejected += [(face, reason) for face in kept[count:]]
        kept = kept[:count]
    return kept, rejected


def reading_order(face: Face) -> tuple[float, ...]:
    """Sort key: from left to right, and the same order for the same faces whatever found them first."""
    return (*(float(coordinate) for coordinate in face.box), -face.score)


def _counts(options: FaceOptions) -> list[tuple[int, str]]:
    counts: list[tuple[int, str]] = []
    if options.only_largest:
        counts.append((1, "another face is larger (--only-largest)"))
    if options.only_center:
        counts.append((1, "another face is nearer to the photo's centre (--only-center)"))
    if options.max_faces is not None:
        counts.append((options.max_faces, f"{options.max_faces} larger faces are enough (--max-faces)"))
    return counts


def _place_fault(face: Face, size: tuple[int, int]) -> str | None:
    """A face with its middle outside the photo was seen by half at most; its eyes would have to be invented."""
    x, y = (face.box[:2] + face.box[2:]) / 2
    if 0 <= x <= size[0] - 1 and 0 <= y <= size[1] - 1:
        return None
    return "most of it lies outside the photo"


def _size_fault(face: Face, options: FaceOptions) -> str | None:
    if face.side < options.min_face:
        return f"it is {face.side:.0f} px large, under --min-face {options.min_face}"
    if options.max_face is not None and face.side > options.max_face:
        return f"it is {face.side:.0f} px large, over --max-face {options.max_face}"
    return None


def _distance_to_centre(face: Face, size: tuple[int, int]) -> float:
    x, y = (face.box[:2] + face.box[2:]) / 2
    return float(np.hypot(x - (size[0] - 1) / 2, y - (size[1] - 1) / 2))
