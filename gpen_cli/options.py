"""Every option of a run, with its one default and its one check. Front doors build these; nothing below changes them.

A bad value raises ``UsageError`` naming the flag, the value, and what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gpen_cli.errors import UsageError

TEMPLATES = ("gpen", "ffhq")
DETECTORS = ("auto", "retinaface-mobile", "retinaface-r50")
MASKS = ("auto", "feather", "parse", "parse+hair")
COLOR_FIXES = ("lab", "hues", "tint", "none")
PRECISIONS = ("auto", "fp32", "bf16", "fp16")
SHARP_FACES = ("keep", "restore")
RUNTIMES = ("auto", "eager", "compiled", "cuda-graph", "onnx")
COMPILE = ("auto", "always", "never")
PROVIDER_CHOICES = ("auto", "cpu", "cuda", "tensorrt")
"""onnxruntime's execution providers by the names of ``--provider``; any other that onnxruntime has is taken too."""
EXPORT_PRECISIONS = ("fp32", "fp16")
EXPORT_IO = ("float", "uint8")
GUARD = ("on", "off")
NO_FACE = ("copy", "skip", "fail")
FORMATS = ("png", "jpg", "webp", "bmp", "tiff", "same")


def parse_number(text: str) -> float:
    """A number in ASCII digits: Python's ``float`` also takes １２ and 1_000, which are likelier a slip. Raises ValueError."""
    return float(_plain(text))


def parse_whole(text: str) -> int:
    """A whole number in ASCII digits. Raises ValueError."""
    return int(_plain(text))


def _plain(text: str) -> str:
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!a} is not written in ASCII digits")
    return text


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{flag} {value!r} is not known; choose one of: {', '.join(allowed)}.")


def _within(flag: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        raise UsageError(f"{flag} {value:g} is out of range; give a value from {low:g} to {high:g}.")


@dataclass(frozen=True)
class FaceOptions:
    """Which faces are looked for and kept. Sizes are the longer side of the face's box in photo pixels."""

    detector: str = "auto"
    det_threshold: float = 0.9  # GPEN's own threshold (peers.md: GPEN 0.9, facexlib 0.97, CodeFormer 0.8)
    det_size: int = 1600  # long side of a 4:3 photo with as many pixels as the fine pass sees; see docs/detection.md
    min_face: int = 16
    max_face: int | None = None
    max_faces: int | None = None
    only_center: bool = False
    only_largest: bool = False
    try_rotations: bool = False
    template: str = "gpen"

    def __post_init__(self) -> None:
        _one_of("--detector", self.detector, DETECTORS)
        _one_of("--template", self.template, TEMPLATES)
        _within("--det-threshold", self.det_threshold, 0.05, 1.0)
        _within("--det-size", self.det_size, 128, 8192)
        _within("--min-face", self.min_face, 1, 100_000)
        if self.max_face is not None:
            _within("--max-face", self.max_face, 1, 100_000)
            if self.max_face < self.min_face:
                raise UsageError(
                    f"--max-face {self.max_face} is smaller than --min-face {self.min_face}; no face fits."
                )
        if self.max_faces is not None:
            _within("--max-faces", self.max_faces, 1, 100_000)
        if self.only_center and self.only_largest:
            raise UsageError("--only-center and --only-largest exclude each other; give one of them.")


@dataclass(frozen=True)
class NetOptions:
    """Which net restores, and on what. batch_size: faces in one forward pass on a device that gains from it.

    runtime ``auto``: onnx for an .onnx file, where PyTorch is not installed, and for short runs (``onnx_nets.py``); else a CUDA
    graph on a CUDA device, and on others eager, or compiled when compile ``auto`` finds that it pays (``runtime/choice.py``).
    provider: where onnxruntime computes (``runtime/providers.py``).
    """

    model: str = "auto"
    weights: Path | None = None
    device: str = "auto"
    precision: str = "auto"
    runtime: str = "auto"
    compile: str = "auto"
    provider: str = "auto"
    batch_size: int = 4
    threads: int | None = None

    def __post_init__(self) -> None:
        _one_of("--precision", self.precision, PRECISIONS)
        _one_of("--runtime", self.runtime, RUNTIMES)
        _one_of("--compile", self.compile, COMPILE)
        if (self.runtime, self.compile) in (("eager", "always"), ("compiled", "never"), ("onnx", "always")):
            raise UsageError(
                f"--runtime {self.runtime} and --compile {self.compile} contradict each other; leave one out."
            )
        _within("--batch-size", self.batch_size, 1, 256)
        if self.threads is not None:
            _within("--threads", self.threads, 1, 1024)
        if not self.provider:
            raise UsageError("--provider is empty; give auto, cpu, cuda, tensorrt or another provider's name.")
        if self.is_onnx_file and self.compile == "always":
            raise UsageError(
                f"--weights {self.weights} is an ONNX file, which --compile always cannot compile; leave it out."
            )
        if self.runtime in ("eager", "compiled", "cuda-graph"):
            if self.is_onnx_file:
                raise UsageError(
                    f"--weights {self.weights} is an ONNX file, which --runtime {self.runtime} cannot run."
                )
            if self.provider != "auto":
                raise UsageError(
                    f"--provider {self.provider} is for --runtime onnx, not {self.runtime}; leave one out."
                )

    @property
    def is_onnx_file(self) -> bool:
        """Whether ``weights`` names an .onnx file."""
        return self.weights is not None and self.weights.suffix.lower() == ".onnx"


@dataclass(frozen=True)
class ExportOptions:
    """What ``gpen export`` writes. batch: faces in one pass, None for any number (``dynamic``).

    linked: the graph alone, which takes its numbers from the .safetensors file beside it.
    """

    precision: str = "fp32"
    io: str = "float"
    batch: int | None = None
    overwrite: bool = False
    linked: bool = False

    def __post_init__(self) -> None:
        _one_of("--precision", self.precision, EXPORT_PRECISIONS)
        _one_of("--io", self.io, EXPORT_IO)
        if self.batch is not None:
            _within("--batch", self.batch, 1, 256)
        if self.linked and self.precision != "fp32":
            raise UsageError(f"--linked computes in fp32, not {self.precision}; leave one out.")


@dataclass(frozen=True)
class QuantizeOptions:
    """What ``gpen quantize`` writes. calibration: a photo or a folder of photos; None: the faces of the example photos."""

    calibration: Path | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class ComposeOptions:
    """How a restored face goes back into the photo. None in color_fix: lab for whole photos, tint for --aligned."""

    fidelity_weight: float = 1.0
    mask: str = "auto"
    color_fix: str | None = None
    sharpen: float = 0.0
    sharp_faces: str = "keep"
    guard: str | None = None
    """None: on for whole photos, off for --aligned."""
    upscale: float | None = None
    """None: auto (see ``upscale.choose_scale``); for aligned input None is 1."""

    def __post_init__(self) -> None:
        _one_of("--mask", self.mask, MASKS)
        if self.guard is not None:
            _one_of("--guard", self.guard, GUARD)
        _one_of("--sharp-faces", self.sharp_faces, SHARP_FACES)
        if self.color_fix is not None:
            _one_of("--color-fix", self.color_fix, COLOR_FIXES)
        _within("--fidelity-weight", self.fidelity_weight, 0.0, 2.0)
        _within("--sharpen", self.sharpen, 0.0, 1.0)
        if self.upscale is not None:
            _within("--upscale", self.upscale, 1.0, 4.0)


@dataclass(frozen=True)
class ReadOptions:
    """Limits of the reader. channel_order: ``bgr`` swaps red and blue on reading (the old script's --channel)."""

    max_pixels: int = 300_000_000
    channel_order: str = "rgb"
    allow_private_urls: bool = False
    allow_truncated: bool = False

    def __post_init__(self) -> None:
        _within("--max-pixels", self.max_pixels, 1, 10**11)
        _one_of("--channel", self.channel_order, ("rgb", "bgr"))


@dataclass(frozen=True)
class WriteOptions:
    """How results are stored. format None: by the target's suffix. quality None: 95 (JPEG, WebP)."""

    format: str | None = None
    quality: int | None = None
    strip_metadata: bool = False
    keep_mtime: bool = False

    def __post_init__(self) -> None:
        if self.format is not None:
            _one_of("--format", self.format, FORMATS)
        if self.quality is not None:
            _within("--quality", self.quality, 1, 100)


@dataclass(frozen=True)
class RunOptions:
    """How the run treats its photos as a whole."""

    aligned: bool = False
    no_face: str = "copy"
    overwrite: bool = False
    skip_existing: bool = False
    workers: int | None = None
    compare: bool = False
    save_faces: Path | None = None
    debug_mask: Path | None = None
    dry_run: bool = False
    in_place: bool = False
    leave_results: bool = False
    """Photos that gpen itself made are left out (``gpen batch``; a file that is named is always taken)."""

    def __post_init__(self) -> None:
        _one_of("--no-face", self.no_face, NO_FACE)
        if self.workers is not None:
            _within("--workers", self.workers, 1, 256)
        if self.overwrite and self.skip_existing:
            raise UsageError("--overwrite and --skip-existing exclude each other; give one of them.")


@dataclass(frozen=True)
class Options:
    """All options of one run."""

    faces: FaceOptions = field(default_factory=FaceOptions)
    net: NetOptions = field(default_factory=NetOptions)
    compose: ComposeOptions = field(default_factory=ComposeOptions)
    read: ReadOptions = field(default_factory=ReadOptions)
    write: WriteOptions = field(default_factory=WriteOptions)
    run: RunOptions = field(default_factory=RunOptions)
