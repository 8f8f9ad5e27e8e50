"""Pictures beside the result, for those who ask: original and result side by side, face crops, the mask."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from gpen_cli.data import Photo, UInt8Image
from gpen_cli.errors import PhotoError
from gpen_cli.paths import exists, is_file
from gpen_cli.photos.metadata import PROVENANCE, is_our_output
from gpen_cli.photos.write import make_folder, write_atomically
from gpen_cli.restoration import Restoration
from gpen_cli.upscale import enlarge

COMPARE_SUFFIX = "_compare"
_GAP = 8
_CAPTION_SHARE = 1 / 24


def compare_path(target: Path) -> Path:
    """Where the comparison of the result ``target`` goes."""
    return target.with_name(f"{target.stem}{COMPARE_SUFFIX}.png")


def require_replaceable(path: Path) -> None:
    """Raises PhotoError when ``path`` exists and gpen did not make it."""
    if not exists(path):
        return
    if not is_file(path):
        raise PhotoError(
            f"{path} is a pipe or device, no file that can be replaced; give another name, or -o - to pipe."
        )
    try:
        ours = is_our_output(path.read_bytes())
    except OSError:
        ours = False
    if not ours:
        raise PhotoError(
            f"{path} exists and is not known to be gpen's result of this photo, so it stays; give --overwrite, or another name."
        )


def save_compare(target: Path, photo: Photo, done: Restoration) -> None:
    """``<stem>_compare.png`` beside the result: the original at the result's size, and the result, captioned."""
    height, width = done.pixels.shape[:2]
    pictures = {"Original": enlarge(photo.pixels, (width, height)), "Restored": done.pixels}
    caption = max(14, round(width * _CAPTION_SHARE))
    sheet = Image.new("RGB", (2 * width + _GAP, height + 2 * caption), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(caption)
    for column, (text, pixels) in enumerate(pictures.items()):
        left = column * (width + _GAP)
        draw.text((left + width / 2, caption), text, fill="black", font=font, anchor="mm")
        sheet.paste(Image.fromarray(_eight_bit(pixels)), (left, 2 * caption))
    write_atomically(compare_path(target), _png(sheet, photo.metadata.icc))


def save_face_pictures(
    folder: Path, label: str, pairs: Sequence[tuple[UInt8Image, UInt8Image]], *, overwrite: bool
) -> None:
    """``<label>_face01_crop.png`` and ``_face01_restored.png`` … in ``folder``: what the net saw and what it answered."""
    for number, (crop, restored) in enumerate(pairs, start=1):
        stem = folder / f"{label}_face{number:02d}"
        make_folder(stem.parent)
        for kind, pixels in (("crop", crop), ("restored", restored)):
            path = stem.with_name(f"{stem.name}_{kind}.png")
            if not overwrite:
                require_replaceable(path)
            write_atomically(path, _png(Image.fromarray(pixels)))


def save_mask(file: Path, mask: UInt8Image) -> None:
    """The (H, W) mask as a gray PNG."""
    make_folder(file.parent)
    write_atomically(file, _png(Image.fromarray(mask)))


def _eight_bit(pixels: np.ndarray) -> UInt8Image:
    return pixels if pixels.dtype == np.uint8 else np.rint(pixels / 257).astype(np.uint8)


def _png(picture: Image.Image, icc: bytes | None = None) -> bytes:
    stream = io.BytesIO()
    provenance = PngInfo()
    provenance.add_text("Software", PROVENANCE)
    picture.save(stream, "PNG", compress_level=3, icc_profile=icc, pnginfo=provenance)
    return stream.getvalue()
