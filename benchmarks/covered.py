"""Is a covered face told, and an uncovered one left in peace? python benchmarks/covered.py FOLDER [--photos FOLDER]

FOLDER: aligned sharp faces (GPEN template), in 256/ or 512/ or directly. Each is judged as it is and with a mask, dark glasses,
a hand and hair drawn over it (benchmarks/guard.py), sharp and degraded. --photos: whole photos whose faces are counted, too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from guard import Degradation, covered, degraded, portraits
from portraits import files_of

from gpen_cli.condition import face_warnings
from gpen_cli.covered import covering
from gpen_cli.engine import build_engine
from gpen_cli.log import StageClock
from gpen_cli.options import ComposeOptions, Options, ReadOptions
from gpen_cli.photos.read import read_photo
from gpen_cli.restoration import plan_photo

WAYS = (
    Degradation("none"),
    Degradation("blur 2", blur=2.0),
    Degradation("blur 5", blur=5.0),
    Degradation("face of 20 px", face=20.0),
    Degradation("40 px, noise 10, JPEG 40", face=40.0, noise=10.0, quality=40),
    Degradation("noise 20", noise=20.0),
    Degradation("JPEG 10", quality=10),
    Degradation("gray, blur 1", blur=1.0, gray=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=Path)
    given = parser.parse_args()
    faces = portraits(given.folder)
    kinds = ("uncovered", *covered(faces[0]))
    print(f"{len(faces)} faces; share that is told to be covered, %")
    print(f"{'degraded by':26s}" + "".join(f"{kind:>18s}" for kind in kinds))
    for how in WAYS:
        told: Counter[str] = Counter()
        for seed, face in enumerate(faces):
            told["uncovered"] += covering(degraded(face, how, seed)) is not None
            for kind, (picture, _) in covered(face).items():
                told[kind] += covering(degraded(picture, how, seed)) is not None
        print(f"{how.name:26s}" + "".join(f"{100 * told[kind] / len(faces):18.1f}" for kind in kinds))
    if given.photos is not None:
        show_photos(given.photos)


def show_photos(folder: Path) -> None:
    """Counts of warnings over the faces found in whole photos."""
    options = Options(compose=ComposeOptions(sharp_faces="restore"))
    engine = build_engine(options)
    told: Counter[str] = Counter()
    for path in files_of(folder):
        plan = plan_photo(read_photo(path.read_bytes(), path.name, ReadOptions()), engine, options, StageClock())
        told["faces"] += len(plan.faces)
        told.update(warning.split(" (")[0] for face in plan.faces for warning in face_warnings(face))
    print(f"\n{folder}: " + ", ".join(f"{count} {what}" for what, count in told.most_common()))


if __name__ == "__main__":
    main()
