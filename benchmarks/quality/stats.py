"""From figures of single faces to figures of many, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpen_cli.data import Float64Array
from quality.judge import Record

RESAMPLES, SEED, COVERAGE = 2000, 1, 0.95
SAME_DB = 60.0
"""PSNR from which pictures count as equal: rounding to 8 bits alone costs that much (58.9 dB); an infinite one counts as this."""
LEAST_FACES = 3
"""Below, there is no interval."""

Statistic = Callable[[Float64Array], Float64Array]
"""(…, faces) or (…, faces, 2) -> (…)."""


@dataclass(frozen=True)
class Metric:
    """A column. better: 1 the higher the better, −1 the lower, 0 the nearer to 1. ratio: averaged as a geometric mean."""

    name: str
    title: str
    better: int
    digits: int
    ratio: bool = False


METRICS = (
    Metric("psnr", "PSNR", 1, 2),
    Metric("ssim", "SSIM", 1, 3),
    Metric("ssimulacra2", "SSIMULACRA2", 1, 1),
    Metric("niqe", "NIQE", -1, 2),
    Metric("identity", "identity", -1, 3),
    Metric("landmarks", "landmarks", -1, 3),
    Metric("lids", "lids", 0, 2, ratio=True),
    Metric("nostrils", "nostrils", 0, 2, ratio=True),
    Metric("skin_original", "skin", 0, 2, ratio=True),
    Metric("skin_input", "skin/in", 0, 2, ratio=True),
    Metric("hair_original", "hair", 0, 2, ratio=True),
    Metric("hair_input", "hair/in", 0, 2, ratio=True),
)
BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Estimate:
    """value with the bounds of its 95 % interval (NaN: none); faces: how many have the figure."""

    value: float
    low: float
    high: float
    faces: int

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2


def bootstrap(values: Float64Array, statistic: Statistic) -> Estimate:
    """Percentile interval over RESAMPLES seeded draws of whole faces. values: (faces,) or (faces, 2) for paired figures."""
    finite = np.isfinite(values)
    sound = values[finite if values.ndim == 1 else finite.all(axis=1)]
    count = len(sound)
    if count == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    value = float(statistic(sound))
    if count < LEAST_FACES:
        return Estimate(value, float("nan"), float("nan"), count)
    draws = np.random.default_rng(SEED).integers(count, size=(RESAMPLES, count))
    edge = 100 * (1 - COVERAGE) / 2
    low, high = np.percentile(statistic(sound[draws]), (edge, 100 - edge))
    return Estimate(value, float(low), float(high), count)


def mean(values: Float64Array) -> Float64Array:
    return np.asarray(values.mean(axis=-1))


def geometric_mean(values: Float64Array) -> Float64Array:
    return np.asarray(np.exp(np.log(np.maximum(values, 1e-6)).mean(axis=-1)))


def gain(pairs: Float64Array) -> Float64Array:
    """Mean of after − before; pairs: (…, faces, 2) of (after, before)."""
    return np.asarray((pairs[..., 0] - pairs[..., 1]).mean(axis=-1))


def change(pairs: Float64Array) -> Float64Array:
    """Mean after over mean before, less 1, in per cent."""
    return np.asarray(100.0 * (pairs[..., 0].mean(axis=-1) / pairs[..., 1].mean(axis=-1) - 1.0))


def chosen(records: Sequence[Record], case: str, method: str) -> dict[str, Record]:
    """Face -> its record."""
    return {record.face: record for record in records if (record.case, record.method) == (case, method)}


def values(records: Sequence[Record], metric: str) -> Float64Array:
    """(faces,)"""
    found = np.array([record.figures.get(metric, np.nan) for record in records], np.float64)
    return np.minimum(found, SAME_DB) if metric == "psnr" else found


def summary(records: Sequence[Record], case: str, method: str, metric: Metric) -> Estimate:
    found = values(list(chosen(records, case, method).values()), metric.name)
    return bootstrap(found, geometric_mean if metric.ratio else mean)


def compared(
    records: Sequence[Record], case: str, methods: tuple[str, str], metric: str, *, how: Statistic = gain
) -> Estimate:
    """``how`` over the faces that both methods (after, before) have a figure for."""
    after, before = (chosen(records, case, method) for method in methods)
    faces = [face for face in after if face in before]
    pairs = [values([side[face] for face in faces], metric) for side in (after, before)]
    return bootstrap(np.stack(pairs, axis=1), how)
