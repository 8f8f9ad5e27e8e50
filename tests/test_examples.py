"""The example pictures: what the script makes, each with its faces, and the embedded net brings them nearer to the originals."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from gpen_cli import Restorer
from gpen_cli.options import NetOptions, Options
from gpen_cli.restorer import Restored

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FACES = {"astronaut": 1, "hopper": 1, "both": 2}
MOST_BYTES = 100_000
LEAST_GAIN = 0.1
"""dB of PSNR towards the original, in each face; the fourth version of the net gains 0.4 to 0.8."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_examples", EXAMPLES / "make_examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def restored() -> dict[str, Restored]:
    options = Options(net=NetOptions(model="gpen-open-256", precision="fp32"))
    with Restorer(options) as restorer:
        return {name: restorer.restore_with_faces(picture(name)) for name in FACES}


def picture(name: str) -> np.ndarray:
    return np.asarray(Image.open(EXAMPLES / f"{name}.jpg").convert("RGB"))


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    error = float(np.mean(np.square(one.astype(np.float64) - other)))
    return 10 * float(np.log10(255.0**2 / max(error, 1e-9)))


@pytest.mark.parametrize("name", FACES)
def test_a_committed_picture_is_what_the_script_makes(script: ModuleType, name: str) -> None:
    file = EXAMPLES / f"{name}.jpg"
    assert file.stat().st_size < MOST_BYTES
    example = script.EXAMPLES[name]
    made = Image.open(io.BytesIO(script.degrade(example.clean(), example.degradation)))
    # Not byte for byte: another libjpeg or OpenCV may round otherwise.
    assert psnr(np.asarray(made.convert("RGB")), picture(name)) > 40


@pytest.mark.parametrize(("name", "count"), FACES.items())
def test_every_face_is_found_and_restored(restored: dict[str, Restored], name: str, count: int) -> None:
    assert [report.decision for report in restored[name].faces] == ["restored"] * count


@pytest.mark.parametrize("name", FACES)
def test_each_face_comes_nearer_to_the_original(script: ModuleType, restored: dict[str, Restored], name: str) -> None:
    done = restored[name]
    size = done.pixels.shape[1], done.pixels.shape[0]
    original = script.resized(script.EXAMPLES[name].clean(), size)
    enlarged = script.resized(picture(name), size)
    for report in done.faces:
        x0, y0, x1, y1 = (round(float(edge) * done.scale) for edge in report.face.box)
        face = np.s_[y0:y1, x0:x1]
        assert psnr(done.pixels[face], original[face]) > psnr(enlarged[face], original[face]) + LEAST_GAIN


def test_the_readme_names_every_picture() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(file.name in text for file in EXAMPLES.glob("*.jpg"))
    assert "public domain" in text
