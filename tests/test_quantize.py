"""gpen quantize: int8 where it counts, the same faces within 38 dB, what the file says of itself, and no file where it fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxruntime.quantization
import pytest
from drawn_weights import save_small_net
from onnx import numpy_helper
from PIL import Image
from typer.testing import CliRunner

from gpen_cli import device, quantize
from gpen_cli.aligned_faces import example_crops, photo_crops, worn
from gpen_cli.cli.main import app
from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError, UsageError, WeightsError
from gpen_cli.export import export_net
from gpen_cli.options import ExportOptions, QuantizeOptions
from gpen_cli.parity import Parity
from gpen_cli.quantize import quantize_file
from gpen_cli.runtime.onnx import OnnxGpen
from gpen_cli.runtime.onnx_buffers import GpuBuffers
from gpen_cli.runtime.onnx_graph import operators
from gpen_cli.runtime.onnx_int8 import quantized, share_in_int8
from gpen_cli.runtime.onnx_lean import lean, phase_kernels
from gpen_cli.weights.find import from_path
from gpen_cli.weights.onnx_file import read_export

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CPU = Setup("cpu", "int8", 1, 1, runtime="onnx", provider="cpu")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("net")
    weights = from_path(save_small_net(folder / "drawn.pth"))
    files = {}
    for name, options in {
        "float": ExportOptions(),
        "uint8": ExportOptions(io="uint8", batch=2),
        "fp16": ExportOptions("fp16"),
    }.items():
        files[name] = folder / f"{name}.onnx"
        export_net(weights, files[name], options)
    return files


@pytest.fixture(scope="module")
def int8(exports, tmp_path_factory):
    """io -> (file, figures), calibrated on the examples."""
    folder = tmp_path_factory.mktemp("int8")
    return {
        io: (folder / f"{io}.onnx", quantize_file(exports[io], folder / f"{io}.onnx", QuantizeOptions()))
        for io in ("float", "uint8")
    }


def gpen(*arguments: str | Path):
    return CliRunner().invoke(app, ["quantize", *map(str, arguments)])


# -- the graph ---------------------------------------------------------------------------------------------------------


def test_the_lean_graph_gives_the_same_numbers(exports):
    crop = example_crops(64)[:1].transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1
    model = onnx.load(exports["float"])
    changed = lean(model)
    onnx.checker.check_model(changed, full_check=True)
    before, after = (
        onnxruntime.InferenceSession(item.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"input": crop}
        )[0]
        for item in (model, changed)
    )
    assert np.abs(before - after).max() < 1e-5
    assert operators(changed)["ConvTranspose"] < operators(model)["ConvTranspose"]
    assert operators(changed)["DepthToSpace"] == 4


def test_phases_are_a_transposed_convolution_with_stride_2():
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((2, 3, 3, 3)).astype(np.float32)
    x = rng.standard_normal((2, 4, 4)).astype(np.float32)
    expected = np.zeros((3, 10, 10), np.float32)
    for y, z, a, b in np.ndindex(4, 4, 3, 3):
        expected[:, 2 * y + a, 2 * z + b] += x[:, y, z] @ weight[:, :, a, b]
    kernels = phase_kernels(weight).reshape(2, 2, 3, 2, 2, 2)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    for p, q, y, z in np.ndindex(2, 2, 5, 5):
        given = np.einsum("oiab,iab->o", kernels[p, q], padded[:, y : y + 2, z : z + 2])
        assert np.allclose(given, expected[:, 2 * y + p, 2 * z + q], atol=1e-5)


@pytest.mark.parametrize("io", ["float", "uint8"])
def test_at_least_80_percent_of_the_multiply_adds_are_int8_and_the_rest_of_the_rules_hold(int8, io):
    file, figures = int8[io]
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 17)]
    assert figures.share == share_in_int8(model)
    assert figures.share >= 0.8
    zeros = [
        numpy_helper.to_array(item)
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
        for item in model.graph.initializer
        if item.name == node.input[2]
    ]
    assert zeros, "nothing is quantised"
    assert all(item.dtype == np.int8 and item == 0 for item in zeros), "TensorRT takes symmetric int8 alone"


def test_onnxruntime_runs_every_wide_convolution_in_int8(int8, tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(int8["float"][0]), options, providers=["CPUExecutionProvider"])
    fused = operators(onnx.load(tmp_path / "fused.onnx"))
    inside = sum(count for name, count in fused.items() if name.endswith("QLinearConv"))
    wide = 4 + 4 + 5  # encoder, doubling, plain: of a 64 px net
    assert inside == wide, fused


def test_onnxruntimes_quantizer_is_given_a_file(exports, monkeypatch):
    """1.20's loses the weights of a graph that it is given out of memory."""
    given = []
    real = onnxruntime.quantization.quantize_static

    def recorded(source, *arguments, **options):
        given.append(isinstance(source, Path) and source.is_file())
        return real(source, *arguments, **options)

    monkeypatch.setattr("onnxruntime.quantization.quantize_static", recorded)
    model = onnx.load(exports["float"])
    quantized(model, [np.zeros((1, 3, 64, 64), np.float32)])
    assert given == [True]


# -- the faces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("io", ["float", "uint8"])
def test_the_faces_are_those_of_the_fp32_file_within_38_db(exports, int8, io):
    file, figures = int8[io]
    assert figures.parity.psnr >= 38
    assert figures.parity.faces == 5
    crops = example_crops(64)
    expected, given = (OnnxGpen(from_path(path), CPU).run(crops[:1]).astype(int) for path in (exports[io], file))
    assert 0 < np.abs(expected - given).max() < 60
    assert expected.std() > 5, "a flat answer would prove nothing"


def test_figures_that_miss_leave_no_file_and_what_was_there(exports, tmp_path, monkeypatch):
    target = tmp_path / "net.onnx"
    before = exports["float"].read_bytes()
    target.write_bytes(before)
    monkeypatch.setattr(quantize, "parity", lambda *_: Parity(5, 1, 90, 1.0, 37.9))
    with pytest.raises(DeviceError, match=r"not kept: .* 37\.9 dB; it has to be 38 dB at least: calibrate with photos"):
        quantize_file(exports["float"], target, QuantizeOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    assert target.read_bytes() == before


def test_every_fifth_face_of_the_users_photos_is_held_out(exports, tmp_path, monkeypatch, caplog):
    crops = worn(example_crops(64), 3, 1)
    monkeypatch.setattr(quantize, "photo_crops", lambda *_, **__: crops)
    faces = quantize._faces(read_export(exports["float"]), QuantizeOptions(calibration=EXAMPLES))
    assert (len(faces.calibration), len(faces.check)) == (10, 2)
    assert np.array_equal(faces.check, crops[[4, 9]])
    assert faces.told == "least and largest values over 10 faces of the user's"


def test_faces_of_photos_are_found_spread_over_them_and_a_bad_photo_is_passed_over(tmp_path, caplog):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"\xff\xd8 no photo")
    photos = [bad, EXAMPLES / "both.jpg", EXAMPLES / "hopper.jpg"]
    assert photo_crops(photos, 64, most=60, threads=1).shape == (3, 64, 64, 3)
    assert "bad.jpg" in caplog.text
    assert np.array_equal(
        photo_crops(photos, 64, most=3, threads=1)[:, 0, 0], photo_crops(photos, 64, most=60, threads=1)[[0, 2], 0, 0]
    )


def test_worn_faces_differ_and_are_the_same_for_a_seed():
    crops = example_crops(64)
    once, twice = worn(crops, 2, 5), worn(crops, 2, 5)
    assert once.shape == (8, 64, 64, 3)
    assert np.array_equal(once, twice)
    assert not np.array_equal(once[0], once[1])
    assert np.abs(once[::2].mean(axis=(1, 2)) - crops.mean(axis=(1, 2))).max() < 8, "colours stay in their order"


# -- what the file says of itself, and how it runs ---------------------------------------------------------------------


def test_metadata_are_the_exports_with_precision_and_calibration(exports, int8):
    before, after = read_export(exports["float"]), read_export(int8["float"][0])
    assert before is not None
    assert after is not None
    changed = {name for name in vars(before) if getattr(before, name) != getattr(after, name)}
    assert changed == {"precision", "calibration"}
    assert after.precision == "int8"
    assert after.calibration == "least and largest values over 27 crops of gpen's example faces"
    session = onnxruntime.InferenceSession(str(int8["float"][0]), providers=["CPUExecutionProvider"])
    told = session.get_modelmeta().custom_metadata_map
    assert {name.partition(".")[0] for name in told} == {"gpen"}


def test_one_bit_turned_over_is_seen(int8, tmp_path):
    content = bytearray(int8["float"][0].read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises(WeightsError, match="damaged or changed"):
        read_export(tmp_path / "x.onnx")


def test_a_photo_is_restored_with_the_file(photo, int8, tmp_path):
    out = tmp_path / "out.png"
    arguments = ["enhance", photo, "-o", out, "--weights", int8["uint8"][0], "--guard", "off", "--threads", 1]
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    assert result.exit_code == 0, result.output
    assert "int8 (the ONNX file's own)" in result.stderr
    assert Image.open(out).size == (480, 480)


def test_input_and_output_bound_to_a_device_answer_as_without(int8):
    """Through the real onnxruntime, on the one device this machine has."""
    net = OnnxGpen(from_path(int8["uint8"][0]), CPU)
    first, second = (net.feed(example_crops(64)[place : place + 1]) for place in (0, 1))
    buffers = GpuBuffers(net._session, "input", ("output", "mean"), first, device_id=0, device="cpu")
    for given in (first, second, first):
        for bound, plain in zip(
            buffers.run(given), net._session.run(["output", "mean"], {"input": given}), strict=True
        ):
            assert np.array_equal(bound, plain)
    assert buffers.fit(net._session, second)
    assert not buffers.fit(net._session, second[:1])


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_figures_and_the_path_and_the_same_file_gives_the_same_bytes(exports, int8, tmp_path):
    target = tmp_path / "net.onnx"
    result = gpen(exports["float"], "-o", target)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(target)
    for words in ("of the multiply-adds in int8", "held out: 5 faces, 1 a pass", "times as fast"):
        assert words in result.stderr
    assert target.read_bytes() == int8["float"][0].read_bytes()


def test_what_cannot_be_done_is_one_sentence_with_its_code(exports, int8, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "photos"):
        (tmp_path / name).mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "photos" / "black.png")
    (tmp_path / "foreign.onnx").write_bytes(b"somebody's work")
    public = onnx.load(exports["float"])
    del public.metadata_props[:]
    onnx.save(public, tmp_path / "public.onnx")
    (tmp_path / "cut.onnx").write_bytes(exports["float"].read_bytes()[:1000])
    source = exports["float"]
    cases = [
        ([tmp_path / "no.onnx", "-o", "x.onnx"], 4, "does not exist"),
        (["foreign.onnx", "-o", "x.onnx"], 4, "no ONNX file"),
        (["cut.onnx", "-o", "x.onnx"], 4, "cut off"),
        (["public.onnx", "-o", "x.onnx"], 4, "was not made by gpen export"),
        ([exports["fp16"], "-o", "x.onnx"], 4, "is in fp16"),
        ([int8["float"][0], "-o", "x.onnx"], 4, "is in int8"),
        ([source, "-o", "x.pth"], 2, "has to end in .onnx"),
        ([source, "-o", "foreign.onnx"], 2, "--overwrite"),
        ([source, "-o", source], 2, "is the file that is read"),
        ([source, "-o", "no/where.onnx"], 6, "does not exist; make it"),
        ([source, "-o", "x.onnx", "--calibration", "no-photos"], 2, "does not exist"),
        ([source, "-o", "x.onnx", "--calibration", "empty"], 2, "holds no photos"),
        ([source, "-o", "x.onnx", "--calibration", "photos"], 2, "shows 0 face(s), and 5 are needed"),
    ]
    for arguments, code, words in cases:
        result = gpen(*arguments)
        assert (result.exit_code, words in " ".join(result.stderr.split())) == (code, True), (arguments, result.stderr)
    assert (tmp_path / "foreign.onnx").read_bytes() == b"somebody's work"
    assert not (tmp_path / "x.onnx").exists()


def test_without_the_package_onnx_it_says_what_to_install(exports, tmp_path, monkeypatch):
    monkeypatch.setattr(device, "has_package", lambda name: name != "onnx")
    result = gpen(exports["float"], "-o", tmp_path / "x.onnx")
    assert result.exit_code == 5
    assert "Quantizing needs the package onnx" in result.stderr


def test_too_few_faces_are_a_usage_error(exports, tmp_path):
    with pytest.raises(UsageError, match="5 are needed"):
        quantize_file(exports["float"], tmp_path / "x.onnx", QuantizeOptions(calibration=EXAMPLES / "both.jpg"))
