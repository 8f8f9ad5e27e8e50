"""Where the ONNX nets of a run come from: named, found in the folders of weights, or made once from the weights that are here.

Without torch: only ``_made`` needs it, and asks first whether it is there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from gpen_cli.device import Setup, has_package, may_have_gpu, resolve_runtime, resolve_setup
from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.options import NetOptions
from gpen_cli.runtime.choice import FACES_A_PHOTO, is_light
from gpen_cli.weights.find import (
    FoundWeights,
    find_cached_onnx,
    find_model,
    find_onnx,
    from_path,
    missing_sentence,
    restorer_names,
    user_folders,
)
from gpen_cli.weights.table import MODELS, Model

log = logging.getLogger(__name__)

SHORT_RUN_FACES = 20
"""Up to so many faces onnxruntime is done first on a CPU: PyTorch takes over a second longer to start, and where its eager
passes of a light net are faster (CPUs with bf16) it is by hundredths of a second a face. Beyond, a compiled net may be
at hand."""


def suits_short_run(options: NetOptions, photos: int | None) -> bool:
    """Whether a run of so many photos is done first with ONNX nets, nothing speaks for PyTorch, and its nets are here as ONNX."""
    plain = (options.runtime, options.compile, options.provider, options.weights) == ("auto", "auto", "auto", None)
    if not plain or options.precision not in ("auto", "fp32") or photos is None or not has_package("torch"):
        return False
    on_cpu = options.device == "cpu" or (options.device == "auto" and not may_have_gpu())
    if not on_cpu or photos * FACES_A_PHOTO > SHORT_RUN_FACES:
        return False
    named = options.model != "auto"
    rows = [MODELS[name] for name in restorer_names() if options.model in ("auto", name)]
    try:
        present = [found for row in rows if (found := find_model(row, in_caches=named)) is not None]
    except WeightsError:  # said where the net is loaded
        return False
    try:
        return bool(present) and all(is_light(net) and net.model and find_onnx(net.model) for net in present)
    except WeightsError as error:
        log.warning("%s This run takes PyTorch.", error)
        return False


def settle(options: NetOptions, earlier: Setup | None, *, short: bool = False) -> Setup:
    """The setup of a run, whichever runtime it takes; see ``device.resolve_setup``. Raises UsageError, DeviceError.

    short: see ``suits_short_run``.
    """
    runtime = "onnx" if short and earlier is None else resolve_runtime(options, earlier)
    if earlier is not None and (earlier.runtime == "onnx") != (runtime == "onnx"):
        earlier = None  # nothing of it can be taken up
    if runtime != "onnx":
        return resolve_setup(options, earlier)
    from gpen_cli.runtime.providers import choose_provider  # onnxruntime is imported there, and asked

    return resolve_setup(options, earlier, provider=choose_provider(options, earlier.provider if earlier else None))


def named_onnx(options: NetOptions) -> FoundWeights:
    """The ONNX file for ``--weights``: that file, an export of it that is here, or what is made of it.

    Raises WeightsError, DeviceError.
    """
    assert options.weights is not None
    found = from_path(options.weights)
    if found.is_onnx:
        return found
    here = _here(found.model, options) if found.model else None
    return here if here and here.export else _made(found, options)  # the public file need not be of the same weights


def onnx_at_hand(weights: FoundWeights) -> FoundWeights | None:
    """The same net as an fp32 ONNX file that need not be made first, or None; a damaged one counts as none."""
    try:
        here = find_onnx(weights.model) if weights.model else None
    except WeightsError:
        here = None
    return here if here and here.export and here.export.precision == "fp32" else find_cached_onnx(weights, "fp32")


def known_onnx(models: Sequence[Model], options: NetOptions, *, in_caches: bool) -> list[FoundWeights]:
    """Those of ``models`` that are here as ONNX, or are made so now. in_caches: see ``find_model``. Raises WeightsError."""
    nets = []
    missing: WeightsError | None = None
    for model in models:
        found = _here(model, options)
        if found is None:
            weights = find_model(model, in_caches=in_caches)
            if weights is None:
                missing = missing or WeightsError(_not_here(model))
                continue
            try:
                found = replace(_made(weights, options), model=model)
            except _CannotMakeError as error:
                missing = missing or error
                continue
        nets.append(found)
    if not nets and missing is not None:
        raise missing
    return nets


def with_own_precision(setup: Setup, nets: Sequence[FoundWeights], asked: str) -> Setup:
    """The setup with the precision of the run's files, which decide it (but for TensorRT, which has its own).

    Raises UsageError when another one was asked for.
    """
    if setup.provider == "tensorrt":
        return setup
    for net in nets:
        own = net.export.precision if net.export else "fp32"
        if asked not in ("auto", own):
            raise UsageError(
                f"--precision {asked}: {net.path} computes in {own}; leave it out, or make another file with "
                f"gpen export --precision {asked}."
            )
    return replace(setup, precision="+".join(sorted({net.export.precision if net.export else "fp32" for net in nets})))


def _here(model: Model, options: NetOptions) -> FoundWeights | None:
    """The model's ONNX file in the folders of weights, if it can do what was asked. Raises WeightsError."""
    found = find_onnx(model)
    if found is not None and found.export and found.export.linked and options.precision == "fp16":
        return None  # the linked graph is fp32
    return found


class _CannotMakeError(WeightsError):
    """PyTorch or onnx is missing."""


def _made(weights: FoundWeights, options: NetOptions) -> FoundWeights:
    precision = "fp16" if options.precision == "fp16" else "fp32"
    there = find_cached_onnx(weights, precision)
    if there is not None:
        return there  # without PyTorch, whose import alone takes longer than the rest
    missing = [name for name in ("torch", "onnx") if not has_package(name)]
    if missing:
        source = f"--model {weights.model.name}" if weights.model else f"--weights {weights.path}"
        source += " --precision fp16" if precision == "fp16" else ""
        raise _CannotMakeError(
            f"{weights.name} is not here as an ONNX file, and making one takes {' and '.join(missing)}, not installed here "
            f"(python -m pip install 'gpen-cli[onnx]'). Where it is: gpen export {source} -o {weights.name}.onnx; put that into "
            f"{user_folders()[0]}{_or_get(weights.model)}, or name it with --weights."
        )
    from gpen_cli.export import cached_export

    return cached_export(weights, precision)


def _not_here(model: Model) -> str:
    return (
        f"{model.name} is not on this machine, neither as ONNX nor its weights{_or_get(model)}, or name a file with --weights "
        f"FILE.onnx. {missing_sentence(model)}"
    )


def _or_get(model: Model | None) -> str:
    return f", or get {model.onnx.mirror} (licence: {model.licence})" if model and model.onnx else ""
