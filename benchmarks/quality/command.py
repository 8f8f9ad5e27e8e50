"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpen_cli.errors import GpenError
from quality import metrics, sheet, sweep, table
from quality.bars import bars, lines
from quality.figures_file import content
from quality.judge import Record, Task, judge_all
from quality.restore import raw_side
from quality.sets import SETS, USUAL, Case, Portrait, load_portraits

PROCESSES = 2
_EPILOG = "Every figure is defined in docs/benchmark_quality.md."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.sweep and asked.set:
        parser.error("--sweep makes its own inputs; leave --set out")
    for sentence in metrics.missing():
        print(sentence)
    start = time.monotonic()
    try:
        _run(asked)
    except GpenError as error:  # weights that cannot be read, a device that is not there
        raise SystemExit(str(error)) from None
    print(f"{time.monotonic() - start:.0f} s on {asked.processes} processes", file=sys.stderr)


def _run(asked: argparse.Namespace) -> None:
    """Judges, prints, saves."""
    if asked.sweep:
        cases, count = sweep.sweep_cases(), asked.count or sweep.FACES
    else:
        cases, count = [SETS[name] for name in asked.set or USUAL], asked.count
    portraits = load_portraits(asked.faces, count)
    records: list[Record] = []
    rows = []
    for portrait, judged in zip(portraits, judge_all(_tasks(asked, portraits, cases), asked.processes), strict=True):
        records += judged.records
        if judged.pictures:
            rows.append((portrait.stem, judged.pictures))
    text = "\n".join(_report(asked, records, [case.name for case in cases]))
    print(text)
    _save(asked, text, records, rows)


def _tasks(asked: argparse.Namespace, portraits: Sequence[Portrait], cases: Sequence[Case]) -> list[Task]:
    nets = tuple(asked.weights or [None])
    side = raw_side(nets) if asked.path == "raw" else None
    return [
        Task(
            portrait,
            tuple(cases),
            nets,
            asked.path,
            raw_side=side,
            baseline=not asked.sweep,
            shown=None if asked.sweep or index % sheet.EVERY else cases[0].name,
        )
        for index, portrait in enumerate(portraits)
    ]


def _report(asked: argparse.Namespace, records: Sequence[Record], cases: Sequence[str]) -> list[str]:
    if not records:
        raise SystemExit("Nothing was judged: val_mixed needs the folder val_mixed beside val.")
    faces = len({record.face for record in records})
    made = [f"{faces} faces of {asked.faces}, path: {asked.path}; means, and half the width of their 95 % intervals"]
    nets = table.nets_of(records)
    if asked.sweep:
        return [*made, *(line for net in nets for line in ("", *sweep.sweep_lines(records, net)))]
    for case in cases:
        made += table.set_lines(records, case)
    for net in nets:
        made += ["", f"{net}: what was decided", *table.decision_lines(records, net)]
        made += ["", f"{net} against the input on {cases[0]}, by group", *table.group_lines(records, cases[0], net)]
        made += ["", *lines(bars(records, net), net)]
        if asked.path != "aligned":
            made.append(f"(the bars are meant for the path aligned; this is {asked.path})")
    return made


def _save(asked: argparse.Namespace, text: str, records: Sequence[Record], rows: list) -> None:
    if asked.output is None:
        return
    name = "sweep" if asked.sweep else "quality"
    asked.output.mkdir(parents=True, exist_ok=True)
    (asked.output / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
    figures = json.dumps(content(records, asked.path, asked.weights or []), indent=1, allow_nan=False)
    (asked.output / f"{name}.json").write_text(figures + "\n", encoding="utf-8")
    if rows:
        sheet.save_sheet(asked.output / f"{name}_sheet.png", rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/quality", description="Judges nets on fixed inputs.", epilog=_EPILOG
    )
    parser.add_argument("--faces", type=Path, required=True, help="folder with val/ and, for val_mixed, val_mixed/")
    parser.add_argument("--weights", type=_file, nargs="+", help="nets to judge (default: what gpen takes by itself)")
    parser.add_argument("--set", choices=list(SETS), nargs="+", help=f"default: {' '.join(USUAL)}")
    parser.add_argument("--count", type=_positive, help="so many faces, evenly spread (default: all; --sweep: 12)")
    parser.add_argument("--sweep", action="store_true", help="one degradation at a time: where the gain ends")
    parser.add_argument("--output", type=Path, help="folder for the text, every face's figures (JSON) and the sheet")
    parser.add_argument("--processes", type=_positive, default=min(PROCESSES, os.cpu_count() or 1))
    path = parser.add_mutually_exclusive_group()
    path.add_argument(
        "--raw", dest="path", action="store_const", const="raw", help="the nets' own answers, at their size"
    )
    path.add_argument("--photo", dest="path", action="store_const", const="photo", help="as faces of whole photos")
    parser.set_defaults(path="aligned")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of 1 or more")
    return number


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text} is no file")
    return Path(text)
