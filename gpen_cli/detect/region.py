"""A part of the photo that a user pointed at: what lies in it, and what is cut out to look at it closely. Pure geometry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpen_cli.data import Face

WINDOW_MARGIN = 0.5
"""Of the region's longer side, on each of its sides: boxes are drawn close around faces, and nets want to see the head."""


@dataclass(frozen=True)
class Region:
    """Where faces are wanted, in pixels of the upright photo. width and height are positive; it may leave the photo."""

    x: float
    y: float
    width: float
    height: float

    @property
    def side(self) -> float:
        """The longer one."""
        return max(self.width, self.height)


def lies_in(face: Face, region: Region) -> bool:
    """The middle of the face's box does, or half of the box."""
    x0, y0, x1, y1 = (float(value) for value in face.box)
    right, bottom = region.x + region.width, region.y + region.height
    if region.x <= (x0 + x1) / 2 <= right and region.y <= (y0 + y1) / 2 <= bottom:
        return True
    width, height = min(x1, right) - max(x0, region.x), min(y1, bottom) - max(y0, region.y)
    return width > 0 and height > 0 and width * height >= 0.5 * (x1 - x0) * (y1 - y0)


def window(region: Region, size: tuple[int, int]) -> tuple[slice, slice] | None:
    """(rows, columns) of a photo of ``size`` (width, height) that hold the region and a margin around it.

    None where the region itself has no pixel of the photo.
    """
    width, height = size
    if region.x >= width or region.y >= height or region.x + region.width <= 0 or region.y + region.height <= 0:
        return None
    margin = WINDOW_MARGIN * region.side
    columns = _part(region.x - margin, region.x + region.width + margin, width)
    return _part(region.y - margin, region.y + region.height + margin, height), columns


def _part(begin: float, end: float, length: int) -> slice:
    return slice(max(0, math.floor(begin)), min(length, math.ceil(end)))
