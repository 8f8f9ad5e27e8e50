"""Runtimes: uint8 in and out, the papers' numbers, the same bytes in any company, and no NaN ever reaches a photo."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_weights import save_small_net
from scipy.ndimage import gaussian_filter

from gpen_cli.data import UInt8Image
from gpen_cli.device import Setup
from gpen_cli.errors import WeightsError
from gpen_cli.export import export_net
from gpen_cli.models.textbook import textbook_gpen
from gpen_cli.options import ExportOptions
from gpen_cli.runtime import make_net, torch_gpen
from gpen_cli.runtime.crops import UInt8Pass, to_tensor, to_uint8
from gpen_cli.runtime.known_answer import doubt
from gpen_cli.runtime.onnx import OnnxGpen
from gpen_cli.runtime.protocol import NetMemoryError, NonFiniteOutputError
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import from_path

RUNTIMES = ("eager", "onnx float", "onnx uint8")
"""Every runtime keeps the contract of ``CropNet``."""
CPU = Setup(device="cpu", precision="fp32", micro_batch=1, threads=1)
ONNX = dataclasses.replace(CPU, runtime="onnx", provider="cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def net_file(tmp_path_factory) -> Path:
    return save_small_net(tmp_path_factory.mktemp("net") / "drawn.pth")


@pytest.fixture(scope="module", params=RUNTIMES)
def make(request, net_file):
    """``make(micro_batch=…)`` on each runtime: the net, fp32, on the CPU."""
    if request.param == "eager":
        return lambda **setup: torch_net(net_file, **setup)
    io = request.param.removeprefix("onnx ")
    folder = net_file.parent / io
    folder.mkdir()
    export_net(from_path(net_file), folder / "drawn.onnx", ExportOptions(io=io))
    return lambda **setup: OnnxGpen(from_path(folder / "drawn.onnx"), dataclasses.replace(ONNX, **setup))


@pytest.fixture(scope="module")
def faces() -> UInt8Image:
    """(5, 64, 64, 3): smooth, each different."""
    noise = np.random.default_rng(3).normal(size=(5, 64, 64, 3))
    smooth = gaussian_filter(noise, (0, 3, 3, 0))
    return np.clip(127 + 127 * smooth / np.abs(smooth).max(), 0, 255).astype(np.uint8)


def torch_net(path: Path, **setup) -> TorchGpen:
    return TorchGpen(from_path(path), dataclasses.replace(CPU, **setup))


def textbook(path: Path, faces: UInt8Image) -> np.ndarray:
    """The papers' net on the same pixels, in levels, not yet rounded."""
    planes = torch.from_numpy(faces.copy()).permute(0, 3, 1, 2).float() / 127.5 - 1
    output = textbook_gpen(torch.load(path, weights_only=True), planes)
    return ((output + 1) * 127.5).clamp(0, 255).permute(0, 2, 3, 1).numpy()


def psnr(first: np.ndarray, second: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean((first.astype(float) - second.astype(float)) ** 2)))


# -- what goes in and comes out ----------------------------------------------------------------------------------------


def test_every_level_survives_the_way_in_and_out():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=3)
    levels[..., 1] = levels[..., 1].transpose(0, 2, 1)
    tensor = to_tensor(levels, torch.device("cpu"), torch.float32)
    assert tuple(tensor.shape) == (1, 3, 16, 16)
    assert (tensor.min(), tensor.max()) == (-1, 1)
    assert np.array_equal(to_uint8(tensor), levels)


def test_what_lies_beyond_the_range_is_clamped_and_halves_are_rounded_not_cut():
    tensor = torch.tensor([-9.0, -1.01, 1.01, 9.0, 100.6 / 127.5 - 1, 100.4 / 127.5 - 1]).reshape(1, 1, 1, 6)
    assert to_uint8(tensor.expand(1, 3, 1, 6))[0, 0, :, 0].tolist() == [0, 0, 255, 255, 101, 100]


def test_red_stays_red():
    red = np.zeros((1, 8, 8, 3), np.uint8)
    red[..., 0] = 255
    tensor = to_tensor(red, torch.device("cpu"), torch.float32)
    assert (tensor[0, 0] == 1).all()
    assert (tensor[0, 1:] == -1).all()
    assert np.array_equal(to_uint8(tensor), red)


def test_a_net_takes_and_gives_uint8_crops_of_its_size(make, faces):
    net = make(micro_batch=2)
    assert (net.name, net.crop_size, net.micro_batch) == ("drawn", 64, 2)
    output = net.run(faces[:2])
    assert (output.shape, output.dtype) == ((2, 64, 64, 3), np.uint8)
    assert output.std() > 5, "a flat answer would prove nothing below"


def test_crops_that_may_not_be_written_or_lie_crosswise_in_memory_are_taken(make, faces):
    net = make()
    expected = net.run(faces[:1])
    locked = faces[:1].copy()
    locked.setflags(write=False)
    assert np.array_equal(net.run(locked), expected)
    assert np.array_equal(net.run(np.asfortranarray(faces[:1])), expected)
    assert np.array_equal(faces[:1], locked), "crops are not changed"


def test_fp32_is_within_one_level_of_the_textbook_net(make, net_file, faces):
    difference = np.abs(make(micro_batch=5).run(faces) - textbook(net_file, faces))
    assert difference.max() <= 1


def test_bf16_is_close_to_fp32(net_file, faces):
    exact, fast = (torch_net(net_file, micro_batch=5, precision=name).run(faces) for name in ("fp32", "bf16"))
    assert not np.array_equal(exact, fast), "bf16 was not used"
    assert psnr(exact, fast) > 40


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_a_face_gives_the_same_bytes_whatever_is_beside_it(make, faces, micro_batch):
    check_neighbours(make(micro_batch=micro_batch), faces)


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_so_it_does_in_bf16(net_file, faces, micro_batch):
    check_neighbours(torch_net(net_file, precision="bf16", micro_batch=micro_batch), faces)


def check_neighbours(net, faces: UInt8Image) -> None:
    """Each face alone, and in any company up to the micro-batch, in any place."""
    alone = [net.run(face[None])[0] for face in faces]
    for count in range(1, net.micro_batch + 1):
        for chosen in ([0, 1, 2, 3], [4, 0, 3, 1], [2, 2, 2, 2]):
            for place, output in zip(chosen[:count], net.run(faces[chosen[:count]]), strict=True):
                assert np.array_equal(output, alone[place]), (count, chosen)


def test_only_one_shape_is_ever_given_to_the_net(make, faces, monkeypatch):
    shapes = set()
    net = make(micro_batch=3)
    forward = net._forward

    def watched(*given):
        shapes.add(given[-1].shape)
        return forward(*given)

    monkeypatch.setattr(net, "_forward", watched)
    assert [len(net.run(faces[:count])) for count in (1, 2, 3)] == [1, 2, 3]
    (shape,) = shapes
    assert shape in ((3, 64, 64, 3), (3, 3, 64, 64))


# -- numbers that are none ---------------------------------------------------------------------------------------------


def spoil(monkeypatch, when) -> None:
    """From now on the nets for which ``when(net, crops)`` is true answer a number that is none."""
    forward = TorchGpen._forward

    def spoilt(self, crops):
        return (lambda: None) if when(self, crops) else forward(self, crops)

    monkeypatch.setattr(TorchGpen, "_forward", spoilt)


class Spoilt(torch.nn.Module):
    """Answers its input, one number of it changed."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, faces):
        faces = faces.clone()
        faces[-1, 0, 3, 3] = self.value
        return faces


@pytest.mark.parametrize(("value", "is_finite"), [(0.5, True), (float("nan"), False), (float("inf"), False)])
def test_one_number_that_is_none_is_seen(faces, value, is_finite):
    pixels, finite = UInt8Pass(Spoilt(value), torch.float32)(torch.from_numpy(faces))
    assert bool(finite) == is_finite
    assert np.array_equal(pixels[0].numpy(), faces[0])


def test_a_net_that_overflows_in_low_precision_goes_on_in_fp32_with_one_warning(net_file, faces, monkeypatch):
    expected = torch_net(net_file).run(faces[:1])
    spoil(monkeypatch, lambda net, crops: net._setup.precision != "fp32")
    net = torch_net(net_file, precision="bf16")
    warnings: list[str] = []
    monkeypatch.setattr(torch_gpen.log, "warning", lambda text, *values: warnings.append(text % values))
    outputs = [net.run(faces[:1]) for _ in range(3)]
    assert all(np.array_equal(output, expected) for output in outputs)
    assert warnings == ["drawn gave NaN or infinity in bf16; it runs in fp32 from here on."]


def test_a_net_without_finite_numbers_in_fp32_raises_and_gives_no_pixels(net_file, faces, monkeypatch):
    spoil(monkeypatch, lambda net, crops: True)
    for precision in ("fp32", "bf16"):
        with pytest.raises(NonFiniteOutputError, match="the photo's own face stays"):
            torch_net(net_file, precision=precision).run(faces[:1])


def test_after_one_bad_face_the_net_still_serves_the_others(net_file, faces, monkeypatch):
    bad = faces[0]
    spoil(monkeypatch, lambda net, crops: np.array_equal(crops[0], bad))
    net = torch_net(net_file)
    with pytest.raises(NonFiniteOutputError):
        net.run(bad[None])
    assert net.run(faces[1:2]).shape == (1, 64, 64, 3)


# -- how a net is made -------------------------------------------------------------------------------------------------


def test_a_net_is_made_with_the_setups_threads(net_file):
    before = torch.get_num_threads()
    try:
        net = make_net(from_path(net_file), dataclasses.replace(CPU, threads=2, micro_batch=3))
        assert torch.get_num_threads() == 2
        assert (type(net), net.micro_batch) == (TorchGpen, 3)
    finally:
        torch.set_num_threads(before)


def test_a_weight_file_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "note.pth").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"note\.pth is empty"):
        torch_net(tmp_path / "note.pth")


# -- the face parser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parser_file(tmp_path_factory) -> Path:
    """ParseNet's weight file with weights drawn by its constructor."""
    parsenet = pytest.importorskip("facexlib.parsing.parsenet")
    torch.manual_seed(2)
    net = parsenet.ParseNet(in_size=512, out_size=512, parsing_ch=19)
    path = tmp_path_factory.mktemp("parser") / "parsenet.pth"
    torch.save({f"module.{name}": value for name, value in net.state_dict().items()}, path)
    return path


def test_the_parser_answers_one_of_19_classes_for_each_pixel(parser_file, faces):
    parser = make_net(from_path(parser_file), CPU, parser=True)
    assert (parser.crop_size, parser.micro_batch) == (512, 1)
    labels = parser.run(faces[:1])
    assert (labels.shape, labels.dtype) == ((1, 512, 512), np.uint8)
    assert labels.max() < 19
    assert len(np.unique(labels)) > 1


@pytest.mark.parametrize("side", [64, 512, 1024])
def test_the_parser_takes_crops_of_any_size_and_looks_at_512(parser_file, faces, side, monkeypatch):
    parser = make_net(from_path(parser_file), CPU, parser=True)
    seen = []

    def brightest_channel(planes):
        seen.append(planes)
        return planes, None

    monkeypatch.setattr(parser, "_net", brightest_channel)
    crops = np.zeros((2, side, side, 3), np.uint8)
    crops[0, ..., 2] = crops[1, : side // 2, :, 1] = 200
    labels = parser.run(crops)
    assert seen[0].shape == (2, 3, 512, 512)
    assert torch.isclose(seen[0][0, 2].median(), torch.tensor(200 / 127.5 - 1)), "pixels reach the parser as -1 to 1"
    assert (labels[0] == 2).all()
    assert (labels[1, :250] == 1).all()


def test_another_file_is_no_parser(parser_file, net_file, tmp_path):
    partial = dict(list(torch.load(parser_file, weights_only=True).items())[:10])
    torch.save(partial, tmp_path / "partial.pth")
    torch.save({1: torch.ones(1), "step": 3}, tmp_path / "odd.pth")
    for path in (net_file, tmp_path / "partial.pth", tmp_path / "odd.pth"):
        with pytest.raises(WeightsError, match="is not ParseNet's weight file") as caught:
            make_net(from_path(path), CPU, parser=True)
        assert str(caught.value).startswith(str(path))


# -- memory, and nets that nobody knows --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:125] DefaultCPUAllocator: not enough memory"),
    ],
)
def test_memory_that_is_full_is_said_so(net_file, faces, monkeypatch, error):
    net = torch_net(net_file, micro_batch=4)

    def full(tensor):
        raise error

    monkeypatch.setattr(net, "_pass", full)
    with pytest.raises(NetMemoryError, match="does not hold 4 face"):
        net.run(faces[:4])
    assert [net.halve(), net.micro_batch, net.halve(), net.micro_batch, net.halve()] == [True, 2, True, 1, False]


class Answers:
    """A net of which only the answer to one crop is known."""

    name, crop_size, micro_batch = "answers", 128, 1

    def __init__(self, change):
        self._change = change

    def run(self, crops):
        return np.stack([self._change(crop) for crop in crops])

    def halve(self):
        return False


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        (lambda crop: crop, None),
        (lambda crop: np.clip(crop * 1.1 - 10, 0, 255).astype(np.uint8), None),
        (lambda crop: ((crop / 255.0 + 1) * 127.5).astype(np.uint8), "another picture"),  # a net for [0, 1]
        (lambda crop: np.full_like(crop, 255), "one flat colour"),
        (lambda crop: ((crop / 127.5 - 1) / 127.5 * 127.5 + 127.5).astype(np.uint8), "one flat colour"),  # 0..255 in
        (lambda crop: 255 - crop, "another picture"),
    ],
    ids=["identity", "stronger contrast", "0 to 1", "white", "gray", "negative"],
)
def test_a_net_that_answers_no_face_is_told(change, trouble):
    told = doubt(Answers(change))
    assert told is None if trouble is None else trouble in told


def test_a_net_without_finite_answers_is_told():
    def broken(crop):
        raise NonFiniteOutputError("NaN")

    assert doubt(Answers(broken)) == "it gives no finite numbers"
