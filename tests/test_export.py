"""gpen export: real opset 17, plain operators, proven equal before it is kept, and no file where it fails."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from drawn_weights import save_small_net
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

from gpen_cli import __version__, device, export
from gpen_cli.aligned_faces import example_crops
from gpen_cli.cli.main import app
from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError, OutputError, UsageError, WeightsError
from gpen_cli.export import cached_export, export_net
from gpen_cli.options import ExportOptions
from gpen_cli.parity import Parity
from gpen_cli.runtime.onnx_graph import OPERATORS, checked, operators
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import from_path
from gpen_cli.weights.onnx_file import read_export

CASES = [("fp32", "float", None), ("fp32", "uint8", None), ("fp16", "float", 2), ("fp16", "uint8", 2)]
SHAPE_WORK = {
    "Shape",
    "Gather",
    "Slice",
    "Reshape",
    "Expand",
    "ConstantOfShape",
    "Range",
    "Where",
    "Equal",
    "ScatterND",
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path.parent / f"{tmp_path.name}-cache"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return from_path(save_small_net(tmp_path_factory.mktemp("net") / "drawn.pth"))


@pytest.fixture(scope="module")
def exports(weights, tmp_path_factory):
    """Each case, exported once: (file, figures)."""
    folder = tmp_path_factory.mktemp("exports")
    done = {}
    for precision, io, batch in CASES:
        file = folder / f"{precision}-{io}-{batch}.onnx"
        done[precision, io, batch] = file, export_net(weights, file, ExportOptions(precision, io, batch))
    return done


def gpen(*arguments: str | Path):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


# -- the graph ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_the_file_is_opset_17_alone_and_the_checker_takes_it(exports, case):
    model = onnx.load(exports[case][0])
    onnx.checker.check_model(model, full_check=True)
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 17)]


@pytest.mark.parametrize("case", CASES)
def test_the_graph_holds_plain_operators_and_no_work_on_shapes(exports, case):
    held = set(operators(onnx.load(exports[case][0])))
    assert held <= OPERATORS
    assert not held & (SHAPE_WORK | {"Constant", "Identity"})
    if case[:2] == ("fp32", "float"):
        assert "Cast" not in held


@pytest.mark.parametrize("case", CASES)
def test_no_convolution_has_a_face_a_group_and_all_weights_are_constants(exports, case):
    graph = onnx.load(exports[case][0]).graph
    constants = {item.name: tuple(item.dims) for item in graph.initializer}
    for node in graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            groups = next((item.i for item in node.attribute if item.name == "group"), 1)
            assert node.input[1] in constants
            assert groups == 1 or (node.op_type, constants[node.input[1]][:2]) == ("Conv", (groups, 1))


@pytest.mark.parametrize("case", CASES)
def test_inputs_and_outputs_are_those_of_the_public_files_or_pixels(exports, case):
    _, io, batch = case
    graph = onnx.load(exports[case][0]).graph
    seen = [
        (
            item.name,
            item.type.tensor_type.elem_type,
            [d.dim_param or d.dim_value for d in item.type.tensor_type.shape.dim],
        )
        for item in (*graph.input, *graph.output)
    ]
    faces = batch or "batch"
    if io == "float":
        kind, shape = onnx.TensorProto.FLOAT, [faces, 3, 64, 64]
        assert seen == [("input", kind, shape), ("output", kind, shape)]
    else:
        kind, shape = onnx.TensorProto.UINT8, [faces, 64, 64, 3]
        assert seen == [("input", kind, shape), ("output", kind, shape), ("mean", onnx.TensorProto.FLOAT, [faces])]


def test_a_graph_that_breaks_a_rule_is_refused(exports):
    model = onnx.load(exports["fp32", "float", None][0])
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    wrong.opset_import[0].version = 18
    with pytest.raises(DeviceError, match="not valid ONNX"):
        checked(wrong, 17, batch=None)
    with pytest.raises(DeviceError, match="instead of opset 16"):
        checked(model, 16, batch=None)
    wrong.opset_import[0].version = 17
    wrong.opset_import.add(domain="com.microsoft", version=1)
    with pytest.raises(DeviceError, match="instead of opset 17"):
        checked(wrong, 17, batch=None)
    with pytest.raises(DeviceError, match="another batch than 4"):
        checked(model, 17, batch=4)
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    wrong.graph.node.append(onnx.helper.make_node("Shape", ["input"], ["odd"]))
    with pytest.raises(DeviceError, match="do not belong: Shape"):
        checked(wrong, 17, batch=None)


# -- parity ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_the_figures_hold_at_one_face_and_at_three(exports, case):
    precision, _, batch = case
    figures = exports[case][1]
    assert [item.batch for item in figures] == ([batch] if batch else [1, 3])
    for item in figures:
        assert item.faces == 4
        assert item.psnr >= 45
        assert item.most_levels <= (1 if precision == "fp32" else 30)


def test_the_check_looks_at_real_faces(weights):
    crops = example_crops(64)
    assert (crops.shape, crops.dtype) == ((4, 64, 64, 3), np.uint8)
    answers = np.stack([TorchGpen(weights, Setup("cpu", "fp32", 1, 1)).run(crop[None])[0] for crop in crops])
    assert answers.std() > 5, "a flat answer would prove nothing"


def test_pixels_in_and_out_round_halves_to_even_as_pytorch_does(exports):
    """On a second, independent engine: onnx's own reference."""
    file = exports["fp32", "uint8", None][0]
    crops = example_crops(64)[:1]
    reference, mean = ReferenceEvaluator(str(file)).run(None, {"input": crops})
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    answer = session.run(["output"], {"input": crops})[0]
    assert np.abs(reference.astype(int) - answer).max() <= 1
    assert np.isfinite(mean).all()


def test_figures_that_miss_leave_no_file_and_what_was_there(exports, weights, tmp_path, monkeypatch):
    target = tmp_path / "net.onnx"
    before = exports["fp32", "float", None][0].read_bytes()
    target.write_bytes(before)
    monkeypatch.setattr(export, "parity", lambda *_: Parity(4, 1, 2, 0.5, 44.0))
    for precision, words in (("fp32", "within 1 level"), ("fp16", "45 dB at least")):
        with pytest.raises(DeviceError, match=words):
            export_net(weights, target, ExportOptions(precision))
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    assert target.read_bytes() == before


def test_a_net_whose_values_leave_fp16_is_refused_in_fp16_only(tmp_path):
    path = save_small_net(tmp_path / "large.pth")
    state = torch.load(path, weights_only=True)
    state["ecd0.0.0.weight"] *= 1e6
    torch.save(state, path)
    with pytest.raises(WeightsError, match="fp16 ends at 65504; export it with --precision fp32"):
        export_net(from_path(path), tmp_path / "x.onnx", ExportOptions("fp16"))
    assert not (tmp_path / "x.onnx").exists()


# -- what the file says of itself --------------------------------------------------------------------------------------


def test_metadata_names_model_size_template_licence_version_and_source(exports, weights):
    said = read_export(exports["fp16", "uint8", 2][0])
    assert said is not None
    assert said.source_sha256 == hashlib.sha256(weights.path.read_bytes()).hexdigest()
    assert (said.model, said.crop_size, said.template, said.version) == ("drawn", 64, "gpen", __version__)
    assert (said.io, said.precision, said.licence) == ("uint8", "fp16", "licence not known to gpen")
    session = onnxruntime.InferenceSession(str(exports["fp16", "uint8", 2][0]), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["gpen.model"] == "drawn"


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_figures_and_the_path_and_the_same_net_gives_the_same_bytes(exports, weights, tmp_path):
    target = tmp_path / "net.onnx"
    result = gpen("--weights", weights.path, "-o", target)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(target)
    assert "4 faces, 1 a pass: at most" in result.stderr
    assert "4 faces, 3 a pass: at most" in result.stderr
    assert target.read_bytes() == exports["fp32", "float", None][0].read_bytes()


def test_a_foreign_file_is_replaced_only_with_overwrite_and_an_own_one_always(exports, weights, tmp_path):
    target = tmp_path / "net.onnx"
    target.write_bytes(b"somebody's work")
    result = gpen("--weights", weights.path, "-o", target)
    assert result.exit_code == 2
    assert "--overwrite" in result.stderr
    assert target.read_bytes() == b"somebody's work"
    assert gpen("--weights", weights.path, "-o", target, "--overwrite").exit_code == 0
    target.write_bytes(exports["fp16", "float", 2][0].read_bytes())
    assert gpen("--weights", weights.path, "-o", target).exit_code == 0
    assert target.read_bytes() == exports["fp32", "float", None][0].read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-o", "x.onnx"], 2, "--model NAME"),
        (["-o", "x.onnx", "--model", "gpen-open-256", "--weights", "w.pth"], 2, "--model NAME"),
        (["-o", "x.onnx", "--model", "nothing"], 2, "is not known"),
        (["-o", "x.pth", "--model", "gpen-open-256"], 2, "has to end in .onnx"),
        (["-o", "x.onnx", "--model", "gpen-open-256", "--batch", "many"], 2, "--batch 'many'"),
        (["-o", "x.onnx", "--model", "gpen-open-256", "--batch", "0"], 2, "--batch 0"),
        (["-o", "x.onnx", "--model", "gpen-open-256", "--precision", "bf16"], 2, "--precision 'bf16'"),
        (["-o", "x.onnx", "--model", "gpen-open-256", "--io", "int8"], 2, "--io 'int8'"),
        (["-o", "no/where/x.onnx", "--model", "gpen-open-256"], 6, "no/where does not exist"),
        (["-o", "x.onnx", "--model", "gpen-bfr-512"], 4, "284,085,738"),
        (["-o", "x.onnx", "--weights", "missing.pth"], 4, "does not exist"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_sentence_with_its_code(tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    result = gpen(*arguments)
    assert (result.exit_code, words in " ".join(result.stderr.split())) == (code, True), result.stderr
    assert not list(tmp_path.glob("*.onnx"))


def test_an_onnx_file_is_no_source(exports, tmp_path):
    with pytest.raises(WeightsError, match="which PyTorch cannot run"):
        export_net(from_path(exports["fp16", "float", 2][0]), tmp_path / "x.onnx", ExportOptions())


def test_without_the_package_onnx_it_says_what_to_install(weights, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr(device, "has_package", lambda name: name != "onnx")
    result = gpen("--weights", weights.path, "-o", tmp_path / "x.onnx")
    assert result.exit_code == 5
    assert "pip install 'gpen-cli[onnx]'" in result.stderr


def test_a_full_disk_is_code_6_and_leaves_nothing(weights, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="No space left on device"):
        export_net(weights, tmp_path / "x.onnx", ExportOptions())
    assert not list(tmp_path.glob("*.onnx"))


# -- the cache of nets made once ---------------------------------------------------------------------------------------


def test_a_net_is_made_once_and_again_when_the_copy_is_damaged(weights, monkeypatch):
    made = []
    real = export.export_net

    def counted(*arguments):
        made.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(export, "export_net", counted)
    first = cached_export(weights, "fp32")
    assert first.export is not None
    assert cached_export(weights, "fp32").path == first.path
    assert len(made) == 1
    content = bytearray(first.path.read_bytes())
    content[len(content) // 2] ^= 1
    first.path.write_bytes(content)
    assert read_export(cached_export(weights, "fp32").path) is not None
    assert len(made) == 2


def test_options_of_an_export_are_checked():
    for values in ({"precision": "bf16"}, {"io": "int8"}, {"batch": 0}, {"batch": 257}):
        with pytest.raises(UsageError):
            ExportOptions(**values)
