"""Issue 7, "What must hold" 1, bar by bar: met or missed, with figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from quality.judge import INPUT, UNSHARP, Record
from quality.stats import BY_NAME, Estimate, Statistic, bootstrap, change, chosen, compared, gain, mean, summary


@dataclass(frozen=True)
class Bar:
    """One thing that must hold. limit: at least (rises True) or at most; strict: more than, or less than."""

    case: str
    what: str
    limit: float
    rises: bool
    unit: str
    found: Estimate
    strict: bool = False

    @property
    def met(self) -> bool | None:
        """None: could not be measured."""
        value = self.found.value
        if np.isnan(value):
            return None
        if self.strict and value == self.limit:
            return False
        return value >= self.limit if self.rises else value <= self.limit

    @property
    def sure(self) -> bool:
        """Whether the whole interval lies on the value's side of the limit."""
        return not self.found.low <= self.limit <= self.found.high

    @property
    def wanted(self) -> str:
        word = {(True, True): ">", (True, False): "≥", (False, True): "<", (False, False): "≤"}[self.rises, self.strict]
        return f"{word} {self.limit:g} {self.unit}".rstrip()


def bars(records: Sequence[Record], net: str) -> list[Bar]:
    """All bars of the sets that were run, over all faces."""
    run = {record.case for record in records}
    found: list[Bar] = []
    if "val_mixed" in run:
        found += _mixed(records, net)
    for case in ("lowres", "motion", "jpeg"):
        if case in run:
            found += _better_than(records, case, net, INPUT, ("psnr", "identity"))
    if "clean" in run:
        found += _clean(records, net)
    return found


def _mixed(records: Sequence[Record], net: str) -> list[Bar]:
    case = "val_mixed"

    def against_input(metric: str, how: Statistic) -> Estimate:
        return compared(records, case, (net, INPUT), metric, how=how)

    really = np.array([float(bool(record.really)) for record in chosen(records, case, net).values()])
    restored = bootstrap(100.0 * really, mean)
    return [
        Bar(case, "PSNR against input", 1.0, True, "dB", against_input("psnr", gain)),
        Bar(case, "SSIMULACRA2 against input", 15.0, True, "", against_input("ssimulacra2", gain)),
        Bar(case, "identity distance against input", -20.0, False, "%", against_input("identity", change)),
        Bar(case, "NIQE against input", -25.0, False, "%", against_input("niqe", change)),
        Bar(case, "faces really restored", 95.0, True, "%", restored),
        *_better_than(records, case, net, UNSHARP, ("psnr", "ssimulacra2", "identity", "niqe")),
    ]


def _better_than(records: Sequence[Record], case: str, net: str, other: str, metrics: tuple[str, ...]) -> list[Bar]:
    """Differences of the means, on the right side of 0."""
    found = []
    for name in metrics:
        metric = BY_NAME[name]
        unit = "dB" if name == "psnr" else ""
        difference = compared(records, case, (net, other), name, how=gain)
        found.append(
            Bar(case, f"{metric.title} against {other}", 0.0, metric.better > 0, unit, difference, strict=True)
        )
    return found


def _clean(records: Sequence[Record], net: str) -> list[Bar]:
    """Here the input is the original."""
    psnr, identity = (summary(records, "clean", net, BY_NAME[name]) for name in ("psnr", "identity"))
    return [
        Bar("clean", "PSNR of output against input", 32.0, True, "dB", psnr),
        Bar("clean", "identity distance", 0.15, False, "", identity, strict=True),
    ]


def lines(found: Sequence[Bar], net: str) -> list[str]:
    """The block of the report."""
    made = [
        f"What must hold (issue 7, 1): {net}",
        f"{'set':<10} {'figure':<36} {'wanted':>10}   {'is':>8}  95 % interval",
    ]
    for bar in found:
        digits = 3 if bar.what.startswith("identity") and bar.unit != "%" else 2
        value = "–" if bar.met is None else f"{bar.found.value:.{digits}f}"
        interval = f"{bar.found.low:.{digits}f} to {bar.found.high:.{digits}f}" if isfinite(bar.found.low) else "–"
        verdict = {None: "not measured", True: "met", False: "missed"}[bar.met]
        if bar.met is not None and not bar.sure:
            verdict += " (within the interval)"
        made.append(f"{bar.case:<10} {bar.what:<36} {bar.wanted:>10}   {value:>8}  {interval:<18} {verdict}")
    met = sum(bar.met is True for bar in found)
    return [*made, f"{met} of {len(found)} met"]
