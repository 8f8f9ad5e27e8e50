"""What a judge looks at: a square of the face, shrunk to the judge's size where it is larger."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from gpen_cli.geometry import template_points
from gpen_cli.train.config import VIEWS
from gpen_cli.train.discriminator import shrink

Square = tuple[int, int, int]
"""Row and column of the corner, and side, in pixels of the crop."""

_EYE_MOVE = 1 / 32
"""Of the crop's side."""
_INNER_ROW, _INNER_COLUMN = 11 / 32, 1 / 4


def draw_squares(side: int, size: int, rng: np.random.Generator) -> dict[str, Square]:
    """For each view, what a judge of ``size`` px sees of faces of ``side`` px. Faces no larger than the judge: all of them."""
    if side <= size:
        return dict.fromkeys(VIEWS, (0, 0, side))
    random = rng.integers(0, side - size + 1, 2)
    column, row = template_points("gpen", side)[rng.integers(2)]
    move = round(side * _EYE_MOVE)
    eye = np.round([row, column]) - size // 2 + rng.integers(-move, move + 1, 2)
    eye = np.clip(eye, 0, side - size)
    return {
        "random": (int(random[0]), int(random[1]), size),
        "eye": (int(eye[0]), int(eye[1]), size),
        "inner": (round(side * _INNER_ROW), round(side * _INNER_COLUMN), side // 2),
        "whole": (0, 0, side),
    }


def look(faces: Tensor, square: Square, size: int) -> Tensor:
    """(N, 3, S, S) -> (N, 3, size, size): what lies in ``square``, whose side is ``size`` times a power of two."""
    row, column, side = square
    return shrink(faces[:, :, row : row + side, column : column + side], size)
