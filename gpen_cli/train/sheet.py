"""What a person looks at: rows of degraded, restored and true faces; and the validation's figures beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gpen_cli.errors import UsageError
from gpen_cli.train.config import TrainConfig
from gpen_cli.train.crops import Crops, find_crops, find_pairs
from gpen_cli.train.sample import Sample, Samples

SHEET_ROWS = 12
SHEET_SIDE = 192  # px of each picture on the sheet
BATCH = 4


@dataclasses.dataclass(frozen=True)
class Validated:
    """psnr, input_psnr: mean over the faces, dB, of the restored and the degraded against the original. sheet: where it is."""

    psnr: float
    input_psnr: float
    sheet: Path


def validation_samples(config: TrainConfig) -> list[Sample]:
    """The fixed faces of every validation; none where no folder is named. Raises UsageError, PhotoError."""
    output = config.output
    if output.validation is None:
        return []
    still = dataclasses.replace(
        config.data, folders=(output.validation,), max_rotation=0, max_shift=0, max_scale=0, mirror=False, balance=0
    )
    seed = config.schedule.seed
    if output.validation_degraded is not None:
        pairs = find_pairs(output.validation, output.validation_degraded)
        samples: Samples = Crops(pairs, still, config.degradation, config.net.size, seed)
    else:
        crops = find_crops(dataclasses.replace(still, confidence=()), config.net.size)
        samples = Crops(crops, still, config.degradation, config.net.size, seed)
    count = min(len(samples), output.validation_count)
    if count < 1:
        raise UsageError("output.validation_count must be at least 1.")
    return [samples.sample(number) for number in range(count)]


@torch.no_grad()
def validate(
    net: nn.Module, samples: Sequence[Sample], path: Path, *, device: torch.device, dtype: torch.dtype
) -> Validated:
    """Restores ``samples`` with ``net``, writes the sheet to ``path`` (PNG). Raises OSError."""
    restored: list[NDArray[np.uint8]] = []
    for first in range(0, len(samples), BATCH):
        faces = np.stack([sample.degraded for sample in samples[first : first + BATCH]])
        pixels = torch.from_numpy(faces).to(device).permute(0, 3, 1, 2).float() / 127.5 - 1
        answer = ((net(pixels.to(dtype)).float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
        restored += list(answer.permute(0, 2, 3, 1).cpu().numpy())
    _write_sheet(samples, restored, path)
    return Validated(
        psnr=float(np.mean([_psnr(r, s) for r, s in zip(restored, samples, strict=True)])),
        input_psnr=float(np.mean([_psnr(s.degraded, s) for s in samples])),
        sheet=path,
    )


def _psnr(picture: NDArray[np.uint8], sample: Sample) -> float:
    """dB against the original, where it shows a photo; 60 for a picture without any difference."""
    inside = sample.weight.astype(bool)
    error = (picture.astype(np.float32) - sample.original)[inside]
    return float(10 * np.log10(255**2 / max(float(np.mean(error**2)), 255**2 / 1e6)))


def _write_sheet(samples: Sequence[Sample], restored: Sequence[NDArray[np.uint8]], path: Path) -> None:
    rows = [
        np.hstack([_small(picture) for picture in (sample.degraded, answer, sample.original)])
        for sample, answer in zip(samples[:SHEET_ROWS], restored[:SHEET_ROWS], strict=True)
    ]
    half = (len(rows) + 1) // 2
    rows += [np.full_like(rows[0], 255)] * (2 * half - len(rows))
    sheet = np.hstack([np.vstack(rows[:half]), np.vstack(rows[half:])]) if half else rows[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    written, encoded = cv2.imencode(".png", cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))
    assert written
    path.write_bytes(encoded.tobytes())


def _small(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    how = cv2.INTER_AREA if picture.shape[0] >= SHEET_SIDE else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(picture, (SHEET_SIDE, SHEET_SIDE), interpolation=how), np.uint8)
