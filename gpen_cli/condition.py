"""What makes a face hard to restore: turned away, too dark or bright, covered, very small. Each is a warning with its advice.

Thresholds were chosen by eye on shared/faces/whole (docs/limits.md); a warning never changes a pixel.
"""

from __future__ import annotations

import numpy as np

from gpen_cli.covered import covering
from gpen_cli.data import AlignedFace, Face
from gpen_cli.restore_crop import LUMA

VERY_SMALL = 24
"""Longer side of the box in photo pixels: below, eyes are a pixel or two and the net draws likely ones."""
TURNED = 0.42
"""Nose's distance from the eyes' middle, along the eye line, in eye distances: about 45 degrees of turn."""
DARK, BRIGHT = 25.0, 230.0
"""Median luma of the face (0..255) beyond which little of it was recorded."""
BURNT = 0.25
"""Share of the face's pixels at or above luma 250."""
_ROWS, _COLUMNS = (0.25, 0.80), (0.28, 0.72)
"""The face without hair, in shares of GPEN's crop."""


def face_warnings(face: AlignedFace) -> tuple[str, ...]:
    """Sentences about this face; empty for a good one."""
    found = []
    if face.face.side < VERY_SMALL:
        found.append(f"very small ({face.face.side:.0f} px): its features are drawn, not restored; scan it larger")
    if turn_of(face.face) > TURNED:
        found.append("turned far to the side: the hidden half is guessed; --fidelity-weight 0.5 is safer")
    exposure = _exposure(face)
    found.extend(exposure)
    if not exposure and turn_of(face.face) <= TURNED and face.face.side >= VERY_SMALL:  # of others little can be told
        part = covering(face.pixels)
        if part is not None:
            found.append(
                f"{part} may be covered (glasses, a mask, a hand, hair): look there; --fidelity-weight 0.5 is safer"
            )
    return tuple(found)


def turn_of(face: Face) -> float:
    """How far the nose lies from the middle of the eyes, along the line through them, in eye distances. Any roll."""
    left, right, nose = (face.landmarks[index].astype(np.float64) for index in range(3))
    across = right - left
    distance = float(np.hypot(*across))
    if distance == 0.0:
        return 0.0
    return abs(float((nose - (left + right) / 2) @ across)) / distance**2


def _exposure(face: AlignedFace) -> list[str]:
    size = face.pixels.shape[0]
    rows, columns = (slice(int(low * size), int(high * size)) for low, high in (_ROWS, _COLUMNS))
    luma = face.pixels[rows, columns].astype(np.float32) @ LUMA
    median = float(np.median(luma))
    if median < DARK:
        return ["almost black: little was recorded; brighten the photo first"]
    if median > BRIGHT or float((luma >= 250).mean()) > BURNT:
        return ["burnt out: what is white holds nothing to restore; use a darker scan or copy"]
    return []
