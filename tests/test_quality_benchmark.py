"""benchmarks/quality measures what it says: metrics behave, sets are fixed, bars are judged, what is judged is what users get."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from gpen_cli import geometry
from gpen_cli.detect.bundled import BundledDetector
from gpen_cli.detect.search import find_faces
from gpen_cli.options import FaceOptions
from gpen_cli.train.face_net import CROP_COLUMNS, CROP_ROWS, WINDOW_MOVE

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from quality import command, identity, metrics, niqe, regions, sets, stats, sweep, table
from quality.bars import bars, lines
from quality.judge import INPUT, UNSHARP, Record
from quality.restore import Net

SIZE = 256
NET = "a net"


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def aligned(photo: np.ndarray) -> np.ndarray:
    """(256, 256, 3) crop of the photo's largest face."""
    face = find_faces(BundledDetector(1), photo, FaceOptions(only_largest=True)).faces[0]
    return geometry.warp_crop(photo, geometry.crop_from_photo(face.landmarks, "gpen", SIZE), SIZE)


@pytest.fixture(scope="module")
def woman(astronaut: np.ndarray) -> np.ndarray:
    return aligned(astronaut)


@pytest.fixture(scope="module")
def man(hopper: np.ndarray) -> np.ndarray:
    return aligned(hopper)


@pytest.fixture(scope="module")
def original(man: np.ndarray) -> metrics.Original:
    return metrics.known(man)


def blurred(picture: np.ndarray, sigma: float) -> np.ndarray:
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), sigma))


def records(case: str, each: dict[str, dict[str, float]], *, really: bool = True, faces: int = 8) -> list[Record]:
    """The same figures, a little spread, for every face."""
    return [
        Record(
            f"{face:05}",
            SIZE,
            {"source": "here"},
            case,
            method,
            {name: value * (1 + 0.001 * face) for name, value in figures.items()},
            really=really,
            decision="restored",
            guard=1.0,
        )
        for face in range(faces)
        for method, figures in each.items()
    ]


def test_a_picture_equals_itself(original: metrics.Original):
    found = metrics.figures(original.pixels, original)
    assert found["psnr"] == float("inf")
    assert found["ssim"] == pytest.approx(1.0)
    assert found["landmarks"] == 0.0
    assert found["lids"] == found["nostrils"] == 1.0


def test_a_blurred_face_has_softer_lids_and_skin(original: metrics.Original):
    sharp = metrics.figures(original.pixels, original)
    soft, softer = (metrics.figures(blurred(original.pixels, sigma), original) for sigma in (1.5, 3.0))
    for name in ("psnr", "ssim", "lids", "nostrils", "skin", "hair"):
        assert softer[name] < soft[name] < sharp[name], name


def test_noise_is_no_sharpness(original: metrics.Original):
    """Edges stand out of the noise of a poor photo: 10 levels of it do not make a soft face sharp."""
    soft = blurred(original.pixels, 2.0)
    noise = np.random.default_rng(1).normal(0.0, 10.0, soft.shape)
    noisy = np.clip(soft + noise, 0, 255).astype(np.uint8)
    assert metrics.figures(noisy, original)["lids"] < metrics.figures(soft, original)["lids"] + 0.15


def test_landmarks_are_measured_in_eye_widths(original: metrics.Original):
    unit = regions.eye_distance(original.points)
    assert regions.landmark_error(original.points + (0.3 * unit, 0.4 * unit), original.points) == pytest.approx(0.5)


def test_regions_leave_out_what_lies_outside_the_photo(original: metrics.Original):
    rows = np.nonzero(original.regions["hair"])[0]
    cut = regions.masks(original.points, SIZE, (0, int(rows.mean()), 0, 0))
    assert 0 < cut["hair"].sum() < original.regions["hair"].sum()
    assert (cut["lids"] == original.regions["lids"]).all()


def test_another_person_is_farther_than_the_same_one(man: np.ndarray, woman: np.ndarray):
    pytest.importorskip("dlib")
    judge = identity.identity()
    if judge is None:
        pytest.skip("face-recognition-models is not installed")
    box = judge.box(man)
    own = judge.descriptor(man, box)
    same = identity.distance(own, judge.descriptor(blurred(man, 1.0), box))
    other = identity.distance(own, judge.descriptor(woman, judge.box(woman)))
    assert identity.distance(own, own) == 0.0
    assert same < 0.4 < other


def test_the_losses_look_at_faces_where_dlib_does(man: np.ndarray, woman: np.ndarray):
    """A net taught through another window pleases that one: identity distance fell by 20 % there, and by 8 % in dlib's own."""
    pytest.importorskip("dlib")
    judge = identity.identity()
    assert judge is not None
    for face in (man, woman):
        window = judge.window(face, judge.box(face))
        assert np.abs(np.subtract(window, (*CROP_ROWS, *CROP_COLUMNS))).max() <= WINDOW_MOVE


def test_looks_are_groups_of_the_faces_they_were_written_for(tmp_path: Path, man: np.ndarray):
    """00071 has glasses and a beard; a face that nobody described has no such group."""
    (tmp_path / "val").mkdir()
    for name in ("00071.png", "99999.png"):
        Image.fromarray(man).save(tmp_path / "val" / name)
    line = "{},s,256,100,val,p,l,A,0,1,0,0,0,0,0,0.1,0,x"
    columns = "file,source,size_class,sharpness,split,person,licence,confidence,detail_ratio,scale,outside"
    columns += ",pad_l,pad_t,pad_r,pad_b,yaw,roll,landmarks"
    rows = [columns, *(line.format(f"val/{name}") for name in ("00071.png", "99999.png"))]
    (tmp_path / "index.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    known, unknown = sets.load_portraits(tmp_path)
    assert (known.groups["glasses"], known.groups["beard"], known.groups["dark skin"]) == ("yes", "yes", "no")
    assert "glasses" not in unknown.groups


def test_lightness_is_the_middle_pixels():
    gray = np.full((8, 8, 3), 119, np.uint8)  # sRGB 119 is L* 50
    gray[0, 0] = 255
    assert regions.lightness(gray, np.ones((8, 8), bool)) == pytest.approx(50, abs=0.3)


def test_a_face_that_dlib_does_not_find_has_the_crops_own_box():
    pytest.importorskip("dlib")
    judge = identity.identity()
    if judge is None:
        pytest.skip("face-recognition-models is not installed")
    left, top, right, bottom = judge.box(np.full((SIZE, SIZE, 3), 128, np.uint8))
    assert 0 < left < SIZE / 2 < right < SIZE
    assert 0 < top < SIZE / 2 < bottom < SIZE


def test_niqe_calls_a_blurred_face_worse(man: np.ndarray):
    model = niqe.undistorted()
    if model is None:
        pytest.skip("basicsr's file of NIQE's model is not installed")
    assert niqe.niqe(man, model) < niqe.niqe(blurred(man, 1.0), model) < niqe.niqe(blurred(man, 2.5), model)


def test_ssimulacra2_calls_a_blurred_face_worse(man: np.ndarray):
    pytest.importorskip("ssimulacra2")
    assert metrics.ssimulacra2(man, man) == pytest.approx(100.0)
    assert metrics.ssimulacra2(man, man) > metrics.ssimulacra2(blurred(man, 0.7), man)
    assert metrics.ssimulacra2(blurred(man, 0.7), man) > metrics.ssimulacra2(blurred(man, 2.0), man)


def test_what_is_missing_is_one_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics, "find_spec", lambda name: None if name == "dlib" else object())
    assert metrics.missing() == ["identity is left out: dlib not installed; pip install 'gpen-cli[metrics]'"]


@pytest.mark.parametrize("case", [*sets.SETS.values(), *sweep.sweep_cases()], ids=lambda case: case.name)
def test_sets_are_the_same_every_time(case: sets.Case, woman: np.ndarray):
    once, again = (sets.degraded(woman, case, stem="00001") for _ in range(2))
    if case.kind == "mixed":
        assert once is None  # there is no such file
        return
    assert once.shape == woman.shape
    assert once.dtype == np.uint8
    assert (once == again).all()
    assert (once == woman).all() == (case.kind == "clean")


def test_each_face_is_moved_in_its_own_direction(woman: np.ndarray):
    case = sets.SETS["motion"]
    one, other = (sets.degraded(woman, case, stem=stem) for stem in ("00001", "00002"))
    assert not (one == other).all()


@pytest.mark.parametrize("length", [3, 5, 16])
def test_a_motion_kernel_is_a_line_of_its_length(length: int):
    kernel = sets.motion_kernel(length, 0.0)
    assert kernel.sum() == pytest.approx(1.0)
    assert np.count_nonzero(kernel.sum(axis=1) > 0.01) == 1
    columns = np.arange(kernel.shape[1])
    weights = kernel.sum(axis=0)
    spread = np.sqrt((weights * (columns - columns @ weights) ** 2).sum())
    assert spread == pytest.approx(length / np.sqrt(12), abs=0.15)


def test_an_interval_brackets_the_mean_and_is_repeatable():
    values = np.random.default_rng(3).normal(20.0, 4.0, 100)
    found = stats.bootstrap(values, stats.mean)
    assert found.low < found.value < found.high
    assert found.half == pytest.approx(1.96 * values.std() / 10, rel=0.15)  # the standard error's
    assert found == stats.bootstrap(values, stats.mean)


def test_few_and_missing_figures_are_said_so():
    assert np.isnan(stats.bootstrap(np.array([1.0, 2.0]), stats.mean).low)
    found = stats.bootstrap(np.array([1.0, 2.0, 3.0, np.nan]), stats.mean)
    assert (found.value, found.faces) == (2.0, 3)
    assert np.isnan(stats.bootstrap(np.array([]), stats.mean).value)


FIGURES = {"psnr": 25.0, "ssimulacra2": 10.0, "identity": 0.5, "niqe": 10.0, "lids": 0.5, "landmarks": 0.05}


def test_a_net_that_does_nothing_misses_the_bars():
    same = {INPUT: FIGURES, UNSHARP: FIGURES, NET: FIGURES}
    found = bars([record for case in sets.USUAL for record in records(case, same)], NET)
    met = {(bar.case, bar.what): bar.met for bar in found}
    assert [key for key, value in met.items() if value] == [("val_mixed", "faces really restored")]
    assert "missed" in "\n".join(lines(found, NET))


def test_a_good_net_meets_the_bars():
    better = {"psnr": 27.0, "ssimulacra2": 40.0, "identity": 0.3, "niqe": 6.0}
    each = {INPUT: FIGURES, UNSHARP: FIGURES, NET: better}
    clean = records("clean", {INPUT: FIGURES, NET: {"psnr": 35.0, "identity": 0.1}})
    found = bars(clean + [record for case in ("val_mixed", "motion") for record in records(case, each)], NET)
    assert all(bar.met for bar in found)
    assert len(found) == 13


def test_faces_that_the_guard_stops_are_not_restored():
    each = {INPUT: FIGURES, UNSHARP: FIGURES, NET: FIGURES}
    found = {bar.what: bar for bar in bars(records("val_mixed", each, really=False), NET)}
    assert found["faces really restored"].found.value == 0.0
    assert found["faces really restored"].met is False


def test_a_figure_that_cannot_be_had_is_not_judged():
    without = {name: value for name, value in FIGURES.items() if name != "niqe"}
    found = bars(records("val_mixed", {INPUT: without, UNSHARP: without, NET: without}), NET)
    assert {bar.what for bar in found if bar.met is None} == {"NIQE against input", "NIQE against unsharp"}
    assert "not measured" in "\n".join(lines(found, NET))


def test_the_sweep_says_where_the_gain_ends():
    made = []
    for case in sweep.sweep_cases():
        gained = 1.0 if case.strength[0] > 3 else -1.0
        made += records(case.name, {INPUT: FIGURES, NET: {**FIGURES, "psnr": 25.0 + gained}})
    text = "\n".join(sweep.sweep_lines(made, NET))
    assert "gains in PSNR: 4, 5, 6" in text
    assert "gains in identity: nowhere surely" in text


def test_what_is_judged_is_what_gpen_enhance_aligned_gives(man: np.ndarray):
    from gpen_cli import Restorer
    from gpen_cli.options import NetOptions, Options, RunOptions

    given = sets.there_and_back(cv2.resize(man, (320, 320), interpolation=cv2.INTER_CUBIC), 128)
    with Restorer(Options(net=NetOptions(threads=1), run=RunOptions(aligned=True))) as restorer:
        expected = restorer.restore_with_faces(given)
    net = Net(None, "aligned")
    answer = net.answer(given)
    assert (answer.pixels == expected.pixels).all()
    assert answer.decision == expected.faces[0].decision == "restored"
    net.path = "raw"
    assert net.answer(given).pixels.shape == (SIZE, SIZE, 3)


def test_the_whole_run(
    man: np.ndarray, woman: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Two faces, one with its degraded file, without an index: tables, bars, JSON and sheet."""
    for folder in ("val", "val_mixed"):
        (tmp_path / folder / "256").mkdir(parents=True)
    for stem, face in (("1", man), ("2", woman)):
        Image.fromarray(face).save(tmp_path / "val" / "256" / f"{stem}.png")
    Image.fromarray(blurred(man, 2.0)).save(tmp_path / "val_mixed" / "256" / "1.png")
    monkeypatch.setattr(stats, "RESAMPLES", 50)
    out = tmp_path / "out"
    asked = ["--set", "val_mixed", "clean", "--processes", "1", "--output", str(out)]
    command.main(["--faces", str(tmp_path), *asked])
    text = capsys.readouterr().out
    assert "val_mixed, 256 px: 1 faces" in text
    assert "clean, 256 px: 2 faces" in text
    assert "What must hold" in text
    assert (out / "quality.txt").read_text(encoding="utf-8") in text
    figures = json.loads((out / "quality.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    net = table.nets_of([Record(**face) for face in figures["faces"]])[0]
    assert figures["means"]["clean"]["all"][net]["psnr"]["value"] > 20
    assert Image.open(out / "quality_sheet.png").width > 4 * 320
