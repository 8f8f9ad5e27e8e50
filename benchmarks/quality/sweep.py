"""Where the gain ends: one degradation at a time, from slight to heavy."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from quality.judge import INPUT, Record
from quality.sets import Case
from quality.stats import BY_NAME, Estimate, compared, gain, summary

STRENGTHS: dict[str, tuple[str, tuple[int, ...]]] = {
    "gaussian": ("Gaussian blur, sigma in px", (1, 2, 3, 4, 5, 6)),
    "motion": ("linear motion, px", (3, 5, 8, 11, 16)),
    "jpeg": ("JPEG quality", (50, 30, 20, 10, 5)),
    "face": ("width of the face, px", (128, 96, 64, 48, 32, 24, 16)),
}
FACES = 12
"""Faces a strength, unless --count says otherwise."""
_SHOWN = (("psnr", 1), ("ssimulacra2", 1), ("identity", -1), ("niqe", -1))


def sweep_cases() -> list[Case]:
    return [Case(f"{kind} {strength}", kind, (strength,)) for kind, (_, row) in STRENGTHS.items() for strength in row]


def sweep_lines(records: Sequence[Record], net: str) -> list[str]:
    """For each strength: the input's figure and how the net changes it; then where that is a gain."""
    head = (
        f"{'':<12}"
        + "".join(f"{BY_NAME[name].title + ': input, change':>28}" for name, _ in _SHOWN)
        + f"{'lids in, out':>16}"
    )
    made = [f"{net}, change from input to output with half its 95 % interval; * where that has no 0", head]
    for kind, (title, row) in STRENGTHS.items():
        made += ["", title]
        gains: dict[str, list[tuple[int, Estimate]]] = {name: [] for name, _ in _SHOWN}
        for strength in row:
            case = f"{kind} {strength}"
            line = f"{strength:<12}"
            for name, better in _SHOWN:
                before = summary(records, case, INPUT, BY_NAME[name])
                found = compared(records, case, (net, INPUT), name, how=gain)
                gains[name].append((strength, _turned(found, better)))
                line += f"{_pair(before, found, BY_NAME[name].digits):>28}"
            lids = [summary(records, case, method, BY_NAME["lids"]).value for method in (INPUT, net)]
            made.append(line + f"{lids[0]:>10.2f}{lids[1]:>6.2f}")
        made += [f"  gains in {BY_NAME[name].title}: {_where(row_)}" for name, row_ in gains.items()]
    return made


def _turned(found: Estimate, better: int) -> Estimate:
    """So that more is better."""
    if better > 0:
        return found
    return Estimate(-found.value, -found.high, -found.low, found.faces)


def _pair(before: Estimate, found: Estimate, digits: int) -> str:
    if not isfinite(found.value):
        return "–"
    sure = "*" if found.low > 0 or found.high < 0 else " "
    return f"{before.value:.{digits}f} {found.value:+.{digits}f} ±{found.half:.{digits}f}{sure}"


def _where(row: Sequence[tuple[int, Estimate]]) -> str:
    """The strengths at which the net is surely better than its input."""
    sure = [str(strength) for strength, found in row if found.low > 0]
    return ", ".join(sure) if sure else "nowhere surely"
