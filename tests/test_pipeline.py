"""How photos move: in order, complete, whatever fails; nothing destroyed; the same bytes whatever the company."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from stand_ins import StandInDetector, StandInNet, engine_of

from gpen_cli import engine as engine_module
from gpen_cli.data import Face, Job
from gpen_cli.device import Setup
from gpen_cli.errors import OutputError, WeightsError
from gpen_cli.options import ComposeOptions, FaceOptions, Options, RunOptions
from gpen_cli.photos.metadata import is_our_output
from gpen_cli.pipeline import restore_photos
from gpen_cli.report import report_line
from gpen_cli.restorer import Restorer
from gpen_cli.weights.find import FoundWeights

AT_SIZE = Options(compose=ComposeOptions(upscale=1.0, color_fix="none"))


def brighter(crop: np.ndarray) -> np.ndarray:
    return np.clip(crop.astype(int) + 30, 0, 255).astype(np.uint8)


def make_photos(folder: Path, count: int, seed: int = 0) -> list[Path]:
    rng = random.Random(seed)
    folder.mkdir(exist_ok=True)
    paths = []
    for index in range(count):
        path = folder / f"p{index:03d}.png"
        level = rng.randrange(40, 200)
        Image.new("RGB", (rng.randrange(60, 200), rng.randrange(60, 200)), (level, level, level)).save(path)
        paths.append(path)
    return paths


def jobs_for(paths: list[Path], out: Path) -> list[Job]:
    out.mkdir(exist_ok=True)
    return [Job(str(path), out / path.name, path.name, path.stem) for path in paths]


class OneFaceEach:
    """Finds a face in the middle of every picture large enough."""

    name = "one face each"

    def detect(self, pixels: np.ndarray, threshold: float) -> list[Face]:
        from stand_ins import face_at

        height, width = pixels.shape[:2]
        return [face_at(width / 2, height / 2, 0.6 * min(width, height))]


def test_outcomes_come_in_order_and_every_photo_is_written(tmp_path):
    paths = make_photos(tmp_path / "in", 25)
    engine = engine_of(StandInNet(brighter), detector=OneFaceEach())
    jobs = jobs_for(paths, tmp_path / "out")
    outcomes = list(restore_photos(jobs, engine, AT_SIZE))
    assert [outcome.job for outcome in outcomes] == jobs
    assert {outcome.status for outcome in outcomes} == {"done"}
    for path in paths:
        before, after = (
            np.asarray(Image.open(folder / path.name)).astype(int) for folder in (path.parent, tmp_path / "out")
        )
        assert after.shape == before.shape
        assert after.max() == before.max() + 30
        assert np.array_equal(after[0, 0], before[0, 0])


def test_a_bad_photo_never_stops_the_others(tmp_path):
    paths = make_photos(tmp_path / "in", 6)
    paths[1].write_bytes(b"")
    paths[2].write_text("I am text")
    paths[3].write_bytes(paths[3].read_bytes()[:60])
    paths[4].unlink()
    engine = engine_of(StandInNet(brighter), detector=OneFaceEach())
    outcomes = list(restore_photos(jobs_for(paths, tmp_path / "out"), engine, AT_SIZE))
    assert [outcome.status for outcome in outcomes] == ["done", "failed", "failed", "failed", "failed", "done"]
    for outcome in outcomes[1:5]:
        assert outcome.job.name in (outcome.error or "")
        assert outcome.error_code == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["p000.png", "p005.png"]


def test_a_bug_in_one_photo_is_reported_and_the_others_go_on(tmp_path):
    paths = make_photos(tmp_path / "in", 3)
    calls = iter(range(99))

    def breaks_once(crop):
        if next(calls) == 1:
            raise ZeroDivisionError("made for the test")
        return crop

    engine = engine_of(StandInNet(breaks_once), detector=OneFaceEach())
    options = Options(compose=AT_SIZE.compose, run=RunOptions(workers=1))
    outcomes = list(restore_photos(jobs_for(paths, tmp_path / "out"), engine, options))
    assert [outcome.status for outcome in outcomes] == ["done", "failed", "done"]
    assert outcomes[1].error_code == 1
    assert "ZeroDivisionError" in (outcomes[1].error or "")


def test_missing_weights_end_the_run(tmp_path):
    def no_weights(crop):
        raise WeightsError("made for the test")

    engine = engine_of(StandInNet(no_weights), detector=OneFaceEach())
    jobs = jobs_for(make_photos(tmp_path / "in", 4), tmp_path / "out")
    with pytest.raises(WeightsError):
        list(restore_photos(jobs, engine, AT_SIZE))
    assert list((tmp_path / "out").iterdir()) == []


def test_an_output_folder_that_vanishes_ends_the_run(tmp_path):
    paths = make_photos(tmp_path / "in", 4)
    jobs = [Job(str(path), tmp_path / "gone" / path.name, path.name, path.stem) for path in paths]
    engine = engine_of(StandInNet(brighter), detector=OneFaceEach())
    with pytest.raises(OutputError):
        list(restore_photos(jobs, engine, AT_SIZE))


def test_no_thread_is_left_after_a_run_or_an_interruption(tmp_path):
    before = threading.active_count()
    jobs = jobs_for(make_photos(tmp_path / "in", 12), tmp_path / "out")
    outcomes = restore_photos(jobs, engine_of(StandInNet(brighter), detector=OneFaceEach()), AT_SIZE)
    next(outcomes)
    outcomes.close()  # what Ctrl-C does
    assert threading.active_count() == before
    written = list((tmp_path / "out").iterdir())
    assert all(Image.open(path).size for path in written)
    assert not [path for path in written if path.name.startswith(".")]


def test_a_bounded_number_of_photos_is_alive(tmp_path):
    """The pipeline must not read ahead without limit while its consumer is slow."""
    paths = make_photos(tmp_path / "in", 40)
    jobs = jobs_for(paths, tmp_path / "out")
    started: list[int] = []

    def counted():
        for index, job in enumerate(jobs):
            started.append(index)
            yield job

    options = Options(compose=AT_SIZE.compose, run=RunOptions(workers=2))
    outcomes = restore_photos(counted(), engine_of(StandInNet(brighter), detector=OneFaceEach()), options)
    next(outcomes)
    time.sleep(0.3)
    assert len(started) <= 8
    outcomes.close()


@pytest.mark.parametrize("seed", range(6))
def test_bytes_do_not_depend_on_workers_order_or_batch(tmp_path, seed):
    rng = random.Random(seed)
    paths = make_photos(tmp_path / "in", 8, seed)

    def run(name: str, order: list[Path], workers: int, micro_batch: int) -> dict[str, bytes]:
        net = StandInNet(brighter, micro_batch=micro_batch)
        options = Options(compose=AT_SIZE.compose, run=RunOptions(workers=workers))
        list(restore_photos(jobs_for(order, tmp_path / name), engine_of(net, detector=OneFaceEach()), options))
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    shuffled = rng.sample(paths, len(paths))
    assert run("a", paths, 1, 1) == run("b", shuffled, rng.randrange(2, 6), rng.randrange(2, 9))


class TestTargets:
    """What exists is only replaced when that is safe or asked for."""

    def run(self, path: Path, target: Path, **run) -> tuple[str, str | None]:
        engine = engine_of(StandInNet(brighter), detector=OneFaceEach())
        options = Options(compose=AT_SIZE.compose, run=RunOptions(**run))
        (outcome,) = restore_photos([Job(str(path), target, path.name, path.stem)], engine, options)
        return outcome.status, outcome.error

    @pytest.fixture
    def photo(self, tmp_path) -> Path:
        return make_photos(tmp_path / "in", 1)[0]

    def test_a_foreign_file_stays(self, photo, tmp_path):
        target = tmp_path / "precious.png"
        Image.new("RGB", (5, 5)).save(target)
        before = target.read_bytes()
        status, error = self.run(photo, target)
        assert status == "failed"
        assert "--overwrite" in (error or "")
        assert target.read_bytes() == before

    def test_overwrite_replaces_it(self, photo, tmp_path):
        target = tmp_path / "precious.png"
        target.write_bytes(b"not ours")
        assert self.run(photo, target, overwrite=True)[0] == "done"
        assert is_our_output(target.read_bytes())

    def test_our_own_result_is_replaced(self, photo, tmp_path):
        target = tmp_path / "r.png"
        assert self.run(photo, target)[0] == "done"
        assert self.run(photo, target)[0] == "done"

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_the_input_itself_never(self, photo, overwrite):
        before = photo.read_bytes()
        status, error = self.run(photo, photo, overwrite=overwrite)
        assert status == "failed"
        assert "written over" in (error or "")
        assert photo.read_bytes() == before

    def test_not_through_a_link_either(self, photo, tmp_path):
        link = tmp_path / "link.png"
        link.symlink_to(photo)
        before = photo.read_bytes()
        assert self.run(photo, link, overwrite=True)[0] == "failed"
        assert photo.read_bytes() == before

    def test_skip_existing(self, photo, tmp_path):
        target = tmp_path / "r.png"
        target.write_bytes(b"whatever")
        assert self.run(photo, target, skip_existing=True)[0] == "skipped"
        assert target.read_bytes() == b"whatever"


class TestNoFace:
    def run(self, tmp_path: Path, no_face: str):
        path = make_photos(tmp_path / "in", 1)[0]
        engine = engine_of(StandInNet(brighter), detector=StandInDetector([]))
        options = Options(compose=AT_SIZE.compose, run=RunOptions(no_face=no_face))
        (outcome,) = restore_photos(jobs_for([path], tmp_path / "out"), engine, options)
        return outcome, tmp_path / "out" / path.name, path

    def test_copy_writes_the_same_picture_and_warns(self, tmp_path):
        outcome, target, path = self.run(tmp_path, "copy")
        assert outcome.status == "no_face"
        assert np.array_equal(np.asarray(Image.open(target)), np.asarray(Image.open(path)))
        (warning,) = outcome.warnings
        assert all(hint in warning for hint in ("towards the camera", "--min-face", "--try-rotations"))

    def test_skip_writes_nothing(self, tmp_path):
        outcome, target, _ = self.run(tmp_path, "skip")
        assert outcome.status == "no_face"
        assert not target.exists()

    def test_fail_fails(self, tmp_path):
        outcome, target, _ = self.run(tmp_path, "fail")
        assert outcome.status == "failed"
        assert outcome.error_code == 3
        assert not target.exists()


def test_the_report_tells_what_happened(tmp_path):
    path = make_photos(tmp_path / "in", 1)[0]
    engine = engine_of(StandInNet(brighter), detector=OneFaceEach())
    (outcome,) = restore_photos(jobs_for([path], tmp_path / "out"), engine, AT_SIZE)
    line = json.loads(json.dumps(report_line(outcome, engine.setup, "stand-in")))
    assert line["version"] == 1
    assert line["target"] == str(tmp_path / "out" / path.name)
    assert line["size"] == list(Image.open(path).size)
    assert line["error"] is None
    (face,) = line["faces"]
    assert face["decision"] == "restored"
    assert np.array(face["landmarks"]).shape == (5, 2)
    assert {"decode", "detect", "align", "restore", "compose", "encode"} <= set(line["seconds"])


def test_small_and_large_faces_go_to_the_nets_of_their_size(tmp_path):
    small, large = StandInNet(brighter, crop_size=256), StandInNet(brighter, crop_size=512)

    def run(side: int) -> str | None:
        path = tmp_path / f"{side}.png"
        Image.new("RGB", (side, side), "gray").save(path)
        (outcome,) = restore_photos(
            jobs_for([path], tmp_path / "out"), engine_of(small, large, detector=OneFaceEach()), AT_SIZE
        )
        return outcome.faces[0].net

    # OneFaceEach's crop is 0.6 of the (padded) picture the detector sees.
    assert run(200) == "stand-in-256"
    assert run(1400) == "stand-in-512"


@pytest.mark.parametrize(
    ("long_side", "scale"), [(300, 2), (319, 2), (560, 2), (800, 2), (801, 2), (2000, 2), (2001, 1)]
)
def test_small_medium_and_large_photos(tmp_path, long_side, scale):
    """Photos under 320, of 320 to 800 and over 800 px: found, restored, at the size auto promises."""
    path = tmp_path / "p.png"
    Image.new("RGB", (long_side, long_side * 3 // 4), "gray").save(path)
    options = Options(compose=ComposeOptions(color_fix="none"))
    (outcome,) = restore_photos(
        jobs_for([path], tmp_path / "out"), engine_of(StandInNet(brighter), detector=OneFaceEach()), options
    )
    assert outcome.status == "done"
    assert outcome.output_size == (long_side * scale, long_side * 3 // 4 * scale)


class TestAligned:
    options = Options(run=RunOptions(aligned=True))

    def run(self, tmp_path: Path, pixels: np.ndarray, change, options: Options | None = None) -> np.ndarray:
        path = tmp_path / "crop.png"
        tmp_path.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
        (outcome,) = restore_photos(
            jobs_for([path], tmp_path / "out"), engine_of(StandInNet(change)), options or self.options
        )
        assert outcome.error is None
        return np.asarray(Image.open(tmp_path / "out" / "crop.png"))

    def test_a_crop_of_the_nets_size_comes_out_as_the_net_answers(self, tmp_path, astronaut):
        crop = np.ascontiguousarray(astronaut[:256, :256])
        assert np.array_equal(self.run(tmp_path, crop, lambda c: 255 - c), 255 - crop)

    def test_a_gray_crop_stays_gray_unless_the_nets_colours_are_asked_for(self, tmp_path, astronaut):
        gray = np.repeat(astronaut[:256, :256].mean(axis=2, keepdims=True).astype(np.uint8), 3, axis=2)
        bluish = lambda crop: np.clip(crop.astype(int) + (0, 10, 40), 0, 255).astype(np.uint8)  # noqa: E731
        spread = np.ptp(self.run(tmp_path / "a", gray, bluish).astype(int), axis=2)
        assert np.quantile(spread, 0.99) <= 2
        bare = dataclasses.replace(self.options, compose=ComposeOptions(color_fix="none"))
        assert np.array_equal(self.run(tmp_path / "b", gray, bluish, bare), bluish(gray))

    @pytest.mark.parametrize("size", [(100, 100), (400, 400), (300, 200)])
    def test_other_sizes_keep_their_own_size(self, tmp_path, size):
        crop = np.full((*size, 3), 80, np.uint8)
        result = self.run(tmp_path, crop, brighter)
        assert result.shape == crop.shape
        assert (result == 110).all()

    def test_strength_zero_changes_nothing(self, tmp_path, astronaut):
        options = Options(run=self.options.run, compose=ComposeOptions(fidelity_weight=0.0))
        assert np.array_equal(self.run(tmp_path, astronaut, lambda c: 255 - c, options), astronaut)

    def test_gray_stays_gray(self, tmp_path):
        result = self.run(tmp_path, np.full((256, 256), 80, np.uint8), lambda c: c + np.uint8((30, 0, 0)))
        assert result.ndim == 2
        assert (result == 89).all()


class TestSharpFaces:
    """A face sharper and larger in the photo than the net's crop must not come out softer."""

    @pytest.fixture(scope="class")
    def photo(self, hopper_file) -> np.ndarray:
        return np.asarray(Image.open(hopper_file).convert("RGB"))

    def sharpness(self, pixels: np.ndarray, face: Face) -> float:
        import cv2

        x0, y0, x1, y1 = face.box.astype(int)
        return float(cv2.Laplacian(pixels[y0:y1, x0:x1].astype(np.float32).mean(axis=2), cv2.CV_32F).var())

    def restore(self, photo: np.ndarray, sharp_faces: str):
        import cv2

        from gpen_cli.detect import make_detector

        detector = make_detector(FaceOptions(), r50_weights=None, device="cpu", threads=1)
        net = StandInNet(lambda crop: cv2.GaussianBlur(crop, (0, 0), 2), crop_size=128)
        options = Options(compose=ComposeOptions(upscale=1.0, sharp_faces=sharp_faces))
        with Restorer(options, engine=engine_of(net, detector=detector)) as restorer:
            return restorer.restore_with_faces(photo)

    def test_it_stays_as_it_is(self, photo):
        done = self.restore(photo, "keep")
        (report,) = done.faces
        assert report.decision == "kept"
        assert "sharper" in (report.reason or "")
        assert np.array_equal(done.pixels, photo)

    def test_unless_restoring_is_asked_for(self, photo):
        done = self.restore(photo, "restore")
        assert done.faces[0].decision == "restored"
        assert self.sharpness(done.pixels, done.faces[0].face) < self.sharpness(photo, done.faces[0].face)

    def test_a_blurred_one_is_restored(self, photo):
        import cv2

        blurred = cv2.GaussianBlur(photo, (0, 0), 8)
        assert self.restore(blurred, "keep").faces[0].decision == "restored"


class TestRestorer:
    def test_restores_pixels_and_keeps_type_and_shape(self, astronaut):
        from gpen_cli.detect import make_detector

        detector = make_detector(FaceOptions(), r50_weights=None, device="cpu", threads=1)
        with Restorer(AT_SIZE, engine=engine_of(StandInNet(brighter), detector=detector)) as restorer:
            assert restorer.restore(astronaut).shape == astronaut.shape
            deep = restorer.restore(astronaut.astype(np.uint16) * 257)
            assert deep.dtype == np.uint16
            assert restorer.restore(astronaut[..., 0]).shape == astronaut.shape[:2]

    def test_threads_share_one_and_get_the_bytes_of_one_thread(self):
        pictures = [np.full((120 + 7 * k, 150, 3), 20 * k, np.uint8) for k in range(8)]
        with Restorer(
            AT_SIZE, engine=engine_of(StandInNet(brighter, micro_batch=3), detector=OneFaceEach())
        ) as restorer:
            alone = [restorer.restore(picture) for picture in pictures]
            results: dict[int, np.ndarray] = {}

            def work(index: int) -> None:
                for _ in range(5):
                    results[index] = restorer.restore(pictures[index])

            threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        assert all(np.array_equal(results[index], alone[index]) for index in range(8))

    @pytest.mark.parametrize(
        "pixels", [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)]
    )
    def test_what_it_cannot_take_is_said(self, pixels):
        from gpen_cli.errors import PhotoError

        with (
            Restorer(AT_SIZE, engine=engine_of(StandInNet(brighter), detector=OneFaceEach())) as restorer,
            pytest.raises(PhotoError, match="give"),
        ):
            restorer.restore(pixels)


def test_setup_is_plain():
    assert Setup("cpu", "fp32", 1, 1).runtime == "eager"


class TestGuard:
    """A net that answers with another person does not get its way, unless the guard is off."""

    @pytest.fixture(scope="class")
    def detector(self):
        from gpen_cli.detect import make_detector

        return make_detector(FaceOptions(), r50_weights=None, device="cpu", threads=1)

    @pytest.fixture(scope="class")
    def other(self, detector, hopper) -> np.ndarray:
        """Another person's aligned crop."""
        from gpen_cli.detect.search import find_faces
        from gpen_cli.geometry import crop_from_photo, warp_crop

        (face,) = find_faces(detector, hopper, FaceOptions()).faces
        return warp_crop(hopper, crop_from_photo(face.landmarks, "gpen", 256), 256)

    def restore(self, photo: np.ndarray, other: np.ndarray, detector, guard: str | None):
        options = Options(compose=ComposeOptions(upscale=1.0, guard=guard, sharp_faces="restore"))
        with Restorer(options, engine=engine_of(StandInNet(lambda crop: other), detector=detector)) as restorer:
            return restorer.restore_with_faces(photo)

    def test_the_photos_own_face_stays(self, astronaut, other, detector):
        done = self.restore(astronaut, other, detector, None)
        (report,) = done.faces
        assert report.decision == "kept"
        assert "differs" in (report.reason or "")
        assert np.array_equal(done.pixels, astronaut)

    def test_off_lets_it_through(self, astronaut, other, detector):
        done = self.restore(astronaut, other, detector, "off")
        assert done.faces[0].decision == "restored"
        assert not np.array_equal(done.pixels, astronaut)


def test_lanes_run_at_the_same_time_each_on_its_thread_and_change_no_byte(tmp_path, monkeypatch):
    asked: set[tuple[int, int]] = set()
    pairs = threading.Barrier(2)

    class Lane(StandInNet):
        def __init__(self, number: int) -> None:
            super().__init__(brighter)
            self.number = number

        def run(self, crops):
            asked.add((self.number, threading.get_ident()))
            pairs.wait(20)  # goes on when another pass is inside, too
            return super().run(crops)

    settled: list[int] = []
    numbers = iter(range(10))
    monkeypatch.setattr(engine_module, "settle_thread", lambda setup: settled.append(setup.threads))
    monkeypatch.setattr(engine_module, "make_net", lambda weights, setup, parser=False: Lane(next(numbers)))
    engine = engine_of(detector=OneFaceEach())
    engine.setup = dataclasses.replace(engine.setup, threads=5).in_lanes()
    engine.choices = [engine_module.NetChoice("stand-in-256", 256, FoundWeights(Path("stand-in"), None))]
    paths = make_photos(tmp_path / "in", 8)
    outcomes = list(restore_photos(jobs_for(paths, tmp_path / "out"), engine, AT_SIZE))
    assert [outcome.status for outcome in outcomes] == ["done"] * 8
    lanes, threads = {lane for lane, _ in asked}, {thread for _, thread in asked}
    assert 2 <= len(lanes) <= 4
    assert len(lanes) == len(threads) == len(asked), "a lane's net is asked on one thread alone"
    assert set(settled) == {1}, "five threads in four lanes"
    plain = engine_of(StandInNet(brighter), detector=OneFaceEach())
    list(restore_photos(jobs_for(paths, tmp_path / "plain"), plain, AT_SIZE))
    for path in paths:
        assert (tmp_path / "out" / path.name).read_bytes() == (tmp_path / "plain" / path.name).read_bytes()
