"""Pictures as the bytes of a file, made in memory."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """The file that Pillow writes; kind: Pillow's name of the format, options: what that takes."""
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()
