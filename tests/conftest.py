"""Shared fixtures: real faces that come with packages, so that no test needs a network or a file of ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def _package_file(package: str, relative: str) -> Path:
    from importlib.util import find_spec

    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed; run make setup"
    assert spec.origin is not None
    return Path(spec.origin).parent / relative


@pytest.fixture(scope="session")
def astronaut_file() -> Path:
    """512x512 PNG with one face about 100 px wide (NASA, public domain; scikit-image)."""
    return _package_file("skimage", "data/astronaut.png")


@pytest.fixture(scope="session")
def hopper_file() -> Path:
    """512x600 JPEG with one face about 180 px wide (US Navy, public domain; matplotlib)."""
    return _package_file("matplotlib", "mpl-data/sample_data/grace_hopper.jpg")


@pytest.fixture(scope="session")
def astronaut(astronaut_file: Path) -> np.ndarray:
    """(512, 512, 3) uint8 RGB."""
    return np.asarray(Image.open(astronaut_file).convert("RGB"))


@pytest.fixture
def photo(tmp_path: Path, astronaut: np.ndarray) -> Path:
    """in/photo.jpg, 240x240, one face, a little degraded: small, so that a run is quick; its folder holds nothing else."""
    path = tmp_path / "in" / "photo.jpg"
    path.parent.mkdir()
    Image.fromarray(astronaut[:300, 80:380]).resize((240, 240)).save(path, quality=40)
    return path


@pytest.fixture(scope="session")
def hopper(hopper_file: Path) -> np.ndarray:
    """(600, 512, 3) uint8 RGB."""
    return np.asarray(Image.open(hopper_file).convert("RGB"))


@pytest.fixture(scope="module")
def small(astronaut: np.ndarray) -> np.ndarray:
    """(100, 140, 3) uint8 of a face: neither square nor a multiple of a JPEG block."""
    return np.ascontiguousarray(astronaut[60:160, 150:290])


@pytest.fixture(scope="module")
def deep() -> np.ndarray:
    """(40, 50, 4) uint16 noise."""
    return np.random.default_rng(7).integers(0, 65536, (40, 50, 4), dtype=np.uint16)


@pytest.fixture(scope="module")
def one_thread():
    """PyTorch and exports on one thread: small nets are fastest so, above all where other tests run beside."""
    import torch

    from gpen_cli import export

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "cpu_count", lambda: 1)
        yield
    torch.set_num_threads(before)
