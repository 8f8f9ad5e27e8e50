"""Ctrl-C and a polite kill at any moment: the code that says so, nothing half-written, nothing left running."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from stand_ins import StandInNet, engine_of

from faults.child import OneFace
from faults.folders import Damage, files_of, make_photos, temporaries_of
from faults.nursery import Ended, Nursery
from faults.table import Table, times
from gpen_cli.data import Job
from gpen_cli.options import Options
from gpen_cli.pipeline import restore_photos

PAUSE = 0.02
"""Seconds a crop: with it a stop falls into the work far more often than into the start or the end."""


def shell_code(code: int) -> int:
    """What a shell reports: 128 and the signal's number for a process that the signal itself ended (before gpen's first
    line, where Python's or the system's own handling still stands)."""
    return 128 - code if code < 0 else code


class Stops:
    """Runs that were stopped. codes: as a shell reports them; living: processes that ended with a thread or child in them;
    late: how many had a thread that ended only after ``gpen`` had returned; swallowed: what runs said that met the
    interruption and went on."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.living: list[str] = []
        self.swallowed: list[str] = []
        self.late = 0
        self.damage = Damage()

    def add(self, ended: Ended) -> None:
        if ended.code == 0:  # it had ended before, unless Python tells that the interruption came and was lost
            self.swallowed += [ended.err] if "KeyboardInterrupt" in ended.err else []
            return
        self.codes.append(shell_code(ended.code))
        if ended.facts is not None:  # else it was ended by the signal itself, before gpen's first line
            self.late += bool(ended.facts["late"])
            if ended.facts["threads"] or ended.facts["children"]:
                self.living.append(str(ended))


def stop_often(
    nursery: Nursery, photos: Path, whole: dict[str, bytes], folder: Path, number: signal.Signals, wanted: int
) -> Stops:
    """Stops ``wanted`` runs with this signal, each in a new folder, then resumes."""
    rng, stops = random.Random(number), Stops()
    begin = time.monotonic()
    assert nursery.gpen("batch", photos, folder / "pace", pause=PAUSE).code == 0
    length = time.monotonic() - begin
    while len(stops.codes) < wanted:
        out = folder / f"out{len(stops.codes)}"
        run = nursery.start("batch", photos, out, "--resume", pause=PAUSE)
        time.sleep(rng.random() * length)
        run.send(number)
        ended = run.wait()
        stops.add(ended)
        stops.damage.look_at_stopped(files_of(out), whole, f"stop {len(stops.codes)}")
        stops.damage.left += temporaries_of(out)
        ended = nursery.gpen("batch", photos, out, "--resume")
        assert ended.code == 0, ended.err
        stops.damage.look_at_resumed(out, whole, f"stop {len(stops.codes)}")
        shutil.rmtree(out, ignore_errors=True)
    return stops


def check_stops(nursery, photos, whole, tmp_path, table: Table, *, number: signal.Signals, code: int, wanted: int):
    stops = stop_often(nursery, photos, whole, tmp_path, number, wanted)
    counts = Counter(stops.codes)
    by_itself = 128 + number
    early = "" if by_itself == code else f" ({by_itself}, the system's own, before gpen's first line)"
    codes = ", ".join(f"code {got} {often} times" for got, often in sorted(counts.items()))
    threads = f"{len(stops.living)} threads or children left ({stops.late} threads ended a moment after gpen)"
    table.row(
        f"{number.name}, then `--resume`",
        len(stops.codes),
        holds=f"code {code}{early}; no temporary file, thread or child left; resumed as after SIGKILL",
        result=f"{codes}; {stops.damage}; {threads}; {len(stops.swallowed)} stops without effect",
    )
    stops.damage.check()
    assert not stops.living
    assert not stops.swallowed
    assert set(counts) <= {code, by_itself}
    assert counts[code]


def test_sigint(nursery, photos, whole, tmp_path, table: Table):
    check_stops(nursery, photos, whole, tmp_path, table, number=signal.SIGINT, code=130, wanted=times(10, 100))


def test_sigterm(nursery, photos, whole, tmp_path, table: Table):
    check_stops(nursery, photos, whole, tmp_path, table, number=signal.SIGTERM, code=143, wanted=times(3, 30))


def test_the_terminal_is_closed(nursery, photos, whole, tmp_path, table: Table):
    check_stops(nursery, photos, whole, tmp_path, table, number=signal.SIGHUP, code=143, wanted=times(3, 10))


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


def test_a_close_that_was_interrupted_is_finished_by_the_next(tmp_path):
    """Ctrl-C as the run is closing after its last photo: whoever closes again must not find threads left."""
    make_photos(tmp_path, ("a.png", "b.png"))
    engine = engine_of(StandInNet(lambda crop: crop, crop_size=64), detector=OneFace())
    jobs = [Job(str(tmp_path / name), tmp_path / f"{name}.out.png", name) for name in ("a.png", "b.png")]
    run = restore_photos(jobs, engine, Options())
    next(run)
    close = run._batcher.close

    def interrupted(*, cancel: bool) -> None:
        run._batcher.close = close
        raise KeyboardInterrupt

    run._batcher.close = interrupted
    with pytest.raises(KeyboardInterrupt):
        run.close()
    run.close()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("gpen-")]
    run._closed = False  # whatever was found: the next test starts without them
    run.close()
    assert not left
