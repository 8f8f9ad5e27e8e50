"""Does the guard see another person, and does it leave honest faces alone? python benchmarks/guard.py FOLDER [--half a|b|both]

FOLDER: aligned sharp faces (GPEN template), one a person, in 256/ or 512/ or directly. Each is degraded in a fixed number of
ways (seeded), restored with the embedded net, and judged against honest and dishonest answers. The persons are split in two
halves by their place in the list: the limits in ``guard.py`` were chosen on half a (even), the figures in docs/guard.md are
half b's (odd). Tables: false alarms by degradation, catches by kind of dishonest answer, the trade-off around the chosen limits,
covered faces, milliseconds a crop.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from portraits import through_jpeg

from gpen_cli.data import UInt8Image
from gpen_cli.engine import build_engine
from gpen_cli.guard import CAUGHT_SHARE, DOUBT, WRONG, Verdict, judge
from gpen_cli.options import NetOptions, Options, RunOptions
from gpen_cli.restore_crop import photo_tone

SIZE = 256
MODEL = "gpen-open-256"
FACE_SHARE = 0.6
"""Longer side of a detector's face box as a share of GPEN's crop: turns "a face of 30 px" into the crop's side."""
ALARM_SHARE = 0.9
MIXED = 6


@dataclass(frozen=True)
class Degradation:
    """blur: sigma in px of the 256 crop; face: px of the face's box in the photo, or None; noise: levels; quality: JPEG's."""

    name: str
    blur: float = 0.0
    face: float | None = None
    noise: float = 0.0
    quality: int | None = None
    gray: bool = False

    @property
    def side(self) -> int:
        """Of the crop, in photo pixels."""
        return SIZE if self.face is None else min(SIZE, round(self.face / FACE_SHARE))


@dataclass(frozen=True)
class Case:
    """A degraded crop and its honest restoration. clean, crop, restored: (256, 256, 3) uint8; shrink: as ``judge`` takes it."""

    person: int
    how: Degradation
    clean: UInt8Image
    crop: UInt8Image
    restored: UInt8Image
    shrink: float


def plans(person: int) -> list[Degradation]:
    """What is done to one person's face: one of each kind, then mixtures."""
    dice = np.random.RandomState(person)

    def face() -> float:
        return float(2.0 ** dice.uniform(4.0, 7.0))

    found = [
        Degradation("none"),
        Degradation("blur", blur=dice.uniform(0.5, 6.0)),
        Degradation("small", face=face()),
        Degradation("noise", noise=dice.uniform(5.0, 25.0)),
        Degradation("JPEG", quality=dice.randint(10, 91)),
    ]
    for _ in range(MIXED):
        found.append(
            Degradation(
                "mixed",
                blur=dice.uniform(0.5, 4.0) * (dice.rand() < 0.7),
                face=face() if dice.rand() < 0.7 else None,
                noise=dice.uniform(0.0, 25.0) * (dice.rand() < 0.7),
                quality=dice.randint(10, 91) if dice.rand() < 0.7 else None,
                gray=dice.rand() < 0.2,
            )
        )
    return found


def degraded(clean: UInt8Image, how: Degradation, seed: int) -> UInt8Image:
    """(256, 256, 3) uint8 as the net would get it: blur, shrink, noise, JPEG in photo pixels, enlarged back."""
    image = clean.astype(np.float32)
    if how.gray:
        image = np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2)
    if how.blur:
        image = cv2.GaussianBlur(image, (0, 0), how.blur)
    if how.side < SIZE:
        image = cv2.resize(image, (how.side, how.side), interpolation=cv2.INTER_AREA)
    if how.noise:
        channels = 1 if how.gray else 3
        image = image + np.random.RandomState(seed).normal(0.0, how.noise, (*image.shape[:2], channels))
    pixels = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    if how.quality is not None:
        pixels = through_jpeg(pixels, how.quality)
    if how.side < SIZE:
        pixels = cv2.resize(pixels, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    return pixels


def portraits(folder: Path) -> list[UInt8Image]:
    """Every aligned face below the folder at 256 px, in the order of the file names."""
    files = sorted((path for path in folder.rglob("*") if path.suffix in (".jpg", ".png")), key=lambda path: path.name)
    return [_at_size(np.asarray(Image.open(path).convert("RGB"))) for path in files]


def _at_size(image: UInt8Image) -> UInt8Image:
    if image.shape[0] == SIZE:
        return image
    return np.asarray(cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_AREA), np.uint8)


def embedded_net() -> Callable[[UInt8Image], UInt8Image]:
    options = Options(net=NetOptions(model=MODEL, device="cpu"), run=RunOptions(aligned=True))
    net = build_engine(options).net(MODEL)
    return lambda crop: net.run(crop[None])[0]


def cases_of(faces: Sequence[tuple[int, UInt8Image]], net: Callable[[UInt8Image], UInt8Image]) -> list[Case]:
    """Every degradation of every (person, face), restored; a person's follow each other."""
    found = []
    for person, clean in faces:
        for number, how in enumerate(plans(person)):
            crop = degraded(clean, how, 1000 * person + number)
            found.append(Case(person, how, clean, crop, net(crop), how.side / SIZE))
    return found


def dishonest(case: Case, cases: Sequence[Case]) -> dict[str, UInt8Image]:
    """Kind -> answer (256, 256, 3) uint8 to the case's crop that is not this face. cases: all of the half, MIXED + 5 a person."""
    clean = {other.person: other.clean for other in cases}
    strangers = [person for person in clean if person != case.person]
    number = next(place for place, other in enumerate(cases) if other is case)
    stranger = strangers[number * 7 % len(strangers)]
    drawn = next(other for other in cases[number % (MIXED + 5) :: MIXED + 5] if other.person == stranger)
    alike = min(strangers, key=lambda person: _unlikeness(clean[person], case.clean))
    before, after, other = (image.astype(np.float32) for image in (case.crop, case.restored, clean[stranger]))
    mean = np.mean([clean[person] for person in strangers], axis=0, dtype=np.float32)
    return {
        "another, sharp": clean[stranger],
        "another, as restored": drawn.restored,
        "another, in the photo's light": _levels(other + photo_tone(before, other)),
        "the most alike of the half": clean[alike],
        "another, 75 %": _levels(0.75 * other + 0.25 * after),
        "another, 50 %": _levels(0.5 * other + 0.5 * after),
        "average face": _levels(mean),
        "mirrored": np.ascontiguousarray(case.restored[:, ::-1]),
        "detail of another": _levels(after + _detail(other) - _detail(after)),
        "eyes closed": eyes_closed(case.restored),
        "eyes 8 px apart": moved(moved(case.restored, EYES[0], (-4.0, 0.0)), EYES[1], (4.0, 0.0)),
        "eyes 6 px higher": moved(moved(case.restored, EYES[0], (0.0, -6.0)), EYES[1], (0.0, -6.0)),
        "mouth 6 px higher": moved(case.restored, MOUTH, (0.0, -6.0)),
        "nose 6 px aside": moved(case.restored, NOSE, (6.0, 0.0)),
    }


EYES, NOSE, MOUTH = ((100.0, 123.0), (156.0, 123.0)), (128.0, 150.0), (128.0, 178.0)
"""Centres in the 256 px crop (``geometry.template_points``)."""
REACH = {EYES[0]: (18.0, 14.0), EYES[1]: (18.0, 14.0), NOSE: (16.0, 18.0), MOUTH: (28.0, 14.0)}
"""Half width and half height over which a part is moved, fading outwards; px of the 256 px crop."""


def moved(face: UInt8Image, part: tuple[float, float], by: tuple[float, float]) -> UInt8Image:
    """The part of a face shifted by so many px, the skin around it stretched."""
    rows, columns = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    far = ((columns - part[0]) / REACH[part][0]) ** 2 + ((rows - part[1]) / REACH[part][1]) ** 2
    share = 1.0 / (1.0 + (far / 2.0) ** 3)
    return np.asarray(
        cv2.remap(face, columns - by[0] * share, rows - by[1] * share, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    )


def eyes_closed(face: UInt8Image) -> UInt8Image:
    """Skin from below both eyes drawn over them, with a dark line for the lids."""
    rows, columns = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    image = face.astype(np.float32)
    for x, y in EYES:
        far = ((columns - x) / 17.0) ** 2 + ((rows - y) / 9.0) ** 2
        cover = np.clip(1.6 - far, 0.0, 1.0)[..., None]
        skin = cv2.GaussianBlur(np.roll(image, -18, axis=0), (0, 0), 2.0)
        line = np.exp(-(((rows - y - 4.0) / 1.5) ** 2) - ((columns - x) / 14.0) ** 4)[..., None]
        image = image + cover * (skin * (1.0 - 0.45 * line) - image)
    return _levels(image)


def _unlikeness(one: UInt8Image, other: UInt8Image) -> float:
    """Mean square of what is left of the difference of two faces at 32 px, brightness and contrast aside."""
    small = [
        cv2.resize(image.mean(axis=2), (32, 32), interpolation=cv2.INTER_AREA)[7:27, 8:24] for image in (one, other)
    ]
    first, second = ((image - image.mean()) / image.std() for image in small)
    return float(np.mean((first - second) ** 2))


def _detail(image: np.ndarray) -> np.ndarray:
    """What a blur of 4 px takes away: what a heavily blurred photo does not tell of a face."""
    return np.asarray(image - cv2.GaussianBlur(image, (0, 0), 4.0))


def _levels(image: np.ndarray) -> UInt8Image:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def covered(clean: UInt8Image) -> dict[str, tuple[UInt8Image, np.ndarray]]:
    """Kind -> (face with something drawn over it, (256, 256) bool where)."""
    cheek = tuple(int(level) for level in np.median(clean[150:170, 80:100].reshape(-1, 3), axis=0))
    brow = tuple(int(level) for level in np.median(clean[30:50, 110:146].reshape(-1, 3), axis=0) // 3)

    def drawn(
        draw: Callable[[np.ndarray, tuple[int, ...]], None], colour: tuple[int, ...]
    ) -> tuple[UInt8Image, np.ndarray]:
        mask = np.zeros((SIZE, SIZE, 3), np.uint8)
        draw(mask, (255, 255, 255))
        share = cv2.GaussianBlur(mask, (0, 0), 0.8).astype(np.float32) / 255.0
        rows = np.linspace(1.12, 0.88, SIZE, dtype=np.float32)[:, None, None]  # light from above
        return _levels(clean + share * (np.float32(colour) * rows - clean)), mask[..., 0] > 0

    def mask(image: np.ndarray, colour: tuple[int, ...]) -> None:
        cv2.fillPoly(image, [np.array([(76, 150), (128, 138), (180, 150), (176, 195), (128, 222), (80, 195)])], colour)

    def glasses(image: np.ndarray, colour: tuple[int, ...]) -> None:
        for x, y in ((100, 125), (156, 125)):
            cv2.ellipse(image, (x, y), (25, 17), 0, 0, 360, colour, -1)
        cv2.line(image, (115, 120), (141, 120), colour, 4)

    def hand(image: np.ndarray, colour: tuple[int, ...]) -> None:
        for finger in range(4):
            cv2.line(image, (185, 245 - 8 * finger), (105 + 6 * finger, 190 - 13 * finger), colour, 12)
        cv2.ellipse(image, (190, 225), (34, 40), 30, 0, 360, colour, -1)

    def hair(image: np.ndarray, colour: tuple[int, ...]) -> None:
        for strand in range(9):
            cv2.line(image, (120 - 6 * strand, 55), (116 - 5 * strand, 160), colour, 4)

    return {
        "mask": drawn(mask, (150, 190, 215)),
        "sunglasses": drawn(glasses, (25, 25, 30)),
        "hand": drawn(hand, cheek),
        "hair over an eye": drawn(hair, brow),
    }


def caught(verdict: Verdict) -> bool:
    return verdict.share <= CAUGHT_SHARE


def alarmed(verdict: Verdict) -> bool:
    return verdict.share < ALARM_SHARE


Verdicts = dict[str, list[Verdict]]


def judged(cases: Sequence[Case]) -> tuple[Verdicts, Verdicts, Verdicts]:
    """Verdicts on the net's answer and on the sharp original, by degradation; and on other faces, by kind."""
    honest: Verdicts = {}
    ideal: Verdicts = {}
    wrong: Verdicts = {}
    for case in cases:
        honest.setdefault(case.how.name, []).append(judge(case.crop, case.restored, shrink=case.shrink))
        ideal.setdefault(case.how.name, []).append(judge(case.crop, case.clean, shrink=case.shrink))
        for kind, answer in dishonest(case, cases).items():
            wrong.setdefault(kind, []).append(judge(case.crop, answer, shrink=case.shrink))
    return honest, ideal, wrong


def show_rows(title: str, rows: Verdicts, what: Callable[[Verdict], bool]) -> None:
    print(f"\n{title:<44} {'judged':>6} {'share':>7}   score: 2 %   half   98 %")
    for name, verdicts in {**rows, "all": [verdict for row in rows.values() for verdict in row]}.items():
        low, middle, high = np.percentile([verdict.score for verdict in verdicts], (2, 50, 98))
        share = 100.0 * np.mean([what(verdict) for verdict in verdicts])
        print(f"{name:<44} {len(verdicts):>6} {share:>5.1f} % {low:>13.2f} {middle:>6.2f} {high:>6.2f}")


def show_trade(honest: Verdicts, ideal: Verdicts, wrong: Verdicts) -> None:
    """What other limits would give: both limits times a factor."""
    kinds = {"net": honest, "original": ideal, "persons": {}, "parts": {}}
    for kind, row in wrong.items():
        kinds["parts" if kind.split()[0] in ("detail", "eyes", "nose", "mouth") else "persons"][kind] = row
    scores = {name: np.array([one.score for row in rows.values() for one in row]) for name, rows in kinds.items()}
    alarm, catch = (_score_of(share) for share in (ALARM_SHARE, CAUGHT_SHARE))
    print("\nlimits times   alarms: net   original   caught: another person   a part or detail")
    for factor in (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0):
        alarms = [100.0 * np.mean(scores[name] > factor * alarm) for name in ("net", "original")]
        catches = [100.0 * np.mean(scores[name] >= factor * catch) for name in ("persons", "parts")]
        print(f"{factor:>12.2f} {alarms[0]:>11.1f} % {alarms[1]:>8.1f} % {catches[0]:>22.1f} % {catches[1]:>12.1f} %")


def _score_of(share: float) -> float:
    """The score at which the guard's smooth step comes down to ``share``."""
    scores = np.linspace(DOUBT, WRONG, 4001)
    way = (scores - DOUBT) / (WRONG - DOUBT)
    return float(scores[np.argmax(1.0 - way * way * (3.0 - 2.0 * way) <= share)])


def show_covered(faces: Sequence[tuple[int, UInt8Image]], net: Callable[[UInt8Image], UInt8Image]) -> None:
    """What the net does to a covered face and what the guard says; and if the cover had been taken away."""
    how = Degradation("photo", blur=1.5, noise=8.0, quality=60)
    rows: dict[str, list[tuple[float, float, Verdict, Verdict]]] = {}
    for person, clean in faces:
        for kind, (face, where) in covered(clean).items():
            crop = degraded(face, how, person)
            restored = net(crop)
            change = np.abs(restored.astype(np.float32) - face).mean(axis=2)
            verdicts = judge(crop, restored, shrink=1.0), judge(crop, clean, shrink=1.0)
            rows.setdefault(kind, []).append((float(change[where].mean()), float(change[~where].mean()), *verdicts))
    print(
        "\ncovered by           net's levels off the sharp face: under it, elsewhere   alarms   uncovered again: caught"
    )
    for kind, row in rows.items():
        under, elsewhere = np.mean([one[:2] for one in row], axis=0)
        alarms, catches = (
            100 * np.mean([alarmed(one[2]) for one in row]),
            100 * np.mean([caught(one[3]) for one in row]),
        )
        print(f"{kind:<18} {under:>46.1f} {elsewhere:>10.1f} {alarms:>8.1f} % {catches:>22.1f} %")


def show_time(case: Case) -> None:
    for side in (256, 512):
        pair = [cv2.resize(image, (side, side), interpolation=cv2.INTER_CUBIC) for image in (case.crop, case.restored)]
        start = time.perf_counter()
        for _ in range(50):
            judge(pair[0], pair[1], shrink=1.0)
        print(f"{side} px: {1000.0 * (time.perf_counter() - start) / 50:.1f} ms a crop")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=("a", "b", "both"), default="b")
    parser.add_argument("--faces", type=int, help="at most so many of them")
    arguments = parser.parse_args()
    chosen = [
        (person, face)
        for person, face in enumerate(portraits(arguments.folder))
        if arguments.half == "both" or arguments.half == "ab"[person % 2]
    ][: arguments.faces]
    net = embedded_net()
    cases = cases_of(chosen, net)
    print(f"{len(chosen)} persons, {len(cases)} degraded crops, {MODEL}")
    honest, ideal, wrong = judged(cases)
    show_rows("false alarms (share below 0.9): the net", honest, alarmed)
    show_rows("false alarms: the sharp original", ideal, alarmed)
    show_rows("caught (share 0.5 or less)", wrong, caught)
    show_trade(honest, ideal, wrong)
    show_covered(chosen, net)
    show_time(cases[0])


if __name__ == "__main__":
    main()
