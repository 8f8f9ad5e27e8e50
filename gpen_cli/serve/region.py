"""Which faces a request means that points at a part of the photo: those found there, or else those a closer look finds."""

from __future__ import annotations

from dataclasses import replace

from gpen_cli.data import FaceReport, Photo
from gpen_cli.detect.plausible import landmark_fault
from gpen_cli.detect.region import Region, lies_in
from gpen_cli.detect.search import find_in_region
from gpen_cli.engine import Engine
from gpen_cli.log import StageClock
from gpen_cli.options import Options
from gpen_cli.restoration import Plan, plan_faces, plan_photo

OUTSIDE = "outside the region asked for"


def plan_region(photo: Photo, region: Region | None, engine: Engine, options: Options, clock: StageClock) -> Plan:
    """The plan for the faces in ``region``, or for the whole photo. Faces elsewhere are reported, and left alone."""
    plan = plan_photo(photo, engine, options, clock)
    if region is None:
        return plan
    plan = within(plan, region)
    if options.run.aligned or holds_face(plan, region):
        return plan
    with clock.stage("detect"):
        faces = find_in_region(engine.detector, photo.shown, region, options.faces)
    if not faces:
        return plan
    closer = plan_faces(photo, faces, engine, options, clock)
    # what was seen badly in the region is seen well now, and told once
    elsewhere = (report for report in plan.untouched if report.reason == OUTSIDE)
    return replace(closer, untouched=(*closer.untouched, *elsewhere))


def within(plan: Plan, region: Region) -> Plan:
    """The plan with only those faces that lie in the region."""
    inside = tuple(face for face in plan.faces if lies_in(face.face, region))
    left = tuple(
        FaceReport(face.face, "skipped", net=face.net, reason=OUTSIDE)
        for face in plan.faces
        if not lies_in(face.face, region)
    )
    untouched = tuple(
        report if lies_in(report.face, region) else replace(report, decision="skipped", reason=OUTSIDE)
        for report in plan.untouched
    )
    return Plan(plan.photo, inside, (*untouched, *left))


def holds_face(plan: Plan, region: Region) -> bool:
    """Is there a face to restore, or one that is left alone for another reason than that it was seen badly?"""
    return bool(plan.faces) or any(
        landmark_fault(report.face) is None for report in plan.untouched if lies_in(report.face, region)
    )
