"""What the hardware can: which device, which number format, how many threads. Resolved once, before the first face."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import platform
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpen_cli.errors import DeviceError, UsageError
from gpen_cli.options import NetOptions

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:[0-9]+)?|cuda:all|cuda:[0-9]+(,cuda:[0-9]+)+")
_BF16_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # x86, x86, Arm (as Linux spells them)


MOST_LANES = 4
"""Each lane has a net and its maps in memory (a net of 256 px about 150 MB)."""


@dataclass(frozen=True)
class Setup:
    """What is settled before the first face: with the same setup, the same photo gives the same bytes.

    device: ``cpu``, ``cuda:0``, ``mps``, or an onnxruntime provider that is neither CPU nor CUDA; precision: ``fp32`` | ``bf16``
    | ``fp16``; micro_batch: faces in one forward pass; provider: with runtime ``onnx``, where onnxruntime computes.
    """

    device: str
    precision: str
    micro_batch: int
    threads: int
    runtime: str = "eager"
    """``eager`` | ``compiled`` | ``cuda-graph`` | ``onnx``."""
    compiled: bool = False
    """Whether the net goes through PyTorch's compiler (``compiled``, and ``cuda-graph`` where that pays)."""
    precision_reason: str = ""
    provider: str = ""
    more_devices: tuple[str, ...] = ()
    """GPUs that restore faces beside ``device``: ``cuda:1`` …"""
    lanes: int = 1
    """Passes at a time on a CPU, each on ``threads`` threads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "more_devices", tuple(self.more_devices))  # JSON gives a list

    @property
    def devices(self) -> tuple[str, ...]:
        """All that restore faces; the helper nets and the memory figures are those of the first."""
        return (self.device, *self.more_devices)

    @property
    def device_names(self) -> str:
        """As ``--device`` takes them."""
        return ",".join(self.devices)

    @property
    def crops_in_flight(self) -> int:
        """Crops that keep all devices busy: those of the passes that run (graphs: and are copied), and of the one that fills."""
        passes = 3 if self.runtime == "cuda-graph" else 2
        return passes * self.micro_batch * len(self.devices) * self.lanes

    def only_device(self, instead: str) -> str:
        """The one device, for what runs on one. Raises UsageError with what to do ``instead`` of naming several."""
        if self.more_devices:
            raise UsageError(f"--device {self.device_names} names several GPUs, and this takes one; {instead}.")
        return self.device

    def on(self, device: str) -> Setup:
        """The same for one pass at a time on one device of its own."""
        return replace(self, device=device, more_devices=(), lanes=1)

    def in_lanes(self) -> Setup:
        """The same threads in up to MOST_LANES passes at a time: together they do more, each takes longer."""
        lanes = min(self.threads, MOST_LANES)
        return replace(self, lanes=lanes, threads=self.threads // lanes)

    @property
    def torch_device(self) -> str:
        """Where the helper nets that need PyTorch (R50, ParseNet) run: beside an ONNX net, on the CPU."""
        return "cpu" if self.runtime == "onnx" else self.device


def has_package(name: str) -> bool:
    """Whether the package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def require_onnx(doing: str) -> None:
    """Raises DeviceError when the package that makes and checks ONNX graphs is missing. doing: what needs it, ``Exporting``."""
    if not has_package("onnx"):
        raise DeviceError(
            f"{doing} needs the package onnx, which is not installed: python -m pip install 'gpen-cli[onnx]'"
        )


def cpu_count() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


SPINS = "3000"
"""Turns of libgomp's waiting loop before a thread sleeps: alone nearly as fast as its own 300,000, and beside one busy thread a
face takes 1.8 times as long instead of 6 times (docs/performance.md)."""


def import_torch() -> Any:
    """PyTorch, imported without Python's garbage collector.

    The import makes half a million objects that stay: looking through them again and again took a sixth of its time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module("torch")
    finally:
        if collects:
            gc.enable()


def settle_process() -> None:
    """What this process's PyTorch is told once, before it is first imported."""
    calm_openmp()
    keep_freed_memory()


_MALLOC_TRIM_THRESHOLD, _MALLOC_TOP_PAD, _MALLOC_MMAP_THRESHOLD, _MALLOC_MMAP_MAX = -1, -2, -3, -4  # mallopt(3)
_KEPT_BYTES, _KEPT_BYTES_LARGE = 256 * 2**20, 2**31 - 1
_GROWTH_BYTES = 64 * 2**20
_LARGE_BYTES = 32 * 2**20  # the highest threshold that glibc takes


def keep_freed_memory(*, large: bool = False) -> None:
    """Has glibc keep freed memory instead of handing it back to the system after every layer.

    A large tensor is otherwise fresh pages each time, and on 2 cores the system's zeroing of them took more of a face's time
    than the net (docs/performance.md). ``large``: blocks above 32 MiB too, which only nets of 512 px and trainings have; without,
    arrays of a whole photo go back. Other C libraries are left as they are, and so is what the user set.
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    if large:
        mallopt(_MALLOC_MMAP_MAX, 0)
    else:
        mallopt(_MALLOC_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_MALLOC_TRIM_THRESHOLD, _KEPT_BYTES_LARGE if large else _KEPT_BYTES)
    mallopt(_MALLOC_TOP_PAD, _GROWTH_BYTES)


def calm_openmp() -> None:
    """Lets waiting threads of PyTorch sleep instead of spin. Only of use before torch is first imported.

    A face is hundreds of short parallel loops. With a reader, a writer or another program on one of two cores, a thread that
    spins for its partner keeps it from running.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def resolve_runtime(options: NetOptions, earlier: Setup | None = None) -> str:
    """``onnx``, or PyTorch's ``eager`` until the work is known (``runtime/choice.py``); see ``resolve_setup`` for ``earlier``."""
    if options.runtime == "onnx" or options.is_onnx_file or options.provider != "auto":
        return "onnx"
    if options.runtime == "auto" and options.weights is None and earlier is not None:
        return earlier.runtime
    return "eager" if has_package("torch") or options.runtime != "auto" else "onnx"


def resolve_setup(options: NetOptions, earlier: Setup | None = None, *, provider: str | None = None) -> Setup:
    """Settles device, precision, micro-batch and threads. Raises UsageError or DeviceError.

    earlier: a setup to take up again (``--resume``) wherever the options leave the choice to gpen. provider: onnxruntime's, by
    its short name, for a run with ONNX nets (``runtime/providers.py`` chooses it).
    """
    settle_process()
    check_device(options.device)
    asked = options.precision
    if provider is not None:
        return _onnx_setup(options, earlier, provider)
    if earlier is not None:
        options = replace(
            options,
            device=earlier.device_names if options.device == "auto" else options.device,
            precision=earlier.precision if options.precision == "auto" else options.precision,
            threads=options.threads or earlier.threads,
            batch_size=earlier.micro_batch,
        )
    device, *more_devices = _resolve_devices(options.device)
    precision, reason = resolve_precision(options.precision, device)
    if asked == "auto" and earlier is not None:
        reason = "as in the run before"
    on_cpu = device == "cpu"
    return Setup(
        device=device,
        precision=precision,
        # On a CPU one face at a time is fastest (deps.md), and a batch's neighbours cannot change a byte.
        micro_batch=1 if on_cpu else options.batch_size,
        threads=options.threads or cpu_count(),
        runtime=resolve_runtime(options, earlier),
        compiled=earlier.compiled if earlier is not None else False,
        precision_reason=reason,
        more_devices=tuple(more_devices),
        lanes=earlier.lanes if earlier is not None and on_cpu else 1,
    )


def _onnx_setup(options: NetOptions, earlier: Setup | None, provider: str) -> Setup:
    """The setup of a run with ONNX nets. Their numbers are those of their files, except that TensorRT may choose its own."""
    if options.precision == "bf16":
        raise UsageError("--precision bf16 is not one that ONNX nets run in; choose auto, fp32 or fp16.")
    device, *more_devices = [provider]
    if provider in ("cuda", "tensorrt"):
        asked = options.device if options.device != "auto" else "cuda"
        if options.device == "auto" and earlier is not None and earlier.device.startswith("cuda:"):
            asked = earlier.device_names
        device, *more_devices = _gpus(asked, _gpu_count() if asked == "cuda:all" else None)
    precision, reason = options.precision, "asked for"
    if precision == "auto" and provider == "tensorrt":
        precision, reason = "fp16", "TensorRT computes in fp16 unless told otherwise"
    elif precision == "auto":
        precision, reason = "fp32", "the ONNX file's own"
    batch_size = earlier.micro_batch if earlier is not None else options.batch_size
    return Setup(
        device=device,
        precision=precision,
        micro_batch=1 if provider == "cpu" else batch_size,
        threads=options.threads or (earlier.threads if earlier is not None else cpu_count()),
        runtime="onnx",
        precision_reason=reason,
        provider=provider,
        more_devices=tuple(more_devices),
    )


def check_device(asked: str) -> None:
    """Whether it could be a device, before anybody asks if it is here. Raises UsageError."""
    if not _DEVICE.fullmatch(asked):
        raise UsageError(
            f"--device {asked!r} is not known; choose auto, cpu, cuda, cuda:N or mps; several GPUs: cuda:0,cuda:1 or "
            "cuda:all."
        )
    numbers = [int(number) for number in re.findall(r"[0-9]+", asked)]
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--device {asked} names a GPU twice; name each once.")


def _resolve_devices(asked: str) -> tuple[str, ...]:
    """One device, or several GPUs."""
    if asked == "cpu" or (asked == "auto" and not may_have_gpu()):
        return ("cpu",)
    if not has_package("torch"):
        raise DeviceError(
            f"--device {asked}: PyTorch is not installed; install it (python -m pip install torch torchvision), or run an "
            "ONNX net (--weights FILE.onnx)."
        )
    torch = import_torch()
    has_cuda = torch.cuda.is_available()
    has_mps = torch.backends.mps.is_available()
    if asked == "auto":
        return ("cuda:0" if has_cuda else "mps" if has_mps else "cpu",)
    if asked == "mps":
        if not has_mps:
            raise DeviceError("--device mps: this machine has no Apple GPU that PyTorch can use; give --device cpu.")
        return ("mps",)
    if not has_cuda:
        raise DeviceError(
            f"--device {asked}: PyTorch {torch.__version__} sees no CUDA GPU here; "
            "check the driver (nvidia-smi) and that PyTorch is a CUDA build, or give --device cpu."
        )
    return _gpus(asked, torch.cuda.device_count())


def _gpus(asked: str, count: int | None) -> tuple[str, ...]:
    """``cuda``, ``cuda:N``, ``cuda:all`` or a list -> their names. count: of the GPUs here; None: not asked for."""
    if asked == "cuda:all":
        if not count:
            raise UsageError("--device cuda:all: PyTorch, which counts the GPUs, sees none; name them: cuda:0,cuda:1.")
        return tuple(f"cuda:{index}" for index in range(count))
    numbers = [int(name.partition(":")[2] or 0) for name in asked.split(",")]
    if count is not None and max(numbers) >= count:
        raise DeviceError(f"--device {asked}: this machine has {count} CUDA GPU(s), counted from 0.")
    return tuple(f"cuda:{number}" for number in numbers)


def _gpu_count() -> int:
    """As PyTorch counts them; 0 without it."""
    if not has_package("torch"):
        return 0
    return int(import_torch().cuda.device_count())


_GPU_NODES = ("nvidiactl", "nvidia0", "nvhost-ctrl", "nvgpu", "nvmap", "dxg", "kfd")
"""Device files of NVIDIA's driver, of its boards (Jetson), of Windows' GPUs in WSL, and of AMD's driver."""


def may_have_gpu() -> bool:
    """False where there is surely none: PyTorch, whose import takes over a second, need not be asked then."""
    return platform.system() != "Linux" or any(Path("/dev", node).exists() for node in _GPU_NODES)


def resolve_precision(asked: str, device: str) -> tuple[str, str]:
    """The precision and why. asked: ``auto`` | ``fp32`` | ``bf16`` | ``fp16``; device: ``cpu`` | ``cuda:N`` | ``mps``."""
    if asked != "auto":
        return asked, "asked for"
    if device == "cpu":
        if cpu_has_bf16():
            return "bf16", "the CPU has bf16 instructions"
        return "fp32", "the CPU has no bf16 instructions"
    if device == "mps":
        return "fp32", "the safe choice on Apple GPUs"
    import torch

    with torch.cuda.device(device):
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16", "the GPU has bf16 natively"
    return "fp16", "the GPU has no native bf16"


def cpu_has_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware (AVX512-BF16, AMX-BF16, or Arm's BF16)."""
    if platform.system() != "Linux":
        return False
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return lists_bf16(text)


def lists_bf16(cpuinfo: str) -> bool:
    """Whether the text of /proc/cpuinfo names bf16 instructions among its first core's flags."""
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    return match is not None and not _BF16_CPU_FLAGS.isdisjoint(match.group(1).split())
