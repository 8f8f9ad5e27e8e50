"""Small folders of photos, and what may be found in an output folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

MANIFEST = ".gpen-manifest.jsonl"
NAMES = (
    "a.jpg",
    "a.png",  # the same stem: both must survive
    "b.tif",
    "cafe\u0301 \U0001f4f7.png",
    "sub/a.jpg",
    "sub/c.webp",
    "sub/deep/d.png",
    "sub/deep/e.bmp",
)


def make_photos(folder: Path, names: tuple[str, ...] = NAMES, seed: int = 0) -> Path:
    """A photo for each name, 40 to 96 px a side: noise over a gradient, so that a piece of a file is never the whole."""
    rng = np.random.default_rng(seed)
    for name in names:
        width, height = (int(side) for side in rng.integers(40, 97, 2))
        ramp = np.linspace(0, 120, width)[None, :, None] + rng.integers(0, 60, (height, width, 3))
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(ramp.astype(np.uint8)).save(path)
    return folder


def make_copy(files: dict[str, bytes], folder: Path) -> Path:
    """A new folder with these files: relative name -> bytes."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything under a folder but its manifest and half-written files: relative name -> bytes."""
    paths = sorted(folder.rglob("*")) if folder.exists() else []
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.is_file() and path.name != MANIFEST and not is_temporary(path)
    }


def is_temporary(path: Path) -> bool:
    return path.name.startswith(".gpen-") and path.name.endswith(".tmp")


def temporaries_of(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if is_temporary(path)] if folder.exists() else []


def sentences_of(err: str) -> list[str]:
    """The errors a run told; fails where it told a traceback."""
    assert "Traceback" not in err, err
    return [line for line in err.splitlines() if line.startswith("error: ")]


@dataclass
class Damage:
    """What was found wrong, each as a sentence; a suite that finds nothing prints zeros."""

    lost: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def look_at_stopped(self, found: dict[str, bytes], whole: dict[str, bytes], where: str) -> None:
        """After a run was stopped: whatever lies under a final name must be the whole result."""
        for name, data in found.items():
            if data != whole.get(name):
                self.torn.append(f"{where}: {name} has {len(data)} bytes")

    def look_at_resumed(self, folder: Path, whole: dict[str, bytes], where: str) -> None:
        """After the last run: everything is there, the same to the byte, and nothing else."""
        found = files_of(folder)
        self.lost += [f"{where}: {name}" for name in whole.keys() - found.keys()]
        self.different += [f"{where}: {name}" for name, data in found.items() if data != whole.get(name)]
        self.left += [f"{where}: {path}" for path in temporaries_of(folder)]

    def __str__(self) -> str:
        counts = f"{len(self.lost)} lost, {len(self.torn)} torn, {len(self.different)} different"
        return f"{counts}, {len(self.left)} temporary files left"

    def check(self) -> None:
        found = self.lost + self.torn + self.different + self.left
        assert not found, f"{self}: {found[:20]}"


def resumed_of(err: str) -> int:
    """How many photos ``--resume`` left out, by its own word."""
    match = re.search(r"resuming: (\d+) of", err)
    assert match, err
    return int(match[1])
