"""Damaged files, read in child processes: no crash, no hang, every answer a picture or one sentence."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from faults.mutations import HARMS, mutated, seeds
from faults.nursery import Nursery
from faults.reading import HANG_SECONDS
from faults.table import Table, times

FILES_A_CHILD = 100
MEMORY_BYTES = 4 * 2**30
"""Address space of a child: a header that promises gigabytes must end in a sentence, not in them."""


@dataclass
class Answers:
    """counts: how often photo, refused, wrong, hang or crash; broken: what was wrong with which file."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0

    def read(self, out: str, code: int, err: str) -> int:
        """Takes a child's lines; returns how many files it got through, the one that ended it among them."""
        lines = out.splitlines()
        for name, answer in zip(lines[::2], lines[1::2], strict=False):
            seconds, _, text = answer.partition(" ")
            self.slowest = max(self.slowest, float(seconds))
            self._count(text.partition(":")[0], name.removeprefix("begin "), text)
        if len(lines) % 2 or code != 0:
            kind = "hang" if "Timeout" in err else "crash"
            self._count(kind, lines[-1].removeprefix("begin ") if lines else "?", f"{kind}, code {code}: {err[-2000:]}")
        return (len(lines) + 1) // 2

    def _count(self, kind: str, name: str, text: str) -> None:
        self.counts[kind] += 1
        if kind not in ("photo", "refused"):
            self.broken[name] = text


def read_in_children(nursery: Nursery, paths: list[Path]) -> Answers:
    answers, rest = Answers(), [str(path) for path in paths]
    while rest:
        ended = nursery.start(fuzz=rest[:FILES_A_CHILD], memory_bytes=MEMORY_BYTES).wait(FILES_A_CHILD * HANG_SECONDS)
        got = answers.read(ended.out, ended.code, ended.err)
        assert got, ended
        rest = rest[got:]
    return answers


def keep(broken: dict[str, str], folder: Path) -> str:
    """Puts the files that broke something where they outlive the test; returns the message that names them."""
    if not broken:
        return ""
    kept = Path(tempfile.mkdtemp(prefix="gpen-fuzz-"))
    for name in broken:
        shutil.copy(folder / name, kept)
    return f"kept in {kept}:\n" + "\n".join(f"{name}: {text}" for name, text in broken.items())


def test_a_crash_and_a_hang_are_seen():
    """The suite would also prove little if it took a dead child for an answer."""
    answers = Answers()
    assert answers.read("begin a\n0.001 photo\nbegin b\n", -11, "Segmentation fault") == 2
    assert answers.read("begin c\n", 1, "Timeout (0:00:05)!\nThread 0x1") == 1
    assert answers.read("begin d\n0.001 wrong: ZeroDivisionError: x\n", 0, "") == 1
    assert answers.counts == {"photo": 1, "crash": 1, "hang": 1, "wrong": 1}
    assert set(answers.broken) == {"b", "c", "d"}


def test_whole_files_are_read(nursery, tmp_path):
    """The suite would prove little if its undamaged files were refused."""
    whole = seeds()
    for kind, data in whole.items():
        (tmp_path / kind).write_bytes(data)
    answers = read_in_children(nursery, [tmp_path / kind for kind in whole])
    assert answers.counts == {"photo": len(whole)}, answers


def test_damaged_files(nursery, tmp_path, table: Table):
    count, whole = times(300, 2000), seeds()
    paths = []
    for number in range(count):
        name, data = mutated(number, whole)
        paths.append(tmp_path / name)
        paths[-1].write_bytes(data)
    answers = read_in_children(nursery, paths)
    message = keep(answers.broken, tmp_path)
    counts = answers.counts
    table.row(
        f"damaged files, each read with and without `--allow-truncated`: {len(whole)} kinds, {len(HARMS)} sorts of damage",
        count,
        holds=f"no crash, no hang over {HANG_SECONDS:.0f} s, every answer a picture or one sentence",
        result=f"{counts['crash']} crashes, {counts['hang']} hangs, {counts['wrong']} other answers; "
        f"{counts['photo']} pictures, {counts['refused']} sentences; slowest {answers.slowest:.2f} s",
    )
    assert not answers.broken, message
    assert sum(counts.values()) == count
    assert min(counts["photo"], counts["refused"]) > count // 20
