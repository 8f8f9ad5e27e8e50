"""What the benchmarks on portraits share: which pictures, and how they are degraded. Deterministic."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from gpen_cli.data import UInt8Image

SEED = 1
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


@dataclass(frozen=True)
class Degradation:
    """blur: Gaussian sigma in the unit the benchmark states; noise: standard deviation in levels; quality: JPEG's, or None."""

    name: str
    blur: float = 0.0
    noise: float = 0.0
    quality: int | None = None


def files_of(folder: Path | None) -> list[Path]:
    """The pictures of a folder, or the two that come with scikit-image and matplotlib."""
    if folder is not None:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    places = (("skimage", "data/astronaut.png"), ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"))
    files = []
    for package, relative in places:
        spec = find_spec(package)
        assert spec is not None, f"{package} is not installed; run make setup"
        assert spec.origin is not None
        files.append(Path(spec.origin).parent / relative)
    return files


def degraded(pixels: UInt8Image, how: Degradation, *, unit: float = 1.0) -> UInt8Image:
    """(H, W, 3) uint8 blurred, made noisy and compressed, in that order; ``unit``: pixels that a blur of 1 means."""
    image = pixels.astype(np.float32)
    if how.blur:
        image = cv2.GaussianBlur(image, (0, 0), how.blur * unit)
    if how.noise:
        image = image + np.random.RandomState(SEED).normal(0.0, how.noise, image.shape)
    result = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    return result if how.quality is None else through_jpeg(result, how.quality)


def through_jpeg(pixels: UInt8Image, quality: int) -> UInt8Image:
    """(H, W, 3) uint8, saved and opened again."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """dB between two arrays of levels up to 255, of equal shape; infinite where nothing differs."""
    error = float(np.mean(np.square(one.astype(np.float64) - other)))
    return float(10 * np.log10(255.0**2 / error)) if error else float("inf")
