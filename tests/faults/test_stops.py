"""Ctrl-C and a polite kill at any moment: the code that says so, nothing half-written, nothing left running."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

from faults.folders import Damage, files_of, temporaries_of
from faults.nursery import Nursery
from faults.table import Table, times

PAUSE = 0.02
"""Seconds a crop: with it a stop falls into the work far more often than into the start or the end."""


def shell_code(code: int) -> int:
    """What a shell reports: 128 and the signal's number for a process that the signal itself ended (before gpen's first
    line, where Python's or the system's own handling still stands)."""
    return 128 - code if code < 0 else code


def stop_often(
    nursery: Nursery, photos: Path, whole: dict[str, bytes], folder: Path, number: signal.Signals, wanted: int
) -> tuple[list[int], Damage, list[str]]:
    """Stops ``wanted`` runs with this signal, each in a new folder, then resumes. Returns codes, damage, and what of a
    stopped process was still there as it ended."""
    rng, damage, codes, living = random.Random(number), Damage(), [], []
    begin = time.monotonic()
    assert nursery.gpen("batch", photos, folder / "pace", pause=PAUSE).code == 0
    length = time.monotonic() - begin
    while len(codes) < wanted:
        out = folder / f"out{len(codes)}"
        run = nursery.start("batch", photos, out, "--resume", pause=PAUSE)
        time.sleep(rng.random() * length)
        run.send(number)
        ended = run.wait()
        if ended.code != 0:  # else it had ended before
            codes.append(shell_code(ended.code))
            damage.look_at_stopped(files_of(out), whole, f"stop {len(codes)}")
            damage.left += temporaries_of(out)
            if ended.facts is not None and (ended.facts["threads"] or ended.facts["children"]):
                living.append(str(ended))  # no facts: ended by the signal itself, before gpen's first line
        ended = nursery.gpen("batch", photos, out, "--resume")
        assert ended.code == 0, ended.err
        damage.look_at_resumed(out, whole, f"stop {len(codes)}")
        shutil.rmtree(out, ignore_errors=True)
    return codes, damage, living


def check_stops(nursery, photos, whole, tmp_path, table: Table, *, number: signal.Signals, code: int, wanted: int):
    codes, damage, living = stop_often(nursery, photos, whole, tmp_path, number, wanted)
    right = codes.count(code)
    table.row(
        f"{number.name}, then `--resume`",
        len(codes),
        holds=f"code {code}; no temporary file, thread or child left; resumed as after SIGKILL",
        result=f"code {code} {right} times; {damage}; {len(living)} with a thread or child left",
    )
    damage.check()
    assert not living
    assert codes == [code] * len(codes)


def test_sigint(nursery, photos, whole, tmp_path, table: Table):
    check_stops(nursery, photos, whole, tmp_path, table, number=signal.SIGINT, code=130, wanted=times(10, 100))


def test_sigterm(nursery, photos, whole, tmp_path, table: Table):
    check_stops(nursery, photos, whole, tmp_path, table, number=signal.SIGTERM, code=143, wanted=times(3, 30))


def test_the_terminal_is_closed(nursery, photos, whole, tmp_path, table: Table):
    check_stops(nursery, photos, whole, tmp_path, table, number=signal.SIGHUP, code=143, wanted=times(1, 10))


def test_a_second_sigint_ends_at_once(nursery, photos, whole, tmp_path, table: Table):
    """The net hangs for two seconds a crop: the first Ctrl-C waits for it, the second does not."""
    wanted, slow, damage, codes, seconds = times(2, 10), 2.0, Damage(), [], []
    for count in range(wanted):
        out = tmp_path / f"out{count}"
        run = nursery.start("batch", photos, out, pause=slow)
        time.sleep(0.4)
        run.send(signal.SIGINT)
        time.sleep(0.1)
        run.send(signal.SIGINT)
        begin = time.monotonic()
        codes.append(run.wait().code)
        seconds.append(time.monotonic() - begin)
        assert nursery.gpen("batch", photos, out, "--resume").code == 0
        damage.look_at_resumed(out, whole, f"stop {count}")
    table.row(
        "SIGINT twice while the net hangs",
        wanted,
        holds="code 130 at once; `--resume` completes",
        result=f"code 130 {codes.count(130)} times, {max(seconds):.2f} s after the second at most; {damage}",
    )
    damage.check()
    assert codes == [130] * wanted
    assert max(seconds) < slow / 2
