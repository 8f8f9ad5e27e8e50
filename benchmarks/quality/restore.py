"""What a net makes of a crop, by the product's own path: the parts of ``gpen_cli`` that ``gpen enhance`` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpen_cli import geometry
from gpen_cli.data import AlignedFace, Face, Photo, UInt8Image
from gpen_cli.engine import build_engine, crop_side
from gpen_cli.guard import CAUGHT_SHARE
from gpen_cli.log import StageClock
from gpen_cli.options import ComposeOptions, NetOptions, Options, RunOptions
from gpen_cli.restoration import SHARP_ENOUGH, Crop, Plan, guarded, plan_photo, put_back
from gpen_cli.runtime.protocol import NonFiniteOutputError
from gpen_cli.sharpness import own_detail

PATHS = ("aligned", "photo", "raw")
"""aligned: ``gpen enhance --aligned``; photo: as the same face in a whole photo (guard, colour, sharp faces, residual paste),
found at the template's landmarks; raw: the net's own answer, at its own size."""


@dataclass(frozen=True)
class Answer:
    """What comes out for one crop. pixels: of the crop's size (raw: of the net's); decision: the report's, restored | kept.

    guard: share of the change that the guard lets through, or would; own_detail: how far the crop's face is sharper than the
    net's crop can hold (``gpen_cli.sharpness``). Both are asked on every path, even where the path's defaults do not.
    """

    pixels: UInt8Image
    decision: str
    guard: float
    own_detail: float
    reason: str | None = None

    @property
    def refused(self) -> bool:
        """The guard keeps (or would keep) half of the change or more from the photo."""
        return self.guard <= CAUGHT_SHARE

    @property
    def too_sharp(self) -> bool:
        return self.own_detail >= SHARP_ENOUGH

    @property
    def really(self) -> bool:
        """Whether the face is really restored, on this path and in a photo."""
        return self.decision == "restored" and not self.refused and not self.too_sharp


class Net:
    """One file of weights, or None: whatever ``gpen enhance`` takes when nothing is said. path: one of PATHS.

    Raises WeightsError, DeviceError.
    """

    def __init__(self, weights: Path | None, path: str, *, threads: int = 1) -> None:
        self.path = path
        whole = path == "photo"
        self.options = Options(
            net=NetOptions(weights=weights, threads=threads),
            run=RunOptions(aligned=not whole),
            compose=ComposeOptions(upscale=1.0, mask="feather" if whole else "auto"),
        )
        # Nothing is looked for: the detector is not needed even on the path of whole photos.
        self.engine = build_engine(replace(self.options, run=RunOptions(aligned=True)))
        self.name = weights.stem if weights else "+".join(choice.name for choice in self.engine.choices)

    def answer(self, pixels: UInt8Image) -> Answer:
        """(S, S, 3) uint8 RGB crop on GPEN's template, S any size."""
        photo = Photo(pixels, pixels)
        whole = self._whole_photo(photo)
        detail = whole.faces[0].own_detail
        if self.path == "photo" and detail >= SHARP_ENOUGH:  # as plan_photo: the net is not even asked
            return Answer(pixels, "kept", 1.0, detail, "sharper than the net draws it")
        plan = whole if self.path == "photo" else plan_photo(photo, self.engine, self.options, StageClock())
        crop = self._restored(plan.faces[0])
        done = put_back(plan, [crop], self.options)
        judged = guarded(crop, replace(self.options, compose=replace(self.options.compose, guard="on")))
        report = done.reports[0]
        return Answer(
            pixels=crop.restored if self.path == "raw" and crop.restored is not None else done.pixels,
            decision=report.decision,
            guard=0.0 if judged.restored is None else judged.share,
            own_detail=detail,
            reason=report.reason or judged.reason,
        )

    def _whole_photo(self, photo: Photo) -> Plan:
        """As ``plan_photo`` of a photo whose one face was found on the template's landmarks."""
        width = photo.size[0]
        points = geometry.template_points("gpen", width).astype(np.float32)
        face = Face(np.array([0.2, 0.2, 0.8, 0.9], np.float32) * np.float32(width), points, 1.0)
        choice = self.engine.choose(crop_side(face, "gpen"))
        matrix = geometry.crop_from_photo(points, "gpen", choice.crop_size)
        pixels = geometry.warp_crop(photo.shown, matrix, choice.crop_size)
        detail = own_detail(photo.shown, matrix, pixels)
        return Plan(photo, (AlignedFace(face, choice.name, pixels, matrix, detail),), ())

    def _restored(self, face: AlignedFace) -> Crop:
        """As the batcher does: one face a pass on the CPU, so the bytes are the same."""
        net = self.engine.net(face.net)
        try:
            return Crop(face, np.asarray(net.run(face.pixels[None])[0], np.uint8))
        except NonFiniteOutputError as error:
            return Crop(face, None, reason=str(error))


def raw_side(weights: Sequence[Path | None]) -> int:
    """Px of the pictures that ``raw`` judges: what the nets draw. Raises SystemExit when they draw different sizes."""
    sides = set()
    for file in weights:
        net = Net(file, "raw")
        size = net.engine.choices[0].crop_size
        sides.add(net.answer(np.full((size, size, 3), 128, np.uint8)).pixels.shape[0])
    if len(sides) != 1:
        raise SystemExit(
            f"--raw judges at the nets' own size, and these draw {sorted(sides)} px; judge them one by one."
        )
    return sides.pop()
