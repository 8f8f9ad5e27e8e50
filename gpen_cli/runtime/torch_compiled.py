"""Nets through PyTorch's compiler: one shape, the whole way from uint8 to uint8, kept for the next process where possible.

On the CPU the result is a library of AOTInductor's (``packages.py``, ``aoti.py``). Elsewhere, and before torch 2.6, it is
``torch.compile``, which keeps its own cache. Nothing is left running: the compiler's worker processes would outlive the run, so
there are none.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError
from gpen_cli.runtime import packages
from gpen_cli.runtime.aoti import CompiledLibrary, library_in
from gpen_cli.runtime.crops import Pass, UInt8Pass
from gpen_cli.weights.find import FoundWeights

log = logging.getLogger(__name__)

_NOISY = ("torch.utils.cpp_extension", "torch._inductor", "torch._dynamo", "torch._export")
"""Loggers that tell users of warnings of the compiler's own."""


class CompileError(DeviceError):
    """The compiler is missing, or failed."""


@dataclass(frozen=True)
class Compiled:
    """A pass ready to run. crop_size: side of its crops in px; seconds: what compiling took, 0 when it came from the cache."""

    run: Pass
    crop_size: int
    seconds: float


def from_cache(weights: FoundWeights, setup: Setup) -> Compiled | None:
    """The net of an earlier process, or None; a damaged one is removed."""
    if setup.device != "cpu" or not packages.supported():
        return None
    package = packages.find_package(weights, setup)
    if package is None:
        return None
    try:
        return Compiled(_loaded(package, setup), package.crop_size, 0.0)
    except Exception as error:  # noqa: BLE001  a library that is none, or of another torch
        log.warning("the compiled net %s does not load (%s); it is made again", package.path, type(error).__name__)
        packages.discard(package)
        return None


def compile_net(net: UInt8Pass, weights: FoundWeights, setup: Setup, *, crop_size: int) -> Compiled:
    """Compiles the pass, and says for how long. Raises CompileError."""
    begin = time.monotonic()
    log.info("%s is being compiled; this takes about a minute, once for this machine.", weights.name)
    try:
        if setup.device == "cpu" and packages.supported():
            run, made_now = _packaged(net, weights, setup, crop_size, begin)
        else:
            run, made_now = _compiled(net, setup, crop_size), True
    except OSError as error:
        raise CompileError(
            f"compiling {weights.name}: {packages.package_path(weights, setup).parent} cannot be written "
            f"({error.strerror or error}); set GPEN_CACHE_DIR to a folder that can be, or give --runtime eager."
        ) from error
    seconds = time.monotonic() - begin
    log.info("%s compiled in %.0f s.", weights.name, seconds)
    return Compiled(run, crop_size, seconds if made_now else 0.0)


def has_compiler(device: str) -> bool:
    """Whether what the compiler needs is there, as far as can be told without using it."""
    if device.startswith("cuda"):
        import importlib.util

        return importlib.util.find_spec("triton") is not None
    from torch._inductor import config

    asked = config.cpp.cxx
    names = [name for name in (asked if isinstance(asked, (tuple, list)) else (asked,)) if isinstance(name, str)]
    return any(shutil.which(name) for name in [*names, "g++", "clang++", "c++"])


def _packaged(net: UInt8Pass, weights: FoundWeights, setup: Setup, crop_size: int, begin: float) -> tuple[Pass, bool]:
    """(the pass, whether this process made it): another process may have made it while this one waited."""
    path = packages.package_path(weights, setup)
    with packages.being_made(path) as temporary:
        there = from_cache(weights, setup)
        if there is not None:
            return there.run, False
        with _explained(weights):
            _make_package(net, temporary, setup, crop_size)
            package = packages.keep(temporary, path, crop_size=crop_size, since=begin)
            return _loaded(package, setup), True


@torch.no_grad()
def _make_package(net: UInt8Pass, path: Path, setup: Setup, crop_size: int) -> None:
    """Writes the library of the compiled pass."""
    from torch._inductor import aoti_compile_and_package

    with _alone():
        exported = torch.export.export(net, (_example(setup, crop_size),))
        package = path.with_suffix(".pt2")
        try:
            aoti_compile_and_package(exported, package_path=str(package))
            library_in(package, path)
        finally:
            package.unlink(missing_ok=True)


def _loaded(package: packages.Package, setup: Setup) -> Pass:
    return CompiledLibrary(package.path, (setup.micro_batch, package.crop_size, package.crop_size, 3))


@torch.inference_mode()
def _compiled(net: UInt8Pass, setup: Setup, crop_size: int) -> Pass:
    compiled: Pass = torch.compile(net, fullgraph=True, dynamic=False)
    with _explained(None), _alone():
        compiled(_example(setup, crop_size))  # now, so that the first photo does not pay for it unannounced
    return compiled


def _example(setup: Setup, crop_size: int) -> Tensor:
    return torch.full((setup.micro_batch, crop_size, crop_size, 3), 127, dtype=torch.uint8, device=setup.device)


@contextmanager
def _explained(weights: FoundWeights | None) -> Iterator[None]:
    try:
        yield
    except (OSError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # torch's compiler has no common error class: a missing C compiler, Triton, or a bug of its own all end here.
        which = f" of {weights.name}" if weights else ""
        raise CompileError(
            f"torch's compiler failed{which} ({type(error).__name__}); a C++ compiler (and on GPUs Triton) is needed. "
            "Install one, or give --runtime eager."
        ) from error


@contextmanager
def _alone() -> Iterator[None]:
    """No worker processes of the compiler, which would outlive the run."""
    from torch._inductor import config

    with _silent(), config.patch(compile_threads=1):
        yield


@contextmanager
def _silent() -> Iterator[None]:
    """None of the compiler's own warnings (no CUDA here, …) on the user's terminal."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
