"""A full disk, a folder that cannot be written, a folder that goes away: one sentence, code 6, nothing half-written."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults.folders import Damage, files_of, make_photos, sentences_of, temporaries_of
from faults.nursery import Ended, Nursery
from faults.table import Table, times

NOBODY = 65534
BLOCK = 4096
DISK_BYTES = 4 * 2**20
PAUSE = 0.02

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk or become another user")


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "gpen-faults", str(path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


class Answers:
    """What runs said that could not write: code 6 and one sentence each; a run that told more is kept here."""

    def __init__(self) -> None:
        self.count = 0
        self.wrong: list[str] = []

    def add(self, ended: Ended) -> None:
        self.count += 1
        sentences = [line for line in ended.err.splitlines() if line.startswith("error: ")]
        if ended.code != 6 or len(sentences) != 1 or not sentences[0].endswith(".") or "Traceback" in ended.err:
            self.wrong.append(f"code {ended.code}: {ended.err}")

    def __str__(self) -> str:
        return f"{self.count - len(self.wrong)} of {self.count} with code 6 and one sentence"


def fill(disk: Path, free: int) -> Path:
    """A file that leaves ``free`` bytes of the disk, in whole blocks."""
    filler = disk / "filler"
    info = os.statvfs(disk)
    with contextlib.suppress(OSError):  # the run was faster and took some of it
        filler.write_bytes(bytes(max(0, info.f_bavail * info.f_frsize - free) // BLOCK * BLOCK))
    return filler


def resume_on(nursery: Nursery, photos: Path, out: Path, whole: dict[str, bytes], damage: Damage) -> None:
    ended = nursery.gpen("batch", photos, out, "--resume")
    assert ended.code == 0, ended.err
    damage.look_at_resumed(out, whole, out.name)


@needs_root
def test_the_disk_is_full(nursery, photos, whole, tmp_path, table: Table):
    """From nothing free to just too little; every other time it fills up while the run is under way."""
    wanted, rng, damage, answers = times(6, 50), random.Random(6), Damage(), Answers()
    need = sum(-(-len(data) // BLOCK) * BLOCK for data in whole.values())
    with small_disk(tmp_path / "disk") as disk:
        for count in range(wanted):
            out = disk / f"out{count}"
            free = 0 if count == 0 else rng.randrange(int(need * 0.9))
            if count % 2:
                run = nursery.start("batch", photos, out, pause=PAUSE)
                wait_for_a_result(out)
                filler = fill(disk, free // 4)
            else:
                filler = fill(disk, free)
                run = nursery.start("batch", photos, out)
            answers.add(run.wait())
            damage.look_at_stopped(files_of(out), whole, f"{free} bytes free")
            damage.left += temporaries_of(out)
            filler.unlink()
            resume_on(nursery, photos, out, whole, damage)
            shutil.rmtree(out)
    table.row(
        "disk full (tmpfs), then space and `--resume`",
        answers.count,
        holds="code 6, one sentence; what was done stays; nothing half-written; resumed as after SIGKILL",
        result=f"{answers}; {damage}",
    )
    damage.check()
    assert not answers.wrong


def test_files_may_not_grow(nursery, photos, whole, tmp_path, table: Table):
    """RLIMIT_FSIZE between the smallest result and the largest."""
    wanted, rng, damage, answers = times(4, 40), random.Random(7), Damage(), Answers()
    sizes = sorted(len(data) for data in whole.values())
    for count in range(wanted):
        out = tmp_path / f"out{count}"
        answers.add(nursery.gpen("batch", photos, out, file_bytes=rng.randrange(sizes[0], sizes[-1])))
        damage.look_at_stopped(files_of(out), whole, f"limit {count}")
        damage.left += temporaries_of(out)
        resume_on(nursery, photos, out, whole, damage)
        shutil.rmtree(out)
    table.row(
        "files may not grow (RLIMIT_FSIZE)", answers.count, holds="the same as for a full disk",
        result=f"{answers}; {damage}",
    )  # fmt: skip
    damage.check()
    assert not answers.wrong


def make_unwritable(kind: str, out: Path) -> None:
    """Root's folders, which another user may read and not write."""
    if kind == "parent":
        return
    out.mkdir()
    if kind == "subfolder":
        out.chmod(0o777)
        (out / "sub").mkdir()
    if kind == "manifest":
        out.chmod(0o777)
        (out / ".gpen-manifest.jsonl").touch(0o644)


@needs_root
def test_another_users_folder(nursery, open_folder, table: Table):
    """Root writes whatever the modes say, so the run is another user's."""
    photos, answers, damage = make_photos(open_folder / "in"), Answers(), Damage()
    originals = files_of(photos)
    for kind in ("parent", "folder", "subfolder", "manifest"):
        out = open_folder / kind
        make_unwritable(kind, out)
        answers.add(nursery.gpen("batch", photos, out, user=NOBODY))
        damage.left += temporaries_of(open_folder)
    in_place = nursery.gpen("batch", photos, "--in-place", user=NOBODY)
    answers.add(in_place)
    damage.left += temporaries_of(open_folder)
    table.row(
        "another user's folder: OUTPUT's parent, OUTPUT, a folder in it, its manifest, `--in-place`",
        answers.count,
        holds="code 6, one sentence; originals untouched, nothing half-written",
        result=f"{answers}; {len(damage.left)} temporary files left",
    )
    damage.check()
    assert not answers.wrong
    assert files_of(photos) == originals


@needs_root
def test_a_photo_that_may_not_be_read_is_that_photos_error(nursery, open_folder, whole):
    photos, out = make_photos(open_folder / "in"), open_folder / "out"
    (photos / "b.tif").chmod(0)
    out.mkdir()
    out.chmod(0o777)
    ended = nursery.gpen("batch", photos, out, user=NOBODY)
    assert ended.code == 7
    assert [("b.tif" in sentence, "Permission" in sentence) for sentence in sentences_of(ended.err)] == [(True, True)]
    assert files_of(out) == {name: data for name, data in whole.items() if name != "b_enhanced.png"}


def wait_for_a_result(out: Path, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not files_of(out):
        assert time.monotonic() < deadline, "no result came"
        time.sleep(0.002)


def test_the_output_folder_goes_away(nursery, photos, whole, tmp_path, table: Table):
    """Removed, or moved elsewhere (as a disk that is unplugged), while the run writes into it."""
    wanted, damage, answers = times(2, 40), Damage(), Answers()
    for count in range(wanted):
        out, moved = tmp_path / f"out{count}", tmp_path / f"moved{count}"
        run = nursery.start("batch", photos, out, pause=PAUSE)
        wait_for_a_result(out)
        out.rename(moved)
        if count % 2:
            shutil.rmtree(moved)
        answers.add(run.wait())
        damage.look_at_stopped(files_of(moved), whole, f"run {count}")
        assert not files_of(out)
        if moved.exists():
            moved.rename(out)
        resume_on(nursery, photos, out, whole, damage)
    table.row(
        "OUTPUT removed or moved away during the run, then `--resume`",
        answers.count,
        holds="code 6, one sentence; resumed as after SIGKILL",
        result=f"{answers}; {damage}",
    )
    damage.check()
    assert not answers.wrong
