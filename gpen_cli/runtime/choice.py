"""Does compiling pay for the work at hand? The rule of ``--compile auto``, and which runtime follows from the flags.

Compiling costs about a minute once; each face then costs less, and what was compiled is loaded sooner than the plain net. The
numbers are those of docs/performance.md; a net of another size counts as the next smaller one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError
from gpen_cli.options import NetOptions
from gpen_cli.runtime import packages
from gpen_cli.weights.find import FoundWeights

log = logging.getLogger(__name__)

FACES_A_PHOTO = 1.5
"""Guessed before any photo is read."""

LIGHT_BYTES = 100_000_000
"""Of a weight file: the public 256 px net has 76 MB, the public 512 px net 284, the embedded ones 18. A light net's pass
costs little beside what surrounds it."""

LIGHT_PAYS_FROM, HEAVY_PAYS_FROM = 2500, 500
"""Faces of a run from which compiling pays when it has to be done now: about twice the faces at which both ways take the
same time, on two cores with bf16 (``benchmarks/generator.py``). What is compiled already starts sooner than the plain net."""

LANES_FROM = 4
"""Photos: fewer are done first when all cores work on one face."""


def is_light(weights: FoundWeights) -> bool:
    """Whether the net is a small one, by its file."""
    try:
        return weights.path.stat().st_size <= LIGHT_BYTES
    except OSError:  # said where it is loaded
        return False


def gains_by_lanes(setup: Setup, nets: Sequence[FoundWeights], photos: int | None) -> bool:
    """Whether several passes at a time, each on fewer cores, get a folder done sooner (``benchmarks/pipeline.py``).

    Heavy nets do not gain: their layers fill all cores, and their maps would be in memory several times.
    """
    return (
        setup.device == "cpu"
        and setup.runtime != "onnx"
        and setup.threads > 1
        and photos is not None
        and photos >= LANES_FROM
        and all(is_light(net) for net in nets)
    )


def choose_runtime(
    options: NetOptions, setup: Setup, nets: Sequence[FoundWeights], photos: int | None, *, resumed: bool
) -> Setup:
    """The setup with its runtime settled.

    nets: those the run may use; photos: how many are to be done, None when nobody knows; resumed:
    the setup is an earlier run's, whose bytes are to be met again. Raises DeviceError for what the device cannot do.
    """
    if setup.runtime == "onnx":
        return setup
    asked = options.runtime
    compiled = _wants_compiling(options, setup, nets, photos, resumed=resumed)
    if asked == "cuda-graph" and not setup.device.startswith("cuda"):
        raise DeviceError(
            f"--runtime cuda-graph needs a CUDA GPU, and the device is {setup.device}; give --runtime auto."
        )
    if asked == "cuda-graph" or (asked == "auto" and setup.device.startswith("cuda")):
        return replace(setup, runtime="cuda-graph", compiled=compiled)
    return replace(setup, runtime="compiled" if compiled else "eager", compiled=compiled)


def _wants_compiling(
    options: NetOptions, setup: Setup, nets: Sequence[FoundWeights], photos: int | None, *, resumed: bool
) -> bool:
    if options.runtime == "eager" or options.compile == "never" or setup.device == "mps":
        return False
    if options.runtime == "compiled" or options.compile == "always":
        return True
    if resumed:
        return setup.compiled
    missing = [net for net in nets if not is_compiled(net, setup)]
    return not missing or (all(_pays(net, setup, photos) for net in missing) and _can_compile(setup.device))


def is_compiled(weights: FoundWeights, setup: Setup) -> bool:
    """Whether the net lies compiled in the user's cache, whole: it starts sooner than the plain net, and needs no compiler."""
    return setup.device == "cpu" and packages.supported() and packages.find_package(weights, setup) is not None


def _pays(net: FoundWeights, setup: Setup, photos: int | None) -> bool:
    """Whether compiling the net now pays for so many photos."""
    if setup.device == "cpu" and not packages.supported():
        return False  # torch.compile's own cache is too slow to count on
    return photos is not None and FACES_A_PHOTO * photos >= (LIGHT_PAYS_FROM if is_light(net) else HEAVY_PAYS_FROM)


def _can_compile(device: str) -> bool:
    from gpen_cli.runtime.torch_compiled import has_compiler

    if has_compiler(device):
        return True
    what = "Triton" if device.startswith("cuda") else "C++ compiler"
    log.warning("compiling would pay for this run, but there is no %s; it goes on with --runtime eager", what)
    return False
