"""All figures as JSON: what the text says, and every face's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from gpen_cli import __version__
from gpen_cli.cache import sha256_of
from quality.bars import Bar, bars
from quality.judge import Record
from quality.stats import METRICS, SAME_DB, Estimate, summary
from quality.table import nets_of


def content(records: Sequence[Record], path: str, weights: Sequence[Path]) -> dict[str, Any]:
    """run: what was judged; bars: net -> list; means: set -> class -> method -> figure -> value, low, high, faces; faces: all.

    What was not measured is null; the PSNR of equal pictures is SAME_DB.
    """
    files = [{"file": str(file), "sha256": sha256_of(file)} for file in weights]
    return {
        "run": {"gpen": __version__, "path": path, "weights": files},
        "bars": {net: [_bar(bar) for bar in bars(records, net)] for net in nets_of(records)},
        "means": {case: _means(records, case) for case in dict.fromkeys(record.case for record in records)},
        "faces": [_face(record) for record in records],
    }


def _means(records: Sequence[Record], case: str) -> dict[str, Any]:
    inside = [record for record in records if record.case == case]
    sizes = {f"{side} px": [one for one in inside if one.side == side] for side in sorted({one.side for one in inside})}
    return {
        size: {
            method: {metric.name: _estimate(summary(part, case, method, metric)) for metric in METRICS}
            for method in dict.fromkeys(one.method for one in part)
        }
        for size, part in {**sizes, "all": inside}.items()
    }


def _bar(bar: Bar) -> dict[str, Any]:
    return {"set": bar.case, "what": bar.what, "wanted": bar.wanted, "met": bar.met, **_estimate(bar.found)}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {name: _number(value) for name, value in asdict(estimate).items()}


def _face(record: Record) -> dict[str, Any]:
    figures = {name: _number(SAME_DB if value == float("inf") else value) for name, value in record.figures.items()}
    return {**asdict(record), "figures": figures}


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
