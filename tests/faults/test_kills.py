"""SIGKILL at any moment: ``--resume`` completes the folder to the bytes of an undisturbed run, and no original is harmed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.folders import Damage, files_of, make_copy, resumed_of, sentences_of, temporaries_of
from faults.nursery import COMMAND, ENVIRONMENT, Nursery
from faults.table import LONG, Table, times

MOST_KILLS_A_FOLDER = 4
KINDS: list[list[object]] = [[], ["--format", "same"], ["--format", "bmp"], ["--strip-metadata"]]
"""A result without our mark in it (BMP, stripped) that a killed run had not yet written down is still ours."""


class Pace:
    """How long a run lives, so that kills fall over all of its life: a start and an end that do not depend on the work,
    and the photos between."""

    def __init__(self, nursery: Nursery, arguments: list[object]) -> None:
        self._lengths = []
        for _ in range(2):  # the second has nothing left to do
            begin = time.monotonic()
            assert nursery.gpen(*arguments).code == 0
            self._lengths.append(time.monotonic() - begin)

    def moment(self, rng: random.Random, share_left: float) -> float:
        """Seconds after the start of a run that has ``share_left`` of its photos to do."""
        whole, idle = self._lengths
        return rng.random() * (idle + max(0.0, whole - idle) * share_left)


class Kind:
    """A kind of results: what an undisturbed run makes, and how long that takes."""

    def __init__(self, nursery: Nursery, photos: Path, out: Path, flags: list[object]) -> None:
        self.flags = flags
        self.pace = Pace(nursery, ["batch", photos, out, "--resume", *flags])
        self.whole = files_of(out)


def kill_and_look(
    nursery: Nursery, arguments: list[object], moment: float, look: Callable[[str], None], tally: dict[str, int]
) -> None:
    """One run, killed ``moment`` seconds after its start if it still lives; then ``look`` at what is there."""
    run = nursery.start(*arguments)
    time.sleep(moment)
    run.send(signal.SIGKILL)
    ended = run.wait()
    assert ended.code in (0, -signal.SIGKILL), ended.err
    tally["kills"] += ended.code != 0
    look(f"kill {tally['kills']} after {moment:.4f} s")


def test_sigkill_then_resume(nursery, photos, tmp_path, table: Table):
    wanted, rng, damage = times(100, 1000), random.Random(3), Damage()
    originals, tally, written = files_of(photos), {"kills": 0}, 0
    kinds = [Kind(nursery, photos, tmp_path / f"whole{number}", flags) for number, flags in enumerate(KINDS)]
    folders = 0
    while tally["kills"] < wanted:
        kind, folders = kinds[folders % len(kinds)], folders + 1
        out, whole = tmp_path / f"out{folders}", kind.whole
        arguments = ["batch", photos, out, "--resume", *kind.flags]

        def look(where: str, out: Path = out, whole: dict[str, bytes] = whole) -> None:
            nonlocal written
            damage.look_at_stopped(files_of(out), whole, where)
            written += bool(temporaries_of(out))

        for _ in range(rng.randint(1, MOST_KILLS_A_FOLDER)):
            left = 1 - len(files_of(out)) / len(whole)
            kill_and_look(nursery, arguments, kind.pace.moment(rng, left), look, tally)
        ended = nursery.gpen(*arguments)
        damage.look_at_resumed(out, whole, f"folder {folders}, {kind.flags}: {ended.code} {sentences_of(ended.err)}")
        tally["resumed"] = tally.get("resumed", 0) + (ended.code == 0)
        if folders % 10 == 1:  # and the manifest knows it: nothing is done again
            assert resumed_of(nursery.gpen(*arguments).err) == len(whole)
        shutil.rmtree(out)
    table.row(
        "SIGKILL, then `--resume` (PNG, `--format same`, `--format bmp`, `--strip-metadata` in turn)",
        tally["kills"],
        holds="`--resume` ends with 0; every result is there, whole, with the bytes of an undisturbed run",
        result=f"{damage}; {tally['resumed']} of {folders} folders completed; {written} kills fell into a write",
    )
    damage.check()
    assert tally["resumed"] == folders
    assert files_of(photos) == originals
    assert written or not LONG  # the short form may miss the few milliseconds of writing


def test_sigkill_in_place(nursery, photos, tmp_path, table: Table):
    """The run that may replace originals: at every moment each is there, under its own name or as .orig."""
    wanted, rng, damage = times(10, 100), random.Random(4), Damage()
    undisturbed = shutil.copytree(photos, tmp_path / "undisturbed", ignore=shutil.ignore_patterns("*.bmp"))
    originals, tally, folders = files_of(undisturbed), {"kills": 0}, 0
    pace = Pace(nursery, ["batch", undisturbed, "--in-place"])
    whole = files_of(undisturbed)
    while tally["kills"] < wanted:
        folders += 1
        folder = make_copy(originals, tmp_path / f"in{folders}")

        def look(where: str, folder: Path = folder) -> None:
            found = files_of(folder)
            for name, data in originals.items():
                if data not in (found.get(name), found.get(f"{name}.orig")):
                    damage.lost.append(f"{where}: {name}")
                if found.get(name) not in (data, whole[name]):
                    damage.torn.append(f"{where}: {name}")

        for _ in range(rng.randint(1, MOST_KILLS_A_FOLDER)):
            kill_and_look(nursery, ["batch", folder, "--in-place"], pace.moment(rng, 1.0), look, tally)
        ended = nursery.gpen("batch", folder, "--in-place")
        assert ended.code == 0, ended.err
        damage.look_at_resumed(folder, whole, f"folder {folders}")
        shutil.rmtree(folder)
    table.row(
        "SIGKILL of `--in-place`, then the same again",
        tally["kills"],
        holds="each original is there at every moment; the end is that of an undisturbed run",
        result=f"{damage}; {folders} folders",
    )
    damage.check()


@pytest.mark.parametrize("flags", [[], ["--strip-metadata"]], ids=["bmp", "stripped"])
def test_in_place_again_where_results_carry_no_mark(nursery, photos, tmp_path, flags):
    """A run that was killed is started again: what it had done is not touched, and nobody is told to move originals."""
    name = "sub/deep/e.bmp" if not flags else "a.jpg"
    folder = make_copy({Path(name).name: files_of(photos)[name]}, tmp_path / "in")
    assert nursery.gpen("batch", folder, "--in-place", *flags).code == 0
    once = files_of(folder)
    again = nursery.gpen("batch", folder, "--in-place", *flags)
    assert files_of(folder) == once
    assert (again.code, sentences_of(again.err)) == (0, [])


def test_sigkill_of_a_whole_process(photos, tmp_path, table: Table):
    """Without the nursery: an interpreter of its own, killed from its first import on."""
    wanted, rng, damage = times(2, 20), random.Random(5), Damage()

    def start(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, "batch", str(photos), str(out), "--resume"],
            env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    begin = time.monotonic()
    first = start(tmp_path / "pace")
    assert first.communicate(timeout=60)[1] is not None
    assert first.returncode == 0
    length, kills, whole = time.monotonic() - begin, 0, files_of(tmp_path / "pace")
    while kills < wanted:
        out = tmp_path / f"out{kills}"
        run = start(out)
        time.sleep(rng.random() * length)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate(timeout=60)
        kills += run.returncode != 0
        damage.look_at_stopped(files_of(out), whole, f"kill {kills}")
        again = start(out)
        _, err = again.communicate(timeout=60)
        assert again.returncode == 0, err
        damage.look_at_resumed(out, whole, f"kill {kills}")
        shutil.rmtree(out)
    table.row(
        "SIGKILL from the interpreter's first moment on, then `--resume`", kills, holds="the same", result=f"{damage}"
    )
    damage.check()
