"""Photos that vanish, are cut off or become others while the run is under way: each its own answer, the others as always."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

from PIL import Image

from faults.folders import Damage, files_of, make_photos, sentences_of, temporaries_of
from faults.table import Table, times
from faults.test_disk import PAUSE, wait_for_a_result

COUNT = 24
NAMES = tuple(f"p{number:02d}.png" for number in range(COUNT))
UNREAD = NAMES[12:]
"""With at most three photos a worker alive, these have not been read when the first result is there."""


def disturb(photos: Path, name: str, how: str) -> None:
    path = photos / name
    if how == "vanishes":
        path.unlink()
    elif how == "is cut off":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "becomes a folder":
        path.unlink()
        path.mkdir()
    elif how == "becomes text":
        path.write_text("I am text now")
    else:  # another picture, put there whole
        Image.new("RGB", (50, 50), (10, 200, 30)).save(photos / ".new.png")
        (photos / ".new.png").replace(path)


WORDS = {
    "vanishes": "does not exist",
    "is cut off": "cut off",
    "becomes a folder": "is a folder",
    "becomes text": "a text file",
    "becomes another": None,
}
"""What the photo's sentence says; None where it is restored as what it has become."""


def test_inputs_change_before_they_are_read(nursery, tmp_path, table: Table):
    wanted, rng, wrong = times(1, 20), random.Random(8), []
    changes = 0
    for count in range(wanted):
        photos, out = make_photos(tmp_path / f"in{count}", NAMES), tmp_path / f"out{count}"
        assert nursery.gpen("batch", photos, tmp_path / "whole").code == 0
        whole = files_of(tmp_path / "whole")
        run = nursery.start("batch", photos, out, "--workers", 2, pause=PAUSE)
        wait_for_a_result(out)
        changed = dict(zip(rng.sample(UNREAD, len(WORDS)), WORDS, strict=True))
        for name, how in changed.items():
            disturb(photos, name, how)
        changes += len(changed)
        ended = run.wait()
        sentences, results = sentences_of(ended.err), files_of(out)
        bad = {name: WORDS[how] for name, how in changed.items() if WORDS[how]}
        wrong += [] if ended.code == 7 and len(sentences) == len(bad) else [f"{ended.code}: {sentences}"]
        wrong += [f"{name}: {sentences}" for name, word in bad.items() if not told(sentences, name, str(word))]
        wrong += [f"{name} has a result" for name in bad if result_of(name) in results]
        others = [name for name in NAMES if name not in changed]
        wrong += [name for name in others if results.get(result_of(name)) != whole[result_of(name)]]
        other = next(name for name, how in changed.items() if WORDS[how] is None)
        wrong += (
            [] if results.get(result_of(other)) not in (None, whole[result_of(other)]) else [f"{other} is as before"]
        )
        wrong += temporaries_of(out)
        shutil.rmtree(tmp_path / "whole")
    table.row(
        "inputs vanish, are cut off, become a folder, text or another picture during the run",
        changes,
        holds="code 7; each named with its reason, another picture restored as what it is; the other photos as always",
        result=f"{len(wrong)} wrong answers in {wanted} runs of {COUNT} photos",
    )
    assert not wrong


def told(sentences: list[str], name: str, word: str) -> bool:
    return any(name in sentence and word in sentence for sentence in sentences)


def result_of(name: str) -> str:
    return name.replace(".png", "_enhanced.png")


def test_inputs_change_at_random_moments(nursery, tmp_path, table: Table):
    """Then ``--resume``: whatever the run had seen, the end is what the photos now say."""
    wanted, rng, damage, codes = times(2, 30), random.Random(9), Damage(), []
    for count in range(wanted):
        photos, out = make_photos(tmp_path / "in", NAMES[:10], seed=count), tmp_path / "out"
        before = shutil.copytree(photos, tmp_path / "before")
        run = nursery.start("batch", photos, out, pause=PAUSE)
        time.sleep(0.1)
        for name in rng.sample(NAMES[:10], 6):
            time.sleep(rng.random() * 0.08)
            disturb(photos, name, rng.choice(("vanishes", "is cut off", "becomes another")))
        ended = run.wait()
        codes.append(ended.code)
        sentences_of(ended.err)
        damage.left += temporaries_of(out)
        for name in NAMES[:10]:  # what vanished or was cut off comes back
            path = photos / name
            if not path.exists() or len(path.read_bytes()) == (before / name).stat().st_size // 2:
                shutil.copyfile(before / name, path)
        assert nursery.gpen("batch", photos, out, "--resume").code == 0
        assert nursery.gpen("batch", photos, tmp_path / "whole").code == 0
        damage.look_at_resumed(out, files_of(tmp_path / "whole"), f"run {count}")
        for folder in (photos, out, before, tmp_path / "whole"):
            shutil.rmtree(folder)
    table.row(
        "six of ten inputs change at random moments, then `--resume`",
        6 * wanted,
        holds="code 0 or 7; after `--resume` each result is that of the photo as it is now",
        result=f"{damage}; codes {', '.join(map(str, sorted(set(codes))))}",
    )
    damage.check()
    assert set(codes) <= {0, 7}
