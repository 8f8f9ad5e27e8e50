"""From an exported net to the same in int8: calibrated on real faces, held against the fp32 file on others, only then kept."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpen_cli.aligned_faces import example_crops, photo_crops, worn
from gpen_cli.data import UInt8Image
from gpen_cli.device import Setup, cpu_count, require_onnx
from gpen_cli.errors import DeviceError, UsageError, WeightsError
from gpen_cli.options import QuantizeOptions
from gpen_cli.parity import Parity, parity
from gpen_cli.paths import exists, is_dir, is_file, same_file
from gpen_cli.runtime.onnx import OnnxGpen
from gpen_cli.sources import find_photos
from gpen_cli.weights.find import FoundWeights
from gpen_cli.weights.onnx_file import OnnxExport, check_target, read_export, replacing, sealed

if TYPE_CHECKING:
    from onnx import ModelProto

log = logging.getLogger(__name__)

LEAST_PSNR = 38.0
"""dB of the worst held-out face against the fp32 file (issue 4)."""
MOST_FACES = 60
"""Faces of the user's that are looked at: ranges hardly move beyond a few dozen, and each is a pass."""
HELD_OUT = 5
"""Of the user's faces each fifth is for the check alone."""
_WORN, _WORN_FOR_CHECK = 8, 4
"""Variants of each example face."""
_SEED, _CHECK_SEED = 20, 21
_ROUNDS = 7
"""Timed passes of each file; the median counts."""


@dataclass(frozen=True)
class Quantized:
    """What was measured of the int8 file. share: of the multiply-adds in int8; seconds a pass of the fp32 and the int8 file."""

    share: float
    parity: Parity
    fp32_seconds: float
    int8_seconds: float

    def sentences(self) -> list[str]:
        """For the user."""
        before, after = self.fp32_seconds, self.int8_seconds
        return [
            f"{self.share:.1%} of the multiply-adds in int8",
            f"held out: {self.parity.sentence('the fp32 file')}",
            f"a pass on this CPU: {before:.3f} s with the fp32 file, {after:.3f} s in int8 ({before / after:.2f} times as fast)",
        ]


@dataclass(frozen=True)
class _Faces:
    """Crops (N, S, S, 3) uint8; told: what the file says of the first."""

    calibration: UInt8Image
    check: UInt8Image
    told: str


def quantize_file(source: Path, target: Path, options: QuantizeOptions) -> Quantized:
    """Writes ``target``, the int8 form of ``source`` (a fp32 file of gpen export). A failing run leaves what was there before.

    Raises UsageError (target, photos), WeightsError (source), DeviceError (onnx missing, too far from fp32), OutputError.
    """
    require_onnx("Quantizing")
    about = _require_export(source)
    check_target(target, overwrite=options.overwrite)
    if same_file(target, source):
        raise UsageError(f"-o {target} is the file that is read; name another one.")
    from gpen_cli.runtime.onnx_int8 import share_in_int8

    fp32 = _open(source, about)
    faces = _faces(about, options)
    about = replace(about, precision="int8", calibration=faces.told)
    proto = _int8_graph(source, fp32, faces.calibration)
    model = _finished(proto, about)
    with replacing(target, model) as file:
        int8 = _open(file, about)
        figures = parity(_answers(fp32, faces.check), _answers(int8, faces.check), int8.micro_batch)
        if not figures.psnr >= LEAST_PSNR:
            raise DeviceError(
                f"The int8 file was not kept: {figures.sentence('the fp32 file')}; it has to be {LEAST_PSNR:g} dB at least: "
                "calibrate with photos like those it shall restore, or take gpen export --precision fp16."
            )
        return Quantized(share_in_int8(proto), figures, *_seconds(fp32, int8, faces.check))


def _require_export(source: Path) -> OnnxExport:
    if not is_file(source):
        raise WeightsError(f"{source} does not exist, or is no file; name one that gpen export made.")
    about = read_export(source)
    if about is None:
        raise WeightsError(f"{source} was not made by gpen export; export the net from its weights first.")
    if about.linked:
        raise WeightsError(f"{source} was exported with --linked; int8 is made of a whole file, so export it without.")
    if about.precision != "fp32":
        raise WeightsError(f"{source} is in {about.precision}; int8 is made of a file of gpen export --precision fp32.")
    return about


def _open(file: Path, about: OnnxExport) -> OnnxGpen:
    setup = Setup("cpu", about.precision, 1, cpu_count(), runtime="onnx", provider="cpu")
    return OnnxGpen(FoundWeights(file, None, export=about), setup)


def _faces(about: OnnxExport, options: QuantizeOptions) -> _Faces:
    if options.calibration is None:
        *known, last = example_crops(about.crop_size)
        calibration = np.concatenate((np.stack(known), worn(known, _WORN, _SEED)))
        check = np.concatenate((last[None], worn([last], _WORN_FOR_CHECK, _CHECK_SEED)))
        return _Faces(
            calibration, check, f"least and largest values over {len(calibration)} crops of gpen's example faces"
        )
    photos = _photos(options.calibration)
    crops = photo_crops(photos, about.crop_size, most=MOST_FACES, threads=cpu_count())
    if len(crops) < HELD_OUT:
        raise UsageError(
            f"--calibration {options.calibration} shows {len(crops)} face(s), and {HELD_OUT} are needed; add photos, or leave it "
            "out: then the example photos are taken."
        )
    held_out = np.arange(len(crops)) % HELD_OUT == HELD_OUT - 1
    known_count = int((~held_out).sum())
    log.info("%d faces calibrate, %d are held out for the check", known_count, len(crops) - known_count)
    return _Faces(crops[~held_out], crops[held_out], f"least and largest values over {known_count} faces of the user's")


def _photos(calibration: Path) -> list[Path]:
    if is_dir(calibration):
        found = find_photos(calibration)
        for sentence in found.unseen:
            log.warning("%s", sentence)
        photos = [calibration / item for item in found.photos]
        if not photos:
            raise UsageError(f"--calibration {calibration} holds no photos; name a folder that does.")
        return photos
    if not exists(calibration):
        raise UsageError(f"--calibration {calibration} does not exist; check the path.")
    return [calibration]


def _int8_graph(source: Path, fp32: OnnxGpen, crops: UInt8Image) -> ModelProto:
    import onnx

    from gpen_cli.runtime.onnx_int8 import quantized

    feeds = (fp32.feed(part) for part in _passes(fp32, crops))
    return quantized(onnx.load(source), feeds)


def _finished(proto: ModelProto, about: OnnxExport) -> bytes:
    """The checked graph with what it says of itself, and its seal."""
    from gpen_cli.runtime.onnx_graph import INT8_OPERATORS, OPSET, batch_of, checked, described

    described(proto, about.metadata())
    return sealed(checked(proto, OPSET, batch=batch_of(proto), allowed=INT8_OPERATORS))


def _passes(net: OnnxGpen, crops: UInt8Image) -> Iterator[UInt8Image]:
    for start in range(0, len(crops), net.micro_batch):
        yield crops[start : start + net.micro_batch]


def _answers(net: OnnxGpen, crops: UInt8Image) -> UInt8Image:
    return np.concatenate([net.run(part) for part in _passes(net, crops)])


def _seconds(fp32: OnnxGpen, int8: OnnxGpen, crops: UInt8Image) -> tuple[float, float]:
    """Median seconds a pass, the two files in turns, so that whatever else the machine does meets both."""
    faces = crops[: int8.micro_batch]
    seconds: dict[str, list[float]] = {"fp32": [], "int8": []}
    for _ in range(_ROUNDS):
        for name, net in (("fp32", fp32), ("int8", int8)):
            begin = time.perf_counter()
            net.run(faces)
            seconds[name].append(time.perf_counter() - begin)
    return statistics.median(seconds["fp32"]), statistics.median(seconds["int8"])
