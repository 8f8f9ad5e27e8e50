"""Judges every version of every face; one task a face, on as many processes as there are cores to use."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np

from gpen_cli.data import UInt8Image
from quality import metrics, regions
from quality.metrics import Figures
from quality.restore import Answer, Net
from quality.sets import Case, Portrait, degraded, read, unsharp

INPUT, UNSHARP, ORIGINAL = "input", "unsharp", "original"


@dataclass(frozen=True)
class Task:
    """One face in all its versions. raw_side: px to judge at, or None: the file's own."""

    portrait: Portrait
    cases: tuple[Case, ...]
    nets: tuple[Path | None, ...]
    path: str
    raw_side: int | None = None
    baseline: bool = True
    shown: str | None = None
    """The case whose pictures are wanted for the contact sheet."""


@dataclass(frozen=True)
class Record:
    """One version of one face. side: px of the file (its class: 256 or 512), whatever it was judged at.

    method: input, unsharp, original or a net's name; figures: as ``metrics.figures``, with skin and hair also over the
    original's and over the input's. For nets also what was decided.
    """

    face: str
    side: int
    groups: dict[str, str]
    case: str
    method: str
    figures: Figures
    decision: str | None = None
    guard: float | None = None
    own_detail: float | None = None
    refused: bool | None = None
    too_sharp: bool | None = None
    really: bool | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Judged:
    """pictures: method -> (S, S, 3) uint8, of the case that was asked for."""

    records: list[Record]
    pictures: dict[str, UInt8Image] = field(default_factory=dict)


def judge_all(tasks: Sequence[Task], processes: int) -> Iterator[Judged]:
    """In the tasks' order. Progress goes to stderr."""
    start = time.monotonic()
    if processes == 1:
        results: Iterator[Judged] = map(judge_face, tasks)
        yield from _told(results, len(tasks), start)
        return
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_core) as pool:
        yield from _told(pool.map(judge_face, tasks), len(tasks), start)


def _one_core() -> None:
    cv2.setNumThreads(1)


def _told(results: Iterator[Judged], total: int, start: float) -> Iterator[Judged]:
    for number, result in enumerate(results, start=1):
        print(f"\r{number} of {total} faces, {time.monotonic() - start:.0f} s ", end="", file=sys.stderr, flush=True)
        yield result
    print(file=sys.stderr)


def judge_face(task: Task) -> Judged:
    """Every case and method of one face."""
    portrait = task.portrait
    pixels = read(portrait.original)
    side = pixels.shape[0]
    scale = (task.raw_side or side) / side
    original = metrics.known(_at(pixels, task.raw_side), _scaled(portrait.padding, scale))
    truth = metrics.figures(original.pixels, original)
    groups = {"size": f"{side} px", **portrait.groups, "skin in the photo": _shade(original)}
    judged = Judged([])
    for case in task.cases:
        given = degraded(pixels, case, stem=portrait.stem, mixed=portrait.mixed)
        if given is None:
            continue
        answers = {net.name: net.answer(given) for net in _nets(task.nets, task.path)}
        versions = _versions(_at(given, task.raw_side), answers, original.pixels, baseline=task.baseline)
        found = {method: metrics.figures(picture, original) for method, picture in versions.items()}
        for method in versions:
            ratios = _with_ratios(found[method], truth, found[INPUT])
            record = Record(portrait.stem, side, groups, case.name, method, ratios, **_decided(answers.get(method)))
            judged.records.append(record)
        if case.name == task.shown:
            judged.pictures.update(versions)
    return judged


def _shade(original: metrics.Original) -> str:
    light = regions.lightness(original.pixels, original.regions["skin"])
    return "L* under 60" if light < 60 else "L* over 75" if light > 75 else "L* 60 to 75"


@functools.cache
def _nets(weights: tuple[Path | None, ...], path: str) -> tuple[Net, ...]:
    """Loaded once a process. Two files of one name are told apart by their folders'."""
    nets = tuple(Net(file, path) for file in weights)
    names = [net.name for net in nets]
    for net, file in zip(nets, weights, strict=True):
        if file is not None and names.count(net.name) > 1:
            net.name = f"{file.resolve().parent.name}/{net.name}"
    if len({net.name for net in nets}) < len(nets):
        raise SystemExit("Two of the --weights have one name; rename one.")
    return nets


def _versions(
    given: UInt8Image, answers: dict[str, Answer], original: UInt8Image, *, baseline: bool
) -> dict[str, UInt8Image]:
    """Method -> picture, in the order of the tables."""
    found = {INPUT: given}
    if baseline:
        found[UNSHARP] = unsharp(given)
    return {**found, **{name: answer.pixels for name, answer in answers.items()}, ORIGINAL: original}


def _decided(answer: Answer | None) -> dict:
    if answer is None:
        return {}
    return {
        "decision": answer.decision,
        "guard": answer.guard,
        "own_detail": answer.own_detail,
        "refused": answer.refused,
        "too_sharp": answer.too_sharp,
        "really": answer.really,
        "reason": answer.reason,
    }


def _with_ratios(figures: Figures, truth: Figures, given: Figures) -> Figures:
    found = dict(figures)
    for name in ("skin", "hair"):
        for against, others in (("original", truth), ("input", given)):
            other = others[name]
            found[f"{name}_{against}"] = figures[name] / other if other > 0 else float("nan")
    return found


def _at(picture: UInt8Image, side: int | None) -> UInt8Image:
    """At ``side`` px (None: as it is): averaged when it shrinks, cubic when it grows, as gpen_cli does with whole crops."""
    if side is None or picture.shape[0] == side:
        return picture
    how = cv2.INTER_AREA if side < picture.shape[0] else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(picture, (side, side), interpolation=how))


def _scaled(padding: regions.Padding, scale: float) -> regions.Padding:
    left, top, right, bottom = (int(np.ceil(value * scale)) for value in padding)
    return left, top, right, bottom
