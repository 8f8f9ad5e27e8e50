"""Makes the example pictures and the README's before and after: python examples/make_examples.py [--before-after]

The photos come with two packages (``pip install scikit-image matplotlib``, part of ``make setup``) and are works of the US
Government in the public domain; README.md here says more. Each is degraded once, with a fixed seed: blurred, shrunk, noised,
saved as JPEG. With --before-after, ``gpen enhance`` itself is run on the examples and docs/images/before_after.jpg is drawn.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

UInt8Image = npt.NDArray[np.uint8]

FOLDER = Path(__file__).resolve().parent
BEFORE_AFTER = FOLDER.parent / "docs" / "images" / "before_after.jpg"

PRINT_SIZE = (300, 350)
"""Width and height of each portrait on the page of ``both``, in pixels: there both heads are about equally large."""
PAGE_MARGIN = 30
PAPER = (226, 219, 205)

SHOWN_ENLARGED = 2
"""``gpen enhance`` doubles small pictures; the columns beside its result are enlarged as much."""
CELL = 360
LABEL_HEIGHT = 40
LABELS = (
    "Original (degraded for this example)",
    "Restored: gpen enhance,\nembedded net, default options",
    "Before it was degraded (for comparison)",
)
BEFORE_AFTER_QUALITY = 88


@dataclass(frozen=True)
class Degradation:
    """blur: Gaussian sigma, in pixels of the shrunk picture; shrink: factor; noise: standard deviation in levels, of the shrunk
    picture; quality: JPEG's."""

    blur: float
    shrink: float
    noise: float
    quality: int
    seed: int


@dataclass(frozen=True)
class Example:
    """clean: makes the picture before it is degraded, (H, W, 3) uint8 RGB; view: x0, y0, x1, y1 in its pixels, a square around
    a face, for the before and after, or None."""

    name: str
    clean: Callable[[], UInt8Image]
    degradation: Degradation
    view: tuple[int, int, int, int] | None = None

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.jpg"


def astronaut() -> UInt8Image:
    """Head and shoulders: (420, 360, 3)."""
    return _package_picture("skimage", "data/astronaut.png")[0:420, 40:400]


def hopper() -> UInt8Image:
    """The whole photo: (600, 512, 3)."""
    return _package_picture("matplotlib", "mpl-data/sample_data/grace_hopper.jpg")


def both() -> UInt8Image:
    """Both portraits side by side on paper, as on an album's page: (410, 690, 3)."""
    width, height = PRINT_SIZE
    prints = (
        _package_picture("skimage", "data/astronaut.png")[0:height, 75 : 75 + width],
        cv2.resize(hopper(), PRINT_SIZE, interpolation=cv2.INTER_AREA),
    )
    page = np.full((height + 2 * PAGE_MARGIN, 2 * width + 3 * PAGE_MARGIN, 3), PAPER, np.uint8)
    for place, portrait in enumerate(prints):
        x = PAGE_MARGIN + place * (width + PAGE_MARGIN)
        page[PAGE_MARGIN : PAGE_MARGIN + height, x : x + width] = portrait
    return page


EXAMPLES = {
    example.name: example
    for example in (
        Example("astronaut", astronaut, Degradation(1.2, 1.25, 7.0, 45, seed=1), view=(70, 0, 290, 220)),
        Example("hopper", hopper, Degradation(1.1, 2.3, 7.0, 50, seed=2), view=(90, 10, 440, 360)),
        Example("both", both, Degradation(1.2, 1.25, 7.0, 45, seed=3)),
    )
}


def _package_picture(package: str, relative: str) -> UInt8Image:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"The package {package} is not installed; run make setup.")
    return np.asarray(Image.open(Path(spec.origin).parent / relative).convert("RGB"))


def degrade(clean: UInt8Image, degradation: Degradation) -> bytes:
    """The JPEG file of the degraded picture."""
    height, width = clean.shape[:2]
    size = round(width / degradation.shrink), round(height / degradation.shrink)
    blurred = cv2.GaussianBlur(clean.astype(np.float32), (0, 0), degradation.blur * degradation.shrink)
    small = cv2.resize(blurred, size, interpolation=cv2.INTER_AREA)
    # RandomState's stream is frozen for all versions of NumPy, default_rng's is not.
    noisy = small + np.random.RandomState(degradation.seed).normal(0.0, degradation.noise, small.shape)
    file = io.BytesIO()
    Image.fromarray(np.clip(np.rint(noisy), 0, 255).astype(np.uint8)).save(
        file, "JPEG", quality=degradation.quality, optimize=True
    )
    return file.getvalue()


def make_examples(folder: Path) -> list[Path]:
    """Writes every example into ``folder``."""
    paths = []
    for example in EXAMPLES.values():
        path = folder / example.file.name
        path.write_bytes(degrade(example.clean(), example.degradation))
        paths.append(path)
    return paths


def resized(image: UInt8Image, size: tuple[int, int]) -> UInt8Image:
    """To ``size`` (width, height): averaged when it shrinks, else Lanczos, as ``gpen`` enlarges backgrounds."""
    shrinks = size[0] < image.shape[1]
    return np.asarray(
        cv2.resize(image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LANCZOS4), np.uint8
    )


def make_before_after(path: Path) -> None:
    """Runs the tool on the examples that have a view, and draws input, result and the undegraded photo at one scale."""
    shown = [example for example in EXAMPLES.values() if example.view is not None]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gpen_cli", "enhance", *(str(example.file) for example in shown)]
        subprocess.run([*command, "--model", "gpen-open-256", "--output-dir", folder], check=True)
        rows = [_row(example, Path(folder) / f"{example.name}_enhanced.png") for example in shown]
    table = np.vstack(rows)
    canvas = Image.new("RGB", (table.shape[1], LABEL_HEIGHT + table.shape[0]), "white")
    canvas.paste(Image.fromarray(table), (0, LABEL_HEIGHT))
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=15)
    for column, label in enumerate(LABELS):
        centre = column * CELL + CELL // 2, LABEL_HEIGHT // 2
        draw.multiline_text(centre, label, fill="black", font=font, anchor="mm", align="center", spacing=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.save(path, quality=BEFORE_AFTER_QUALITY, optimize=True)


def _row(example: Example, restored: Path) -> UInt8Image:
    assert example.view is not None
    clean = example.clean()
    degraded = np.asarray(Image.open(example.file).convert("RGB"))
    size = degraded.shape[1] * SHOWN_ENLARGED, degraded.shape[0] * SHOWN_ENLARGED
    factor = size[0] / clean.shape[1]
    x0, y0, x1, y1 = (round(edge * factor) for edge in example.view)
    pictures = (degraded, np.asarray(Image.open(restored).convert("RGB")), clean)
    cells = [resized(resized(picture, size)[y0:y1, x0:x1], (CELL, CELL)) for picture in pictures]
    return np.hstack(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before-after", action="store_true", help="also draw docs/images/before_after.jpg")
    arguments = parser.parse_args()
    for path in make_examples(FOLDER):
        print(path)
    if arguments.before_after:
        make_before_after(BEFORE_AFTER)
        print(BEFORE_AFTER)


if __name__ == "__main__":
    main()
