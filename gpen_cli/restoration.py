"""What is done to one photo, apart from how photos move: find and align its faces; put restored faces back.

Used by the pipeline for files and by ``Restorer`` for arrays: there is one path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from gpen_cli import compose, geometry
from gpen_cli.condition import face_warnings
from gpen_cli.data import AlignedFace, Face, FaceReport, Float32Array, Photo, PhotoPixels, UInt8Image
from gpen_cli.detect.search import find_faces
from gpen_cli.engine import Engine, crop_side
from gpen_cli.guard import judge
from gpen_cli.log import StageClock
from gpen_cli.options import ComposeOptions, Options
from gpen_cli.restore_crop import LUMA, kept_detail, residual_of
from gpen_cli.sharpness import own_detail
from gpen_cli.upscale import canvas_size, choose_scale, enlarge

SHARP_ENOUGH = 0.95
"""``own_detail`` from which a face is not sent to the net at all."""

NO_FACE_HINTS = (
    "Faces are found best when they look towards the camera; --min-face and --det-threshold let smaller and fainter "
    "ones through; --try-rotations helps when the picture may lie on its side."
)


@dataclass(frozen=True)
class Plan:
    """A photo whose faces are ready for the nets. untouched: faces seen and left as they are, with reasons."""

    photo: Photo
    faces: tuple[AlignedFace, ...]
    untouched: tuple[FaceReport, ...]


@dataclass(frozen=True)
class Crop:
    """What came of one face. restored: (S, S, 3) uint8, or None when it is kept (``reason``); labels: ParseNet's or None.

    share: how much of the change the guard lets through, with the ``reason`` when that is not all.
    """

    face: AlignedFace
    restored: UInt8Image | None
    reason: str | None = None
    share: float = 1.0
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class Restoration:
    """The finished picture. pixels: (H, W, 3) and alpha: (H, W) in the photo's type and space; patches: what was pasted."""

    pixels: PhotoPixels
    alpha: PhotoPixels | None
    reports: tuple[FaceReport, ...]
    scale: float
    patches: tuple[compose.Patch, ...]


def plan_photo(photo: Photo, engine: Engine, options: Options, clock: StageClock) -> Plan:
    """Finds the faces that the options ask for and aligns each for the net it goes to."""
    if options.run.aligned:
        with clock.stage("align"):
            return Plan(photo, (_whole_as_crop(photo, engine),), ())
    with clock.stage("detect"):
        found = find_faces(engine.detector, photo.shown, options.faces)
    plan = plan_faces(photo, found.faces, engine, options, clock)
    skipped = [FaceReport(face, "skipped", reason=reason) for face, reason in found.rejected]
    return replace(plan, untouched=(*plan.untouched, *skipped))


def plan_faces(photo: Photo, faces: Sequence[Face], engine: Engine, options: Options, clock: StageClock) -> Plan:
    """Aligns faces that were found, each for the net it goes to; those that are sharp already are left alone."""
    with clock.stage("align"):
        aligned = [_align(photo, face, engine, options) for face in faces]
    sharp = [face for face in aligned if face.own_detail >= SHARP_ENOUGH]
    untouched = [FaceReport(face.face, "kept", net=face.net, reason=_sharp_reason(face)) for face in sharp]
    return Plan(photo, tuple(face for face in aligned if face.own_detail < SHARP_ENOUGH), tuple(untouched))


def _align(photo: Photo, face: Face, engine: Engine, options: Options) -> AlignedFace:
    template = options.faces.template
    choice = engine.choose(crop_side(face, template))
    matrix = geometry.crop_from_photo(face.landmarks, template, choice.crop_size)
    crop = geometry.warp_crop(photo.shown, matrix, choice.crop_size)
    detail = own_detail(photo.shown, matrix, crop) if options.compose.sharp_faces == "keep" else 0.0
    return AlignedFace(face, choice.name, crop, matrix, detail)


def _sharp_reason(face: AlignedFace) -> str:
    return f"sharper in the photo than a net of {face.pixels.shape[0]} px draws it (--sharp-faces restore overrides)"


def _whole_as_crop(photo: Photo, engine: Engine) -> AlignedFace:
    """--aligned: the picture is the crop."""
    width, height = photo.size
    choice = engine.choose(float(max(width, height)))
    crop_from_photo = geometry.scaling((width, height), (choice.crop_size, choice.crop_size))
    points = geometry.apply(geometry.invert(crop_from_photo), geometry.template_points("gpen", choice.crop_size))
    face = Face(np.array([0, 0, width, height], np.float32), points.astype(np.float32), 1.0)
    return AlignedFace(face, choice.name, _resize(photo.shown, (choice.crop_size, choice.crop_size)), crop_from_photo)


def _resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Any resize of a whole crop: averaged when it shrinks, cubic when it grows, untouched at its own size."""
    height, width = image.shape[:2]
    if (width, height) == size:
        return image
    shrinks = size[0] < width or size[1] < height
    return np.asarray(
        cv2.resize(image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC), image.dtype
    )


def put_back(plan: Plan, crops: Sequence[Crop], options: Options) -> Restoration:
    """The photo with its restored faces, at the size the options ask for."""
    crops = [guarded(crop, options) for crop in crops]
    scale = choose_scale(options, plan.photo.size)
    size = canvas_size(plan.photo.size, scale)
    patches: tuple[compose.Patch, ...] = ()
    if options.run.aligned:
        pixels = _aligned_canvas(plan.photo, crops[0], size, options.compose)
    else:
        patches = tuple(_patch(crop, options.compose) for crop in crops if crop.restored is not None)
        pixels = compose.paste(plan.photo, patches, size)
    alpha = plan.photo.alpha
    return Restoration(
        pixels=pixels,
        alpha=None if alpha is None else enlarge(alpha, size),
        reports=(*(_report(crop) for crop in crops), *plan.untouched),
        scale=scale,
        patches=patches,
    )


def guarded(crop: Crop, options: Options) -> Crop:
    """The crop after the guard looked at it: whole, to be blended back, or not to be used."""
    wanted = options.compose.guard or ("off" if options.run.aligned else "on")
    if wanted == "off" or crop.restored is None:
        return crop
    size = crop.restored.shape[0]
    face = _at_size_of(crop.face, size)
    shrink = 1.0 / geometry.scale_of(face.crop_from_photo)
    verdict = judge(face.pixels, crop.restored, shrink=shrink)
    if verdict.share <= 0.0:
        return replace(crop, restored=None, reason=verdict.reason)
    return replace(crop, share=verdict.share, reason=verdict.reason)


def _report(crop: Crop) -> FaceReport:
    decision = "kept" if crop.restored is None else "restored"
    return FaceReport(
        crop.face.face, decision, net=crop.face.net, reason=crop.reason, warnings=face_warnings(crop.face)
    )


def _patch(crop: Crop, options: ComposeOptions) -> compose.Patch:
    assert crop.restored is not None
    face = _at_size_of(crop.face, crop.restored.shape[0])
    residual = residual_of(
        face.pixels,
        crop.restored,
        own_detail=face.own_detail,
        color_fix=options.color_fix or "lab",
        weight=options.fidelity_weight,
        sharpen=options.sharpen,
    )
    residual *= np.float32(crop.share)
    return compose.Patch(residual, _mask(crop, face.pixels.shape[0], options.mask), face.crop_from_photo)


def _at_size_of(face: AlignedFace, size: int) -> AlignedFace:
    """For a net whose output is larger than its input: the crop at the output's size."""
    own = face.pixels.shape[0]
    if own == size:
        return face
    matrix = geometry.compose(geometry.scaling((own, own), (size, size)), face.crop_from_photo)
    return replace(face, pixels=_resize(face.pixels, (size, size)), crop_from_photo=matrix)


def _mask(crop: Crop, size: int, mask: str) -> Float32Array:
    if crop.labels is None or mask == "feather":
        return compose.feather_mask(size)
    return compose.parsed_mask(crop.labels, size, hair=mask == "parse+hair")


def _aligned_canvas(photo: Photo, crop: Crop, size: tuple[int, int], options: ComposeOptions) -> PhotoPixels:
    """The restored crop at ``size``, as a change of the picture, so that depth, profile and gray stay its own."""
    canvas = enlarge(photo.pixels, size)
    if crop.restored is None or options.fidelity_weight == 0.0:
        return canvas
    side = crop.restored.shape[0]
    before = _resize(crop.face.pixels, (side, side))
    residual = residual_of(
        before,
        crop.restored,
        own_detail=0.0,  # nothing but the net's face is asked for
        color_fix=options.color_fix or ("none" if photo.gray else "tint"),  # gray files stay so by themselves, below
        weight=max(1.0, options.fidelity_weight),
        sharpen=options.sharpen,
    )
    levels = before.astype(np.float32)
    face = _resize(np.clip(levels + residual, 0, 255), size)
    shown = enlarge(photo.shown, size)
    if min(photo.size) > side:  # what the crop could not hold stays as far as the net left what it could
        finer = shown - _resize(levels, size)
        face = face + finer * _resize(kept_detail(levels, residual), size)[..., None]
    delta = (face - shown) * np.float32(crop.share * min(1.0, options.fidelity_weight))
    if options.mask != "auto":
        delta *= _resize(_mask(crop, side, options.mask), size)[..., None]
    if photo.gray:
        delta = np.repeat((delta @ LUMA)[..., None], 3, axis=2)
    compose.add_shown(canvas, (0, 0, *size), delta, shown, photo)
    return canvas


def no_face_sentence(name: str, plan: Plan, *, hints: str = NO_FACE_HINTS) -> str:
    """The warning for a photo in which nothing was restored. hints: what its sender can do."""
    if plan.untouched:
        reasons = sorted({report.reason for report in plan.untouched if report.reason})
        by_flags = bool(reasons) and all("--" in reason for reason in reasons)  # then the flag itself is the advice
        sentence = f"{name}: {len(plan.untouched)} face(s) seen, none restored ({'; '.join(reasons)})."
        return sentence if by_flags else f"{sentence} {hints}"
    return f"{name}: no face found, so nothing was restored. {hints}"
