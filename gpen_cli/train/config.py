"""Every setting of a training, with its one default and its one check; read from TOML, shown in the checkpoint.

A run is a pure function of this record, the photos, and the number of steps: every random number is drawn from
``seed`` and a counter, so that a resumed run meets the faces it would have met.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gpen_cli.errors import UsageError

SIZES = (64, 128, 256, 512, 1024)
PRECISIONS = ("auto", "bf16", "fp32")
R1_FORMS = ("exact", "difference")
VIEWS = ("random", "eye", "inner", "whole")
"""What a discriminator looks at. random: a square at full sharpness, anywhere; eye: one around either eye, at full sharpness,
moved a little; inner: half the crop's width, from above the eyes to below the mouth; whole: the face. The last two are shrunk."""


def _one_of(setting: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{setting} {value!r} is not known; choose one of: {', '.join(map(str, allowed))}.")


def _at_least(setting: str, value: float, least: float) -> None:
    if not value >= least:  # also refuses NaN
        raise UsageError(f"{setting} {value:g} is too small; give {least:g} or more.")


def _positive(setting: str, value: float) -> None:
    if not value > 0:
        raise UsageError(f"{setting} {value:g} must be greater than 0.")


@dataclass(frozen=True)
class NetConfig:
    """The generator. start: a weight file of the same shape to go on from; grow_from: one of half the size."""

    size: int = 256
    narrow: float = 0.25
    channel_multiplier: int = 2
    style_width: int = 512
    mapping_depth: int = 8
    start: Path | None = None
    grow_from: Path | None = None

    def __post_init__(self) -> None:
        _one_of("--size", self.size, SIZES)
        _positive("--narrow", self.narrow)
        for setting in ("channel_multiplier", "style_width", "mapping_depth"):
            _at_least(f"net.{setting}", getattr(self, setting), 1)
        if self.start is not None and self.grow_from is not None:
            raise UsageError("--start and --grow-from exclude each other; give one of them.")


@dataclass(frozen=True)
class DataConfig:
    """Where faces come from: folders of aligned crops, or pairs (hr_dir, lr_dir), or a Hugging Face dataset.

    index: a CSV whose columns ``file``, ``source``, ``pad_l`` … are used where it has them (``gpen train prepare`` writes one);
    default: ``index.csv`` in or above the folder. confidence: only rows of the index with one of these letters. balance: 0
    samples every photo alike, 1 every source alike.
    """

    folders: tuple[Path, ...] = ()
    hr_dir: Path | None = None
    lr_dir: Path | None = None
    dataset: str | None = None
    dataset_column: str = "image"
    index: Path | None = None
    confidence: tuple[str, ...] = ()
    balance: float = 0.3
    workers: int = 1
    max_rotation: float = 4.0  # degrees
    max_shift: float = 0.02  # of the side
    max_scale: float = 0.05  # crop 1/1.05 … 1.05 times as large
    mirror: bool = True

    def __post_init__(self) -> None:
        _at_least("--workers", self.workers, 0)


@dataclass(frozen=True)
class DegradationConfig:
    """What is done to a crop so that the net has something to restore. Lengths are in pixels of a 512 px crop.

    The order is GPEN's and GFPGAN's: blur, shrink, noise, JPEG, enlarge (arXiv:2105.06070 eq. 6, arXiv:2101.04061 eq. 1). A range
    is (low, high), drawn evenly unless said otherwise; a ``…_chance`` is a probability of 0 to 1.
    """

    clean_chance: float = 0.08  # the crop as it is: what is whole must stay
    light_chance: float = 0.25  # one fault alone, of blur, resolution, noise, JPEG
    light_small_chance: float = 0.5  # of noise or JPEG alone: on a photo of fewer pixels
    kernel_size: int = 41
    sigma: tuple[float, float] = (0.1, 10.0)
    motion_chance: float = 0.15
    motion_length: tuple[float, float] = (3.0, 30.0)
    shrink: tuple[float, float] = (1.0, 8.0)  # drawn evenly in the logarithm
    tiny_chance: float = 0.03
    tiny_side: tuple[int, int] = (32, 64)  # side of the whole crop, pixels
    noise: tuple[float, float] = (0.0, 15.0)  # standard deviation, levels of 255
    noise_gray_chance: float = 0.4
    jpeg: tuple[float, float] = (30.0, 95.0)
    jpeg_chance: float = 0.8
    second_jpeg_chance: float = 0.2
    colour_shift: float = 0.04  # of the full range, each channel
    gray_chance: float = 0.10
    old_photo_chance: float = 0.06  # sepia, grain, scratches, fading, yellowing


@dataclass(frozen=True)
class LossConfig:
    """Weights of the terms. adversarial 0: no discriminator.

    psnr: minus the decibels, so that lightly damaged faces count as much as ruined ones. ssim: one minus SSIM, over scales.
    known: agreement (-1 to 1) of a restored face's detail with the original's from which the judges begin to count it, and count
    it whole: what the net cannot know it shall not invent. features, identity: the face recognition net (``face_net``, see
    docs/training.md); perceptual: EfficientNet-lite0.
    r1: gradient penalty of the discriminator (arXiv:1801.04406). r1_form ``exact`` takes the second derivative every
    ``r1_every`` steps (StyleGAN2's lazy form); ``difference`` estimates it from one small step of noise, every
    step, which compiled steps and devices allow too.
    """

    l1: float = 4.0
    psnr: float = 0.0
    ssim: float = 0.0
    features: float = 0.0
    identity: float = 0.0
    perceptual: float = 0.5
    adversarial: float = 0.0
    matching: float = 0.3
    known: tuple[float, float] = (-1.0, -1.0)
    r1: float = 10.0
    r1_form: str = "exact"
    r1_every: int = 16
    face_net: Path | None = None

    def __post_init__(self) -> None:
        _one_of("loss.r1_form", self.r1_form, R1_FORMS)
        _at_least("loss.r1_every", self.r1_every, 1)
        _at_least("loss.known, its second number,", self.known[1], self.known[0])


@dataclass(frozen=True)
class DiscriminatorConfig:
    """The judges: one net of the public shape for each view, ``size`` px wide.

    start: ``NAME.judges.safetensors`` of an earlier training, whose judges of the same views go on; others are drawn.
    """

    views: tuple[str, ...] = ("random",)
    size: int = 128
    narrow: float = 0.125
    channel_multiplier: int = 2
    start: Path | None = None

    def __post_init__(self) -> None:
        for view in self.views:
            _one_of("discriminator.views", view, VIEWS)
        _one_of("discriminator.size", self.size, (32, *SIZES))


@dataclass(frozen=True)
class ScheduleConfig:
    """How long and how fast. rate: of the generator's Adam at its highest; it falls along a cosine to ``last_rate`` of it.

    ramp: steps over which the adversarial terms rise from 0 to their weight. clip: largest norm of a gradient.
    average: the EMA's keep factor is min(average, 1 − 10/(step + 20)).
    """

    steps: int = 2000
    batch: int = 8
    accumulate: int = 1
    rate: float = 2e-3
    discriminator_rate: float = 2e-3
    last_rate: float = 0.1
    warm_up: int = 100
    ramp: int = 200
    clip: float = 1.0
    average: float = 0.998
    seed: int = 1

    def __post_init__(self) -> None:
        for flag, value in (("--steps", self.steps), ("--batch-size", self.batch), ("--accumulate", self.accumulate)):
            _at_least(flag, value, 1)
        _positive("--rate", self.rate)
        _positive("schedule.discriminator_rate", self.discriminator_rate)
        _at_least("--seed", self.seed, 0)


@dataclass(frozen=True)
class OutputConfig:
    """What is kept. folder: None is ``training/NAME`` in the user cache folder. validation: folder of whole crops."""

    folder: Path | None = None
    checkpoint_minutes: float = 10.0
    validate_every: int = 250
    validation: Path | None = None
    validation_degraded: Path | None = None
    validation_count: int = 24
    log_every: int = 10

    def __post_init__(self) -> None:
        for setting in ("validate_every", "validation_count", "log_every"):
            _at_least(f"output.{setting}", getattr(self, setting), 1)


@dataclass(frozen=True)
class TrainConfig:
    """One training. name: what its files are called; precision: auto is bf16 where the device has it, else fp32."""

    name: str = "gpen"
    device: str = "auto"
    precision: str = "auto"
    compile: bool = True
    threads: int | None = None
    net: NetConfig = field(default_factory=NetConfig)
    data: DataConfig = field(default_factory=DataConfig)
    degradation: DegradationConfig = field(default_factory=DegradationConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    discriminator: DiscriminatorConfig = field(default_factory=DiscriminatorConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        _one_of("--precision", self.precision, PRECISIONS)
        if not self.name or "/" in self.name or "\\" in self.name:
            raise UsageError(f"--name {self.name!r} must be a plain file name.")
        if self.loss.adversarial > 0 and self.discriminator.size > self.net.size:
            raise UsageError(
                f"discriminator.size {self.discriminator.size} is larger than the net's {self.net.size}; make it smaller."
            )
