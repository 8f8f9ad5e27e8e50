"""The contact sheet: faces by rule, not the best ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from gpen_cli.data import UInt8Image

EVERY = 5
"""Every so many faces one is shown, from the first on."""
CELL, GAP, CAPTION = 320, 4, 22


def save_sheet(file: Path, rows: Sequence[tuple[str, dict[str, UInt8Image]]]) -> None:
    """rows: (face's number, method -> (S, S, 3) uint8): one row a face, one column a method, each CELL px."""
    columns = list(rows[0][1])
    size = (CAPTION + len(columns) * (CELL + GAP), CAPTION + len(rows) * (CELL + GAP))
    sheet = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for column, method in enumerate(columns):
        left = CAPTION + column * (CELL + GAP)
        draw.text((left + CELL / 2, CAPTION / 2), method, fill="black", font=font, anchor="mm")
        for row, (_, pictures) in enumerate(rows):
            sheet.paste(Image.fromarray(_cell(pictures[method])), (left, CAPTION + row * (CELL + GAP)))
    for row, (face, _) in enumerate(rows):
        label = Image.new("RGB", (CELL, CAPTION), "white")
        ImageDraw.Draw(label).text((CELL / 2, CAPTION / 2), face, fill="black", font=font, anchor="mm")
        sheet.paste(label.rotate(90, expand=True), (0, CAPTION + row * (CELL + GAP)))
    file.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(file, "PNG")


def _cell(picture: UInt8Image) -> UInt8Image:
    how = cv2.INTER_AREA if picture.shape[0] > CELL else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(picture, (CELL, CELL), interpolation=how))
