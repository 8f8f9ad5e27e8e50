"""onnxruntime's execution providers: which are really here, what each is told, and that the one asked for is what runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gpen_cli.device import check_device
from gpen_cli.errors import DeviceError, UsageError
from gpen_cli.options import NetOptions

if TYPE_CHECKING:
    import onnxruntime

log = logging.getLogger(__name__)

CPU_PROVIDER = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
_NAMES = {"cpu": CPU_PROVIDER, "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
"""onnxruntime's names of the providers gpen knows what to tell; any other is its own name without the suffix."""

_AUTO = ("tensorrt", "cuda", "cpu")
"""What ``auto`` tries, in this order: the providers whose results this project knows. Others are taken when they are named."""

_PACKAGES = {
    "cuda": "onnxruntime-gpu, with CUDA and cuDNN",
    "tensorrt": "onnxruntime-gpu, with CUDA, cuDNN and TensorRT",
    "coreml": "onnxruntime for macOS",
    "dml": "onnxruntime-directml (Windows)",
    "openvino": "onnxruntime-openvino",
    "qnn": "onnxruntime-qnn",
    "migraphx": "onnxruntime-migraphx",
    "webgpu": "onnxruntime-webgpu",
}
"""What to install for a provider that is missing. Each of these packages replaces onnxruntime: one of them at a time."""

_PROBE = (
    b'\x08\x08:;\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x05probeZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)
"""An ONNX model that hands one number through: a provider whose libraries do not load shows it on this one already."""


def import_onnxruntime() -> ModuleType:
    """The package, its telemetry off. Raises DeviceError when it is not installed."""
    # From 1.29 on, importing onnxruntime starts telemetry that is on unless this is set: nobody's run is anybody else's business.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise DeviceError(
            f"ONNX nets need onnxruntime, which cannot be imported ({error}); "
            "install it: python -m pip install 'onnxruntime>=1.20'"
        ) from None
    return onnxruntime


def failures(ort: ModuleType) -> tuple[type[Exception], ...]:
    """What onnxruntime raises for a model or a provider that does not work; its classes have no base of their own."""
    state = ort.capi.onnxruntime_pybind11_state
    names = (
        "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile",
        "NotImplemented", "RuntimeException",
    )  # fmt: skip
    return (RuntimeError, ValueError, *(getattr(state, name) for name in names))


def first_line(error: Exception) -> str:
    """What onnxruntime says, without its stack."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def choose_provider(options: NetOptions, earlier: str | None = None) -> str:
    """The provider's short name (``cpu``, ``cuda``, ``tensorrt``, ``coreml`` …), tried out. earlier: of the run that is resumed.

    Raises UsageError for a name onnxruntime does not know, DeviceError when the one that was asked for is not here.
    """
    check_device(options.device)
    ort = import_onnxruntime()
    asked = options.provider.lower().removesuffix(_SUFFIX.lower())
    if asked == "auto" and earlier:
        asked = earlier
    gpu = options.device.startswith("cuda")
    _check_device(asked, options.device)
    if asked != "auto":
        _require(asked, ort, device_id=gpu_number(options.device))
        return asked
    if options.device == "cpu":
        return "cpu"
    here = {_short(name) for name in ort.get_available_providers()}
    for name in _AUTO:
        if name == "cpu" and gpu:
            break
        if name in here and _loads(name, ort, device_id=gpu_number(options.device)):
            _say_what_else(here)
            return name
        if name in here:
            log.info("provider %s: this onnxruntime has it, but its libraries do not load here; passed over", name)
    raise DeviceError(
        f"--device {options.device}: this onnxruntime reaches no NVIDIA GPU; {_how_to_get('cuda')}, or give --device cpu."
    )


def _check_device(provider: str, device: str) -> None:
    on_gpu = provider in ("cuda", "tensorrt")
    if device == "mps":
        raise UsageError("--device mps is PyTorch's; for an ONNX net on an Apple machine give --provider coreml.")
    if (device == "cpu" and provider not in ("auto", "cpu")) or (
        device.startswith("cuda") and provider != "auto" and not on_gpu
    ):
        raise UsageError(f"--device {device} and --provider {provider} contradict each other; leave one out.")


def _require(name: str, ort: ModuleType, *, device_id: int) -> None:
    available, known = ort.get_available_providers(), ort.get_all_providers()
    if name not in {_short(item) for item in (*available, *known)}:
        here = ", ".join(_short(item) for item in available)
        raise UsageError(f"--provider {name!r} is not known to onnxruntime {ort.__version__}; it has {here}, and auto.")
    if name not in {_short(item) for item in available}:
        raise DeviceError(f"--provider {name}: this onnxruntime was built without it; {_how_to_get(name)}.")
    if not _loads(name, ort, device_id=device_id):
        raise DeviceError(f"--provider {name}: its libraries do not load here; {_how_to_get(name)}.")


def _how_to_get(name: str) -> str:
    package = _PACKAGES.get(name)
    if package is None:
        return "install a build of onnxruntime that has it"
    return f"install {package} (after python -m pip uninstall onnxruntime: only one of its packages can be there)"


def _say_what_else(here: set[str]) -> None:
    others = sorted(here & set(_PACKAGES) - set(_AUTO))
    if others:
        log.info("also here, when named with --provider: %s", ", ".join(others))


def _short(ep_name: str) -> str:
    for short, own in _NAMES.items():
        if own == ep_name:
            return short
    return ep_name.removesuffix(_SUFFIX).lower()


def _own_name(short: str, ort: ModuleType) -> str:
    """onnxruntime's spelling of a provider it has."""
    return next(name for name in ort.get_available_providers() if _short(name) == short)


def _loads(name: str, ort: ModuleType, *, device_id: int) -> bool:
    """Whether the provider's libraries are there: onnxruntime lists what it was built with, whether or not that can run."""
    options = provider_options(name, device_id=device_id)
    if name == "tensorrt":
        options["trt_min_subgraph_size"] = "1000"  # load the library, but build no engine for the probe
    faults: tuple[type[Exception], ...] = (*failures(ort), DeviceError)
    try:
        open_session(_PROBE, [(name, options)], threads=1)
    except faults:
        return False
    return True


def gpu_number(device: str) -> int:
    """N of ``cuda:N``; 0 for anything else."""
    number = device.partition(":")[2]
    return int(number) if device.startswith("cuda:") and number.isdecimal() else 0


def provider_options(name: str, *, device_id: int) -> dict[str, str]:
    """What the provider is told. TensorRT is told more by ``tensorrt.EngineCache``."""
    if name == "cuda":
        return {
            "device_id": str(device_id),
            # Measuring which algorithm is fastest may choose another one at every start: the same bytes come first.
            "cudnn_conv_algo_search": "HEURISTIC",
            "use_tf32": "0",  # fp32 means fp32
        }
    return {"device_id": str(device_id)} if name == "tensorrt" else {}


def open_session(
    model: Path | bytes, providers: Sequence[tuple[str, dict[str, str]]], *, threads: int
) -> onnxruntime.InferenceSession:
    """A session on the first of ``providers`` (short names with their options); the CPU stands behind it for odd nodes.

    Raises DeviceError when that provider is not in it afterwards: onnxruntime itself would go on with the CPU. What it
    raises on its own account is in ``failures``.
    """
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait in a loop would eat the cores that decode, detect and encode.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # what goes wrong is raised, and said in our words
    chosen = [(_own_name(name, ort), told) for name, told in providers]
    source = os.fspath(model) if isinstance(model, Path) else model
    session = ort.InferenceSession(source, options, providers=chosen, enable_fallback=0)
    session.disable_fallback()
    first = chosen[0][0]
    if first not in session.get_providers():
        name = providers[0][0]
        raise DeviceError(f"--provider {name}: onnxruntime could not start it here; {_how_to_get(name)}.")
    return session
