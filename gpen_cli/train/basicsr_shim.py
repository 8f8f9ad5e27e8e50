"""basicsr's degradations, on a torchvision that no longer has the module basicsr asks for.

basicsr 1.4.2 imports ``torchvision.transforms.functional_tensor``, which is gone since torchvision 0.17, and its
``__init__`` imports every net it has. So only its file ``data/degradations.py`` is loaded, and while it loads, a stand-in
answers for the missing module.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gpen_cli.errors import DeviceError

_MISSING = "torchvision.transforms.functional_tensor"
_MODULE = "gpen_cli.train._basicsr_degradations"
_GLOBAL_STATE = threading.Lock()
"""Held while the process-wide random states are ours: two threads would draw from each other's."""


@cache
def degradations() -> ModuleType:
    """basicsr's module ``basicsr.data.degradations``; loaded when first asked for. Raises DeviceError when it is absent."""
    path = require_basicsr()
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    floating = np.geterr()  # basicsr switches NumPy's warnings off for the whole process
    try:
        with _stand_in():
            spec.loader.exec_module(module)
    except ImportError as error:
        raise DeviceError(
            f"gpen train cannot load basicsr ({path}): {error}; install it anew: "
            "python -m pip install --force-reinstall 'gpen-cli[train]'."
        ) from error
    finally:
        np.seterr(**floating)
    return module


def require_basicsr() -> Path:
    """The file with basicsr's degradations, found without importing anything. Raises DeviceError when it is absent."""
    spec = importlib.util.find_spec("basicsr")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "degradations.py"
        if path.is_file():
            return path
    raise DeviceError(
        "gpen train needs basicsr, which is not installed: python -m pip install 'gpen-cli[train]' "
        "(Python 3.10 to 3.12; see docs/training_data.md)."
    )


@contextmanager
def _stand_in() -> Iterator[None]:
    """``functional_tensor`` with the one function basicsr takes from it, while basicsr loads."""
    if _MISSING in sys.modules:  # an older torchvision has the real one
        yield
        return
    module = ModuleType(_MISSING)
    vars(module)["rgb_to_grayscale"] = _rgb_to_grayscale
    sys.modules[_MISSING] = module
    try:
        yield
    finally:
        del sys.modules[_MISSING]


def _rgb_to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """(…, 3, H, W) tensor -> (…, C, H, W); torchvision is imported by those only who call it (we don't)."""
    from torchvision.transforms.functional import rgb_to_grayscale

    return rgb_to_grayscale(image, num_output_channels)


@contextmanager
def drawn_from(rng: np.random.Generator) -> Iterator[None]:
    """basicsr draws from the global states of ``random`` and NumPy: here they start from ``rng``, and come back as they were."""
    seed = int(rng.integers(2**32))
    with _GLOBAL_STATE:
        python_state, numpy_state = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
