"""Peak memory of one large photo with many faces: python benchmarks/memory.py [--megapixels 48] [--faces 30]

Resident memory at its peak, of ``gpen enhance`` on a photo made from the two package portraits, less that on a small photo (the
loaded nets and libraries). JPEG and PNG, as it is, and enlarged twice (12 megapixels, which become 48).
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from pipeline import gpen
from portraits import files_of


def make_photo(path: Path, megapixels: float, faces: int) -> None:
    """A 4:3 photo with so many blurred faces on a grid."""
    height = round(math.sqrt(megapixels * 1e6 * 3 / 4))
    width = height * 4 // 3
    canvas = np.full((height, width, 3), 128, np.uint8)
    portraits = [np.asarray(Image.open(item).convert("RGB"))[:480] for item in files_of(None)]
    columns = math.ceil(math.sqrt(faces * 4 / 3))
    step = width // columns
    for index in range(faces):
        side = round(step * 0.9)
        small = cv2.GaussianBlur(cv2.resize(portraits[index % 2], (side, side)), (0, 0), side / 150)
        top, left = index // columns * step, index % columns * step
        canvas[top : top + side, left : left + side] = small[: height - top]
    Image.fromarray(canvas).save(path, quality=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megapixels", type=float, default=48)
    parser.add_argument("--faces", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small, large, middle = (folder / f"{kind}.jpg" for kind in ("small", "large", "middle"))
        make_photo(small, 0.25, 1)
        make_photo(large, given.megapixels, given.faces)
        make_photo(middle, 12, given.faces)
        flags = ["--sharp-faces", "restore", "--compile", "never", "--log-level", "debug"]
        base = gpen(["enhance", str(small), "-o", str(folder / "s.jpg"), "--upscale", "1", *flags]).peak
        print(f"a small photo: {base / 2**20:.0f} MB\n\n| photo | MB above that |\n|---|---|")
        for photo, scale, suffix in (
            (large, "1", "jpg"),
            (large, "1", "png"),
            (middle, "2", "jpg"),
            (middle, "2", "png"),
        ):
            run = gpen(
                ["enhance", str(photo), "-o", str(folder / f"{photo.stem}{scale}.{suffix}"), "--upscale", scale, *flags]
            )
            size = given.megapixels if photo == large else 12
            print(f"| {size:g} megapixels, --upscale {scale}, {suffix} | {(run.peak - base) / 2**20:.0f} |", flush=True)


if __name__ == "__main__":
    main()
