"""The figures as text: one block a set and size class, groups, and what was decided about the faces."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from quality.judge import INPUT, ORIGINAL, UNSHARP, Record
from quality.stats import BY_NAME, METRICS, SAME_DB, Estimate, Metric, change, chosen, compared, gain, summary

_GROUPED = (("psnr", gain, 2), ("ssimulacra2", gain, 1), ("identity", change, 0), ("niqe", change, 0))
_DECIDED = ("set", "faces", "restored", "guard stops", "guard weakens", "too sharp", "really restored", "no landmarks")


def methods_of(records: Sequence[Record]) -> list[str]:
    """In the order of the records: input, unsharp, the nets, original."""
    return list(dict.fromkeys(record.method for record in records))


def nets_of(records: Sequence[Record]) -> list[str]:
    return [method for method in methods_of(records) if method not in (INPUT, UNSHARP, ORIGINAL)]


def set_lines(records: Sequence[Record], case: str) -> list[str]:
    """Blocks by size class, then all: for each method the means, below them half the width of their 95 % intervals."""
    inside = [record for record in records if record.case == case]
    sides = sorted({record.side for record in inside})
    parts = [(f"{side} px", [record for record in inside if record.side == side]) for side in sides]
    if len(parts) > 1:
        parts.append(("all", inside))
    return [line for name, part in parts for line in _block(part, case, name)]


def _block(records: Sequence[Record], case: str, name: str) -> list[str]:
    faces, width = len({record.face for record in records}), max(map(len, methods_of(records)))
    made = ["", f"{case}, {name}: {faces} faces", " " * width + "".join(f"{metric.title:>12}" for metric in METRICS)]
    for method in methods_of(records):
        row = [(summary(records, case, method, metric), metric) for metric in METRICS]
        made.append(f"{method:<{width}}" + "".join(f"{_cell(one.value, metric):>12}" for one, metric in row))
        if method != ORIGINAL:
            made.append(" " * width + "".join(f"{_half(one, metric.digits):>12}" for one, metric in row))
    return made


def _cell(value: float, metric: Metric) -> str:
    if metric.name == "psnr" and value >= SAME_DB:
        return "same"
    return f"{value:.{metric.digits}f}" if isfinite(value) else "–"


def _half(estimate: Estimate, digits: int) -> str:
    return f"±{estimate.half:.{digits}f}" if isfinite(estimate.half) else ""


def decision_lines(records: Sequence[Record], net: str) -> list[str]:
    """By set: how many faces the report calls restored, what guard and sharp-face rule do (or would do, where the path's
    defaults leave them off), and how many answers the detector finds no face in."""
    made = ["".join(f"{title:>17}" for title in _DECIDED)]
    for case in dict.fromkeys(record.case for record in records):
        found = list(chosen(records, case, net).values())
        really = sum(bool(record.really) for record in found)
        counts = (
            case,
            len(found),
            sum(record.decision == "restored" for record in found),
            sum(bool(record.refused) for record in found),
            sum(not record.refused and (record.guard or 0.0) < 1.0 for record in found),
            sum(bool(record.too_sharp) for record in found),
            f"{really} ({100 * really / max(1, len(found)):.0f} %)",
            sum(not isfinite(record.figures["landmarks"]) for record in found),
        )
        made.append("".join(f"{count:>17}" for count in counts))
    return made


def group_lines(records: Sequence[Record], case: str, net: str) -> list[str]:
    """The net against the input, group by group."""
    inside = [record for record in records if record.case == case]
    titles = ("PSNR dB", "SSIMULACRA2", "identity %", "NIQE %", "lids")
    made = [f"{'group':<34} {'faces':>6}" + "".join(f" {title:>15}" for title in titles)]
    for grouping in dict.fromkeys(name for record in inside for name in record.groups):
        for group in sorted({record.groups[grouping] for record in inside if grouping in record.groups}):
            part = [record for record in inside if record.groups.get(grouping) == group]
            cells = [
                _signed(compared(part, case, (net, INPUT), name, how=how), digits) for name, how, digits in _GROUPED
            ]
            lids = summary(part, case, net, BY_NAME["lids"])
            label = f"{grouping}: {group}"
            row = f"{label:<34} {len(chosen(part, case, net)):>6}" + "".join(f" {cell:>15}" for cell in cells)
            made.append(f"{row} {_cell(lids.value, BY_NAME['lids']):>8}{_half(lids, 2):>7}".rstrip())
    return made


def _signed(estimate: Estimate, digits: int) -> str:
    if not isfinite(estimate.value):
        return "–"
    return f"{estimate.value:+.{digits}f}{_half(estimate, digits):>7}"
