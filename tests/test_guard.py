"""The guard: the same person passes whatever the photo is like, another one does not."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import cv2
import numpy as np
import pytest

from gpen_cli import geometry, guard
from gpen_cli.data import UInt8Image
from gpen_cli.detect.bundled import BundledDetector
from gpen_cli.detect.search import find_faces
from gpen_cli.engine import build_engine
from gpen_cli.guard import Verdict, judge
from gpen_cli.options import FaceOptions, NetOptions, Options, RunOptions

SIZE = 256


def aligned(photo: np.ndarray) -> UInt8Image:
    face = find_faces(BundledDetector(1), photo, FaceOptions(only_largest=True)).faces[0]
    return geometry.warp_crop(photo, geometry.crop_from_photo(face.landmarks, "gpen", SIZE), SIZE)


@pytest.fixture(scope="module")
def woman(astronaut: np.ndarray) -> UInt8Image:
    return aligned(astronaut)


@pytest.fixture(scope="module")
def his(hopper: np.ndarray) -> UInt8Image:
    return aligned(hopper)


def blurred(face: UInt8Image, sigma: float) -> UInt8Image:
    return np.asarray(cv2.GaussianBlur(face, (0, 0), sigma), np.uint8)


def small(face: UInt8Image, side: int) -> UInt8Image:
    shrunk = cv2.resize(face, (side, side), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(shrunk, face.shape[:2], interpolation=cv2.INTER_CUBIC), np.uint8)


def noisy(face: UInt8Image, sigma: float, seed: int = 1) -> UInt8Image:
    noise = np.random.RandomState(seed).normal(0.0, sigma, face.shape)
    return np.clip(face + noise, 0, 255).astype(np.uint8)


def squeezed(face: UInt8Image, quality: int) -> UInt8Image:
    done, data = cv2.imencode(".jpg", face, [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert done
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)


DEGRADED = {
    "as it is": (lambda face: face, 1.0),
    "blur 1": (lambda face: blurred(face, 1.0), 1.0),
    "blur 4": (lambda face: blurred(face, 4.0), 1.0),
    "60 px": (lambda face: small(face, 60), 60 / SIZE),
    "27 px": (lambda face: small(face, 27), 27 / SIZE),
    "noise 25": (lambda face: noisy(face, 25.0), 1.0),
    "JPEG 10": (lambda face: squeezed(face, 10), 1.0),
    "blur, noise, JPEG": (lambda face: squeezed(noisy(blurred(face, 2.0), 15.0), 40), 1.0),
}
each_degradation = pytest.mark.parametrize("how", DEGRADED)


def test_an_unchanged_face_stays_whole(woman: UInt8Image) -> None:
    assert judge(woman, woman, shrink=1.0) == Verdict(1.0, None, 0.0, "left eye")


@each_degradation
def test_the_sharp_original_is_no_other_person(woman: UInt8Image, his: UInt8Image, how: str) -> None:
    degrade, shrink = DEGRADED[how]
    for face in (woman, his):
        assert judge(degrade(face), face, shrink=shrink).share == 1.0


@each_degradation
def test_another_person_is_not_let_in(woman: UInt8Image, his: UInt8Image, how: str) -> None:
    degrade, shrink = DEGRADED[how]
    for face, answer in ((woman, his), (his, woman)):
        verdict = judge(degrade(face), answer, shrink=shrink)
        assert verdict.share == 0.0
        assert "differs from the photo's" in str(verdict.reason)
        assert judge(degrade(answer), degrade(face), shrink=shrink).share == 0.0


def test_the_embedded_net_is_trusted(woman: UInt8Image, his: UInt8Image) -> None:
    options = Options(net=NetOptions(model="gpen-open-256", device="cpu"), run=RunOptions(aligned=True))
    net = build_engine(options).net("gpen-open-256")
    for name in ("blur 1", "60 px", "blur, noise, JPEG"):
        degrade, shrink = DEGRADED[name]
        for face in (woman, his):
            crop = degrade(face)
            assert judge(crop, net.run(crop[None])[0], shrink=shrink).share >= 0.9


def test_half_another_person_is_seen(woman: UInt8Image, his: UInt8Image) -> None:
    half = cv2.addWeighted(woman, 0.5, his, 0.5, 0.0)
    assert judge(blurred(woman, 1.0), half, shrink=1.0).share <= 0.5


def test_a_mirrored_face_is_another(woman: UInt8Image) -> None:
    assert judge(woman, np.ascontiguousarray(woman[:, ::-1]), shrink=1.0).share <= 0.5


def test_covered_eyes_are_seen(his: UInt8Image) -> None:
    answer = his.copy()
    answer[112:136, 78:178] = np.median(his[140:160, 80:100].reshape(-1, 3), axis=0)
    verdict = judge(his, answer, shrink=1.0)
    assert verdict.share <= 0.5
    assert "eye" in verdict.part


@pytest.mark.parametrize("name", ["brighter", "darker", "flatter", "warmer", "gray"])
def test_light_and_colour_do_not_count(woman: UInt8Image, his: UInt8Image, name: str) -> None:
    change = {
        "brighter": lambda face: face * 0.8 + 40.0,
        "darker": lambda face: face * 0.7,
        "flatter": lambda face: face * 0.5 + 60.0,
        "warmer": lambda face: face * np.array([1.0, 0.9, 0.7]),
        "gray": lambda face: np.repeat(face.mean(axis=2, keepdims=True), 3, axis=2),
    }[name]
    for face in (woman, his):
        other = np.clip(change(face.astype(np.float64)), 0, 255).astype(np.uint8)
        assert judge(face, other, shrink=1.0).share == 1.0
        assert judge(other, face, shrink=1.0).share == 1.0


def test_noise_is_no_other_person_on_either_side(woman: UInt8Image, his: UInt8Image) -> None:
    for face in (woman, his):
        assert judge(noisy(face, 20.0), face, shrink=1.0).share == 1.0
        assert judge(face, noisy(face, 20.0), shrink=1.0).share == 1.0


def test_where_there_is_nothing_to_compare_the_restorer_is_let_be(woman: UInt8Image) -> None:
    for level in (0, 128, 255):
        flat = np.full_like(woman, level)
        assert judge(flat, flat, shrink=1.0).share == 1.0
        assert judge(flat, noisy(flat, 3.0), shrink=1.0).share == 1.0
        assert 0.0 <= judge(flat, woman, shrink=1.0).share <= 1.0
        assert 0.0 <= judge(woman, flat, shrink=1.0).share <= 0.5


@pytest.mark.parametrize("shrink", [0.001, 0.05, 1.0, 8.0])
@pytest.mark.parametrize("size", [32, 128, 512])
def test_any_size_is_judged(woman: UInt8Image, his: UInt8Image, size: int, shrink: float) -> None:
    how = cv2.INTER_AREA if size < SIZE else cv2.INTER_CUBIC
    own, other = (np.asarray(cv2.resize(face, (size, size), interpolation=how), np.uint8) for face in (his, woman))
    assert judge(own, own, shrink=shrink).share == 1.0
    assert judge(own, other, shrink=shrink).share <= 0.5


def test_a_larger_answer_is_compared_too(his: UInt8Image) -> None:
    large = np.asarray(cv2.resize(his, (512, 512), interpolation=cv2.INTER_CUBIC), np.uint8)
    assert judge(his, large, shrink=1.0).share == 1.0


def test_the_share_falls_smoothly_between_the_limits() -> None:
    scores = np.linspace(0.0, 2.0, 401)
    shares = [guard._share(float(score)) for score in scores]
    assert shares[0] == 1.0
    assert shares[-1] == 0.0
    assert all(0.0 <= before - after < 0.05 for before, after in itertools.pairwise(shares))
    assert guard._reason(1.0, "nose") is None
    assert "60 %" in str(guard._reason(0.6, "nose"))


def test_threads_share_it_and_inputs_are_left_alone(woman: UInt8Image, his: UInt8Image) -> None:
    own, other = woman.copy(), his.copy()
    own.flags.writeable = other.flags.writeable = False
    alone = [judge(own, other, shrink=1.0), judge(other, blurred(other, 2.0), shrink=1.0)]
    with ThreadPoolExecutor(4) as pool:
        first = pool.map(lambda _: judge(own, other, shrink=1.0), range(40))
        second = pool.map(lambda _: judge(other, blurred(other, 2.0), shrink=1.0), range(40))
        assert set(first) == {alone[0]}
        assert set(second) == {alone[1]}


def test_a_verdict_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Verdict(1.0, None, 0.0, "nose").share = 0.0  # type: ignore[misc]
