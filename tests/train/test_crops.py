"""Which photos are met, in which order, and how they are moved: a pure function of settings, seed and number."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import logging
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpen_cli import geometry
from gpen_cli.errors import PhotoError, UsageError
from gpen_cli.train.config import DataConfig, DegradationConfig
from gpen_cli.train.crops import Crops, epoch_order, find_crops, open_samples, repeats
from gpen_cli.train.jitter import Jitter, draw_jitter, moved_crop, weights
from gpen_cli.train.pack import pack

needs_basicsr = pytest.mark.skipif(importlib.util.find_spec("basicsr") is None, reason="basicsr is not installed")
STILL = {"max_rotation": 0.0, "max_shift": 0.0, "max_scale": 0.0}
CLEAN = DegradationConfig(clean_chance=1.0, gray_chance=0.0, old_photo_chance=0.0, colour_shift=0.0)
NO_MOVE = Jitter(False, 0.0, 1.0, (0.0, 0.0))
JITTERS = st.builds(
    Jitter,
    st.booleans(),
    st.floats(-0.1, 0.1),
    st.floats(0.9, 1.1),
    st.tuples(st.floats(-0.05, 0.05), st.floats(-0.05, 0.05)),
)


@pytest.fixture(scope="module")
def face(astronaut: np.ndarray) -> np.ndarray:
    """(256, 256, 3) uint8."""
    return np.ascontiguousarray(astronaut[:256, 96:352])


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, face: np.ndarray) -> Path:
    """Five 64 px crops of two sources, one of 128, one of 32 px, one that is no crop; an index above them."""
    root = tmp_path / "faces"
    for number in range(5):
        save(root / "train" / f"{number}.png", np.roll(cv2.resize(face, (64, 64)), 40 * number, axis=2) // (1 + number))
    save(root / "train" / "large" / "5.jpg", cv2.resize(face, (128, 128)))
    save(root / "train" / "small.png", cv2.resize(face, (32, 32)))
    save(root / "train" / "wide.png", face[:100])
    with (root / "index.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["file", "source", "confidence", "pad_l", "pad_t", "pad_r", "pad_b"])
        for number in range(5):
            writer.writerow([f"train/{number}.png", "one" if number else "other", "AB"[number % 2], 8, 0, 0, 0])
        writer.writerow(["train/large/5.jpg", "one", "A", 0, 0, 0, 12])
    return root / "train"


def samples_of(folder: Path, *, degradation: DegradationConfig = CLEAN, size: int = 64, seed: int = 1, **data) -> Crops:
    opened = open_samples(DataConfig(folders=(folder,), **data), degradation, size, seed)
    assert isinstance(opened, Crops)
    return opened


def digest(samples: Crops, count: int) -> str:
    parts = [part for number in range(count) for part in samples.sample(number)[:3]]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@needs_basicsr
def test_same_number_same_bytes_in_any_order_pickled_and_in_another_process(folder: Path) -> None:
    degradation = DegradationConfig(clean_chance=0.0)
    samples = samples_of(folder, degradation=degradation)
    first = digest(samples, 12)
    later = [samples.sample(number).degraded for number in (11, 3)]
    again = pickle.loads(pickle.dumps(samples_of(folder, degradation=degradation)))
    assert all(np.array_equal(again.sample(n).degraded, d) for n, d in zip((11, 3), later, strict=True))
    assert digest(samples_of(folder, degradation=degradation, seed=2), 12) != first
    code = (
        "import sys, hashlib\nfrom pathlib import Path\n"
        "from gpen_cli.train.config import DataConfig, DegradationConfig\nfrom gpen_cli.train.crops import open_samples\n"
        "s = open_samples(DataConfig(folders=(Path(sys.argv[1]),)), DegradationConfig(clean_chance=0.0), 64, 1)\n"
        "parts = [part for n in range(12) for part in s.sample(n)[:3]]\n"
        "print(hashlib.sha256(b''.join(part.tobytes() for part in parts)).hexdigest())\n"
    )
    out = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == first


@needs_basicsr
def test_shapes_and_what_is_left_out_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gpen_cli"):
        samples = samples_of(folder)
    assert len(samples) == 6
    assert "wide.png is left out: 256×100 px" in caplog.text
    assert "1 of 7 crops are smaller than 64 px" in caplog.text
    sample = samples.sample(0)
    assert sample.degraded.shape == sample.original.shape == (64, 64, 3)
    assert sample.weight.shape == (64, 64)
    assert {array.dtype for array in sample[:3]} == {np.dtype(np.uint8)}


@needs_basicsr
def test_small_crops_are_used_where_there_is_nothing_else(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    samples = samples_of(folder, size=256)
    assert len(samples) == 7
    assert samples.sample(0).original.shape == (256, 256, 3)
    assert "are enlarged" in caplog.text


@needs_basicsr
def test_every_photo_is_met_once_an_epoch_at_balance_0_and_each_epoch_has_its_own_order(folder: Path) -> None:
    samples = samples_of(folder, balance=0.0)
    epochs = [[samples.sample(6 * epoch + place).name for place in range(6)] for epoch in range(3)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len(set(epochs[0])) == 6
    assert len(set(map(tuple, epochs))) > 1


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), balance=st.floats(0.0, 1.0), seed=st.integers(0, 99))
def test_balance_repeats_the_photos_of_small_sources(sizes: list[int], balance: float, seed: int) -> None:
    sources = [f"s{number}" for number, size in enumerate(sizes) for _ in range(size)]
    order = epoch_order(repeats(sources, balance), np.random.default_rng(seed))
    met = Counter(order.tolist())
    assert set(met) == set(range(len(sources)))  # nobody is left out
    by_source = Counter(sources[number] for number in order)
    for number, size in enumerate(sizes):
        assert by_source[f"s{number}"] == round(size * (max(sizes) / size) ** balance)
        times = [met[photo] for photo, source in enumerate(sources) if source == f"s{number}"]
        assert max(times) - min(times) <= 1


def test_balance_1_samples_sources_alike_and_others_are_refused() -> None:
    assert [count for _, count in repeats(["a"] * 30 + ["b"] * 2, 1.0)] == [30, 30]
    with pytest.raises(UsageError, match="between 0 and 1"):
        repeats(["a"], 1.5)


@needs_basicsr
def test_index_gives_sources_confidence_and_padding(folder: Path) -> None:
    assert len(samples_of(folder, confidence=("A",))) == 4
    samples = samples_of(folder, balance=0.0, mirror=False, **STILL)
    by_name = {Path(s.name).name: s.weight for s in map(samples.sample, range(6))}
    assert not by_name["1.png"][:, :8].any()
    assert by_name["1.png"][:, 8:].all()
    assert not by_name["5.jpg"][-6:].any()  # 12 of 128 px
    assert by_name["5.jpg"][:-6].all()


@settings(max_examples=50, deadline=None)
@given(jitter=JITTERS)
def test_crop_is_moved_as_its_matrix_says(jitter: Jitter) -> None:
    """A blob lands where the matrix takes its middle, at the filed and at half the size."""
    at = np.array([40.0, 52.0])
    y, x = np.mgrid[:96, :96]
    blob = np.exp(-((x - at[0]) ** 2 + (y - at[1]) ** 2) / 18.0) * 255
    pixels = np.repeat(blob[..., None], 3, axis=2).astype(np.uint8)
    for size in (96, 48):
        moved = moved_crop(pixels, jitter, size)[..., 0].astype(float)
        rows, columns = np.mgrid[:size, :size]
        found = np.array([(moved * columns).sum(), (moved * rows).sum()]) / moved.sum()
        to_size = geometry.compose(geometry.scaling((96, 96), (size, size)), jitter.matrix(96))
        assert np.allclose(found, geometry.apply(to_size, [at])[0], atol=0.25)


@settings(max_examples=50, deadline=None)
@given(jitter=JITTERS, pad=st.tuples(*[st.integers(0, 20)] * 4), size=st.sampled_from([96, 48]))
def test_weight_is_1_only_where_photo_is_seen(jitter: Jitter, pad: tuple[int, int, int, int], size: int) -> None:
    weight = weights(96, pad, jitter, size)
    assert set(np.unique(weight)) <= {0, 1}
    filed_from_small = geometry.invert(geometry.compose(geometry.scaling((96, 96), (size, size)), jitter.matrix(96)))
    rows, columns = np.nonzero(weight)
    points = geometry.apply(filed_from_small, np.column_stack((columns, rows)))
    low, high = np.array(pad[:2]) - 0.1, 95.1 - np.array(pad[2:])
    assert (points >= low).all()
    assert (points <= high).all()
    middle = geometry.apply(geometry.invert(filed_from_small), [[47.5, 47.5]])[0]
    assert weight[int(middle[1]), int(middle[0])] == 1


@given(seed=st.integers(0, 10**6))
def test_jitter_stays_within_the_settings(seed: int) -> None:
    data = DataConfig(max_rotation=4.0, max_shift=0.02, max_scale=0.05, mirror=False)
    jitter = draw_jitter(data, np.random.default_rng(seed))
    assert not jitter.mirrored
    assert abs(np.degrees(jitter.angle)) <= 4.0
    assert 1 / 1.05 - 1e-9 <= jitter.scale <= 1.05 + 1e-9
    assert max(map(abs, jitter.shift)) <= 0.02


def test_without_jitter_the_crop_is_exact_and_mirroring_too(face: np.ndarray) -> None:
    assert np.array_equal(moved_crop(face, NO_MOVE, 256), face)
    mirrored = Jitter(True, 0.0, 1.0, (0.0, 0.0))
    assert np.array_equal(moved_crop(face, mirrored, 256), face[:, ::-1])
    assert weights(256, (0, 0, 0, 0), mirrored, 128).all()
    assert draw_jitter(DataConfig(**STILL), np.random.default_rng(1)).only_mirrors


@pytest.mark.parametrize("lr_size", [32, 64, 128])
def test_one_pair_of_any_two_sizes_moves_alike(tmp_path: Path, face: np.ndarray, lr_size: int) -> None:
    smooth = cv2.resize(cv2.GaussianBlur(face, (0, 0), 8), (64, 64), interpolation=cv2.INTER_AREA)
    save(tmp_path / "hr" / "a.png", smooth)
    save(tmp_path / "lr" / "a.png", cv2.resize(smooth, (lr_size, lr_size), interpolation=cv2.INTER_AREA))
    samples = open_samples(DataConfig(hr_dir=tmp_path / "hr", lr_dir=tmp_path / "lr"), DegradationConfig(), 64, 1)
    assert len(samples) == 1
    for number in range(6):
        sample = samples.sample(number)
        seen = sample.weight == 1
        assert np.abs(sample.degraded.astype(int) - sample.original)[seen].mean() < 3.0


def test_pairs_without_partners_are_said(tmp_path: Path, face: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("hr/a.png", "hr/b.png", "lr/a.jpg", "lr/c.png"):
        save(tmp_path / name, face)
    assert len(open_samples(DataConfig(hr_dir=tmp_path / "hr", lr_dir=tmp_path / "lr"), CLEAN, 64, 1)) == 1
    assert "1 pictures in" in caplog.text
    with pytest.raises(UsageError, match="same name"):
        open_samples(DataConfig(hr_dir=tmp_path / "hr", lr_dir=tmp_path), CLEAN, 64, 1)


@pytest.mark.skipif(importlib.util.find_spec("basicsr") is None, reason="basicsr is not installed")
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (DataConfig(), "give --data"),
        (DataConfig(folders=(Path("nowhere"),)), "nowhere is no folder"),
        (DataConfig(hr_dir=Path("x")), "belong together"),
        (DataConfig(folders=(Path("x"),), dataset="y"), "--data and a dataset were given"),
    ],
)
def test_what_cannot_be_opened_is_a_usage_error(data: DataConfig, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        open_samples(data, CLEAN, 64, 1)


@needs_basicsr
def test_bad_indexes_and_files_that_go_are_named(folder: Path, tmp_path: Path) -> None:
    samples = samples_of(folder)
    (folder / "1.png").write_bytes(b"")
    (folder / "2.png").unlink()
    errors = []
    for number in range(samples.epoch_length):
        try:
            samples.sample(number)
        except PhotoError as error:
            errors.append(str(error))
    assert any("1.png is damaged" in error for error in errors)
    assert any("2.png cannot be read any more" in error for error in errors)
    bad = tmp_path / "bad.csv"
    for text, sentence in (
        ("name\n1\n", "no column 'file'"),
        ("file,pad_l\na.png,-3\n", "line 2: pad_l is '-3'"),
        ("file,pad_l\na.png,３\n", "pad_l is '３'"),
    ):
        bad.write_text(text)
        with pytest.raises(UsageError, match=sentence):
            samples_of(folder, index=bad)


@pytest.mark.parametrize("format", ["jpg", "webp"])
def test_packed_crops_keep_their_padding(tmp_path: Path, face: np.ndarray, format: str) -> None:
    root = tmp_path / "faces"
    save(root / "train" / "512" / "1.png", cv2.resize(face, (512, 512)))
    save(root / "train" / "64" / "2.png", cv2.resize(face, (64, 64)))
    save(root / "val" / "3.png", face)
    with (root / "index.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "source", "confidence", "pad_l", "pad_t", "pad_r", "pad_b"])
        writer.writerow(["train/512/1.png", "here", "A", 9, 0, 30, 1])
        writer.writerow(["train/64/2.png", "here", "A", 0, 0, 0, 0])
        writer.writerow(["val/3.png", "here", "A", 0, 0, 0, 0])
    out = tmp_path / "packed"
    assert pack(root, out, size=128, quality=90, format=format) == 1
    assert (out / "train" / f"1.{format}").read_bytes()[:4] == {"jpg": b"\xff\xd8\xff\xe0", "webp": b"RIFF"}[format]
    data = DataConfig(folders=(out / "train",), workers=0, mirror=False, **STILL)
    (sample,) = [Crops([crop], data, CLEAN, 128, 1).sample(0) for crop in find_crops(data, 128)]
    weight = sample.weight
    assert weight[:, :3].max() == 0
    assert weight[:, 120:].max() == 0
    assert weight[-1].max() == 0
    assert weight[:127, 3:120].min() == 1
