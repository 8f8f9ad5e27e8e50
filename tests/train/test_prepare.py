"""Photos to crops: what is kept, what is left out and why; photos are never touched."""

from __future__ import annotations

import csv
import hashlib
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from stand_ins import face_at, photo_from_crop

from gpen_cli import geometry
from gpen_cli.errors import OutputError, UsageError
from gpen_cli.options import FaceOptions
from gpen_cli.photos.metadata import PROVENANCE
from gpen_cli.train.config import DataConfig
from gpen_cli.train.crops import find_crops
from gpen_cli.train.duplicates import MIN_LIKENESS, SeenFaces, face_mark, likeness
from gpen_cli.train.index import COLUMNS, read_index
from gpen_cli.train.prepare import DUPLICATE, PrepareReport, best_detector, prepare
from gpen_cli.train.prepared_face import PrepareOptions, beyond_photo, padding, prepared_face

MOBILE = FaceOptions(detector="retinaface-mobile")
SMALL = PrepareOptions(size=128, faces=MOBILE)


@pytest.fixture(scope="module")
def detector():
    return best_detector(MOBILE)


@pytest.fixture
def photos(tmp_path: Path, astronaut: np.ndarray, hopper: np.ndarray) -> Path:
    """Two people in two folders, one of them twice, a damaged photo, no face, a result of gpen, a text."""
    root = tmp_path / "photos"
    for folder in ("navy", "nasa"):
        (root / folder).mkdir(parents=True)
    Image.fromarray(hopper).save(root / "navy" / "hopper.png")
    Image.fromarray(astronaut).save(root / "nasa" / "astronaut.png")
    Image.fromarray(astronaut).resize((440, 440)).save(root / "nasa" / "a copy.jpg", quality=70)
    Image.fromarray(astronaut[300:, 300:]).save(root / "suit.png")
    (root / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut off")
    mark = PngInfo()
    mark.add_text("Software", PROVENANCE)
    Image.fromarray(hopper[:, ::-1]).save(root / "restored.png", pnginfo=mark)
    (root / "notes.txt").write_text("no photo")
    return root


def rows_of(report: PrepareReport) -> list[dict[str, str]]:
    with report.index.open(newline="") as stream:
        return list(csv.DictReader(stream))


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_advice_is_what_this_command_can_do_and_what_cannot_be_seen_is_told(
    photos: Path, tmp_path: Path, detector
) -> None:
    whole = (photos / "nasa" / "a copy.jpg").read_bytes()
    (photos / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "lost.jpg").symlink_to(tmp_path / "nowhere.jpg")
    told = dict(prepare(photos, tmp_path / "out", SMALL, detector=detector).unreadable)
    assert "copy or download it again." in told["cut.jpg"]
    assert "--allow-truncated" not in told["cut.jpg"]
    assert "lost.jpg is a link to what cannot be read" in told[str(photos)]


def test_folder_of_photos_becomes_crops_and_index(photos: Path, tmp_path: Path, detector) -> None:
    before = contents(photos)
    seen = []
    report = prepare(photos, tmp_path / "out", SMALL, detector=detector, on_photo=lambda *at: seen.append(at))
    assert contents(photos) == before
    assert seen == [(number, 6) for number in range(1, 7)]
    assert (report.photos, report.faces, report.no_face, report.own_results) == (6, 3, 1, 1)
    assert report.kept == {128: 2}
    assert report.left_out == {DUPLICATE: 1}
    assert [name for name, _ in report.unreadable] == ["broken.jpg"]
    assert "broken.jpg" in "\n".join(report.lines())
    rows = {row["photo"]: row for row in rows_of(report)}
    assert set(rows) == {"nasa/astronaut.png", "navy/hopper.png"}  # the larger of the two copies
    assert {row["source"] for row in rows.values()} == {"nasa", "navy"}
    for row in rows.values():
        assert tuple(row) == COLUMNS
        assert Image.open(tmp_path / "out" / row["file"]).size == (128, 128)
        points = np.array([[float(v) for v in point.split(",")] for point in row["landmarks"].split()])
        assert np.abs(points - geometry.template_points("gpen", 128)).max() < 8.0
    found = find_crops(DataConfig(folders=(tmp_path / "out",)), 128)  # and training reads what was written
    assert {crop.source for crop in found} == {"nasa", "navy"}
    assert {crop.file.resolve() for crop in found} == set(read_index(report.index))
    assert sorted(contents(tmp_path / "out")) == sorted([*(row["file"] for row in rows.values()), "index.csv"])


def test_a_run_that_keeps_nothing_says_why_and_what_next(photos: Path, tmp_path: Path, detector) -> None:
    report = prepare(
        photos, tmp_path / "out", PrepareOptions(size=128, min_sharpness=1e9, faces=MOBILE), detector=detector
    )
    said = report.lines()[-1]
    assert report.kept == {}
    assert "most often because faces are blurred" in said
    assert "--min-sharpness" in said
    for folder in ("nasa", "navy"):
        shutil.rmtree(photos / folder)
    none = prepare(photos, tmp_path / "none", SMALL, detector=detector)
    assert none.lines()[-1].startswith("No crop was kept, because no photo that can be learnt from shows a face")


def test_rerun_is_the_same_and_takes_away_only_its_own(photos: Path, tmp_path: Path, detector) -> None:
    out = tmp_path / "out"
    prepare(photos, out, SMALL, detector=detector)
    first = contents(out)
    (out / "128" / "mine.jpg").write_bytes(b"kept")
    prepare(photos, out, SMALL, detector=detector)
    assert {name: first[name] for name in first} == {k: v for k, v in contents(out).items() if k != "128/mine.jpg"}
    report = prepare(photos, out, PrepareOptions(size=64, format="png", faces=MOBILE), detector=detector)
    assert report.kept == {64: 2}
    assert sorted(contents(out)) == sorted(["128/mine.jpg", "index.csv", *(row["file"] for row in rows_of(report))])


def test_what_must_not_be_overwritten_stays(photos: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "out" / "index.csv"
    foreign.parent.mkdir()
    foreign.write_text("file,person\na.jpg,p1\n")
    with pytest.raises(UsageError, match="not written by gpen train prepare"):
        prepare(photos, foreign.parent, SMALL)
    assert foreign.read_text().startswith("file,person")


@pytest.mark.parametrize("out", [".", "crops", "nasa/deep/crops", "../link/crops"])
def test_crops_never_lie_among_the_photos(photos: Path, out: str) -> None:
    """They carry no mark, so that a later run into another folder would take them for photos."""
    photos.with_name("link").symlink_to(photos)
    before = contents(photos)
    with pytest.raises(UsageError, match=r"among the photos .* name a folder outside"):
        prepare(photos, photos / out, SMALL)
    assert contents(photos) == before


def test_photos_in_a_folder_of_crops_stay_apart_from_them(photos: Path, detector) -> None:
    own = photos.rename(photos.with_name("256"))
    with pytest.raises(UsageError, match="among the photos"):
        prepare(own, own.parent, PrepareOptions(faces=MOBILE))
    prepare(own, own.parent, SMALL, detector=detector)  # files its crops in 128


def test_run_that_cannot_begin_says_why(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        prepare(tmp_path / "nowhere", tmp_path / "out", SMALL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no photos under"):
        prepare(tmp_path / "empty", tmp_path / "out", SMALL)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        prepare(photos, tmp_path / "file" / "out", SMALL)
    with pytest.raises(UsageError, match="--size 300"):
        PrepareOptions(size=300)
    with pytest.raises(UsageError, match="--format 'gif'"):
        PrepareOptions(format="gif")


@pytest.fixture(scope="module")
def portrait(astronaut: np.ndarray) -> np.ndarray:
    """(900, 900, 3): sharp everywhere; what is in it does not matter to ``prepared_face``."""
    tile = astronaut[100:400, 100:400]
    return np.ascontiguousarray(np.tile(tile, (3, 3, 1)))


@pytest.mark.parametrize(
    ("face", "reason"),
    [
        (face_at(450, 450, 150), "too small"),
        (face_at(450, 450, 600, angle=0.6), "leaning by more than 25"),
        (face_at(60, 450, 600), "too far over the photo's edge"),
        (face_at(120, 450, 520, angle=0.35), "cut by the photo's edge"),
    ],
)
def test_faces_unfit_to_learn_from(portrait: np.ndarray, face, reason: str) -> None:
    left_out = prepared_face(portrait, face, PrepareOptions())
    assert isinstance(left_out, str)
    assert reason in left_out


def test_blurred_and_turned_faces_are_left_out(portrait: np.ndarray) -> None:
    face = face_at(450, 450, 512)
    blurred = cv2.GaussianBlur(portrait, (0, 0), 3)
    assert "blurred" in str(prepared_face(blurred, face, PrepareOptions()))
    face.landmarks[2, 0] += 0.4 * (face.landmarks[1, 0] - face.landmarks[0, 0])
    assert "turned" in str(prepared_face(portrait, face, PrepareOptions()))


@pytest.mark.parametrize(("side", "size"), [(700, 512), (430, 512), (400, 256), (210, 256)])
def test_size_class_is_the_largest_the_face_fills(portrait: np.ndarray, side: int, size: int) -> None:
    kept = prepared_face(portrait, face_at(450, 450, side), PrepareOptions())
    assert not isinstance(kept, str)
    assert kept.pixels.shape == (size, size, 3)
    assert kept.measures["size_class"] == str(size)
    assert float(kept.measures["scale"]) == pytest.approx(size / side, abs=1e-3)
    assert kept.side == pytest.approx(side, rel=1e-3)


def test_roll_has_the_sign_of_the_lean_and_crop_is_upright(portrait: np.ndarray) -> None:
    kept = prepared_face(portrait, face_at(450, 450, 512, angle=0.2), PrepareOptions())
    assert not isinstance(kept, str)
    assert float(kept.measures["roll"]) == pytest.approx(np.degrees(0.2), abs=0.5)  # the template itself leans a little


def test_padding_cuts_off_all_that_is_no_photo_and_little_more() -> None:
    face = face_at(230, 300, 600, angle=0.05)
    matrix = geometry.invert(photo_from_crop(face, 256))
    beyond = beyond_photo(matrix, 256, (900, 900))
    left, top, right, bottom = padding(beyond)
    assert left > 20
    assert (right, bottom) == (0, 0)
    assert not beyond[top : 256 - bottom, left : 256 - right].any()
    assert 1 - (256 - left - right) * (256 - top - bottom) / 256**2 < beyond.mean() + 0.06
    assert padding(np.zeros((64, 64), bool)) == (0, 0, 0, 0)


def test_copies_are_told_from_other_people(astronaut: np.ndarray, hopper: np.ndarray) -> None:
    one, other = astronaut[:256, 96:352], hopper[40:360, 96:416]
    turned = cv2.warpAffine(
        one, cv2.getRotationMatrix2D((128, 128), 2.0, 1.02), (256, 256), borderMode=cv2.BORDER_REFLECT
    )
    copy = cv2.imdecode(cv2.imencode(".jpg", cv2.resize(turned, (140, 140)), [cv2.IMWRITE_JPEG_QUALITY, 50])[1], 1)
    seen = SeenFaces()
    assert seen.find(face_mark(one)) is None
    for face in (other, one):
        seen.add(face_mark(face))
    assert seen.find(face_mark(copy)) == 1
    assert seen.find(face_mark(copy), 1.01) is None
    assert likeness(face_mark(one).small, face_mark(other).small) < MIN_LIKENESS - 0.1
    assert likeness(np.zeros((64, 64), np.uint8), face_mark(one).small) == -1.0  # flat
    assert seen.find(face_mark(one[:, ::-1])) is None


def test_more_faces_than_there_was_room_for_are_all_remembered() -> None:
    rng = np.random.default_rng(1)
    marks = [face_mark(cv2.resize(rng.integers(0, 256, (24, 24, 3), np.uint8), (64, 64))) for _ in range(130)]
    seen = SeenFaces()
    for mark in marks:
        seen.add(mark)
    assert [seen.find(mark) for mark in marks] == list(range(130))
