"""ONNX nets in a run: our exports and the public layout, damage and foreign files told in one sentence, no NaN in a photo."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from drawn_weights import save_small_net
from onnx import TensorProto, helper
from PIL import Image
from typer.testing import CliRunner

from gpen_cli import export
from gpen_cli.aligned_faces import example_crops
from gpen_cli.cli.main import app
from gpen_cli.device import Setup
from gpen_cli.engine import build_engine, describe_choice, engine_mark
from gpen_cli.errors import DeviceError, UsageError, WeightsError
from gpen_cli.export import export_net
from gpen_cli.options import ExportOptions, FaceOptions, NetOptions, Options
from gpen_cli.runtime import make_net
from gpen_cli.runtime.onnx import OnnxGpen
from gpen_cli.runtime.protocol import NetMemoryError, NonFiniteOutputError
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights import find
from gpen_cli.weights.find import FoundWeights, find_onnx, from_path
from gpen_cli.weights.onnx_file import read_export, sealed
from gpen_cli.weights.table import MODELS

CPU = Setup("cpu", "fp32", 1, 1, runtime="onnx", provider="cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GPEN_WEIGHTS_DIR", str(tmp_path / "weights"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    return save_small_net(tmp_path_factory.mktemp("net") / "drawn.pth")


@pytest.fixture(scope="module")
def exports(drawn) -> dict[str, Path]:
    files = {}
    for name, options in {
        "float": ExportOptions(),
        "uint8": ExportOptions(io="uint8"),
        "two": ExportOptions(batch=2),
        "fp16": ExportOptions("fp16"),
    }.items():
        files[name] = drawn.parent / f"{name}.onnx"
        export_net(from_path(drawn), files[name], options)
    return files


@pytest.fixture(scope="module")
def crops():
    return example_crops(64)


@pytest.fixture
def public(exports, tmp_path) -> Path:
    """A file as the public GPEN-BFR-*.onnx are: nothing said of itself, one face a pass."""
    model = onnx.load(exports["float"])
    del model.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, tmp_path / "GPEN-BFR-64.onnx")
    return tmp_path / "GPEN-BFR-64.onnx"


def net_of(path: Path, **changes) -> OnnxGpen:
    return OnnxGpen(from_path(path), Setup(**{**vars(CPU), **changes}))


# -- what runs ---------------------------------------------------------------------------------------------------------


def test_every_kind_of_file_answers_as_the_net_in_pytorch(drawn, exports, public, crops):
    eager = TorchGpen(from_path(drawn), Setup("cpu", "fp32", 1, 1))
    expected = np.concatenate([eager.run(crop[None]) for crop in crops]).astype(int)
    for path in (exports["float"], exports["uint8"], exports["two"], public):
        answers = np.concatenate([net_of(path).run(crop[None]) for crop in crops])
        assert (answers.shape, answers.dtype) == ((4, 64, 64, 3), np.uint8)
        assert np.abs(answers - expected).max() <= 1, path.name


def test_size_batch_and_name_are_read_off_the_file(exports, public):
    assert [(net.crop_size, net.micro_batch, net.name) for net in (net_of(exports["float"], micro_batch=3),)] == [
        (64, 3, "drawn")
    ]
    assert net_of(exports["two"], micro_batch=3).micro_batch == 2
    assert (net_of(public, micro_batch=3).micro_batch, net_of(public).name) == (1, "GPEN-BFR-64")


def test_one_session_serves_many_threads(exports, crops):
    net = net_of(exports["uint8"])
    alone = [net.run(crop[None])[0] for crop in crops]
    results: dict[int, bool] = {}

    def ask(number: int) -> None:
        results[number] = all(np.array_equal(net.run(crops[[i]])[0], alone[i]) for i in (0, 1, 2, 3, number % 4))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(6), True)


class FakeSession:
    """Answers what a test wants in the session's place."""

    def __init__(self, answer) -> None:
        self._answer = answer

    def run(self, names, feed):
        return self._answer(feed["input"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["float", "uint8"])
def test_numbers_that_are_none_give_no_pixels(exports, crops, monkeypatch, kind, value):
    net = net_of(exports[kind])

    def answer(given):
        if kind == "uint8":
            return [given, np.array([value], np.float32)]
        spoilt = given.copy()
        spoilt[0, 1, 2, 3] = value
        return [spoilt]

    monkeypatch.setattr(net, "_session", FakeSession(answer))
    with pytest.raises(NonFiniteOutputError, match="the photo's own face stays"):
        net.run(crops[:1])


def test_a_uint8_export_that_overflows_says_so(tmp_path, crops):
    """Through the real session: the mean beside the pixels is what tells."""
    path = save_small_net(tmp_path / "hot.pth")
    state = torch.load(path, weights_only=True)
    state["ecd0.0.0.weight"] *= 1e38
    torch.save(state, path)
    net = export.load_gpen(path)
    model = export.tidied(export._drawn(net, ExportOptions(io="uint8")), {"gpen.version": "0"})
    del model.metadata_props[:]
    (tmp_path / "hot.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(NonFiniteOutputError):
        net_of(tmp_path / "hot.onnx").run(crops[:1])


def test_memory_that_does_not_suffice_halves_a_free_batch_only(exports, crops, monkeypatch):
    def full(given):
        raise RuntimeError("Failed to allocate memory for requested buffer")

    for kind, halves in (("float", True), ("two", False)):
        net = net_of(exports[kind], micro_batch=2)
        monkeypatch.setattr(net, "_session", FakeSession(full))
        with pytest.raises(NetMemoryError):
            net.run(crops[:1])
        assert net.halve() is halves
    assert net_of(exports["float"]).halve() is False


def test_a_session_that_fails_is_a_sentence(exports, crops, monkeypatch):
    def failing(given):
        raise RuntimeError("the driver went away\nwith a stack")

    net = net_of(exports["float"])
    monkeypatch.setattr(net, "_session", FakeSession(failing))
    with pytest.raises(DeviceError, match=r"drawn: onnxruntime failed \(the driver went away\)"):
        net.run(crops[:1])


# -- what is refused ---------------------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    with pytest.raises(WeightsError) as caught:
        net_of(path)
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"<html><body>404</body></html>", "damaged, or no ONNX file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "no ONNX file"),
        (b"just a note, nothing else", "no ONNX file"),
        (b"\x08\x07", "holds no net"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "no ONNX file"),
        (bytes(1000), "no ONNX file"),
        (b"\xff" * 100, "no ONNX file"),
        (b"PK\x03\x04 a zip", "no ONNX file"),
    ],
)
def test_a_file_of_another_kind_is_told(tmp_path, content, words):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    assert words in refusal(path)


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.3, 0.7, 0.999])
def test_a_file_that_is_cut_off_is_told(exports, tmp_path, share):
    content = exports["float"].read_bytes()
    path = tmp_path / "net.onnx"
    path.write_bytes(content[: int(len(content) * share)])
    assert "cut off" in refusal(path)


def test_one_bit_turned_over_anywhere_is_seen(exports, tmp_path):
    content = exports["float"].read_bytes()
    path = tmp_path / "net.onnx"
    rng = np.random.default_rng(5)
    for place in rng.integers(0, len(content), 60):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        refusal(path)


def test_a_public_file_whose_bytes_are_damaged_is_refused_by_onnxruntime_in_one_sentence(public):
    content = bytearray(public.read_bytes())
    content[30:60] = bytes(30)
    public.write_bytes(content)
    refusal(public)


def graph_file(path: Path, given, answer, *, extra: bool = False) -> Path:
    """A valid ONNX file: one Identity from a (type, shape) to another."""
    inputs = [helper.make_tensor_value_info("input", *given)]
    if extra:
        inputs.append(helper.make_tensor_value_info("weight", TensorProto.FLOAT, [1]))
    node = helper.make_node("Cast" if given[0] != answer[0] else "Identity", ["input"], ["output"])
    if given[0] != answer[0]:
        node.attribute.append(helper.make_attribute("to", answer[0]))
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("output", *answer)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


FLOAT, UINT8, INT64 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT64


@pytest.mark.parametrize(
    ("given", "answer", "extra", "words"),
    [
        ((FLOAT, [1, 3, 64, 64]), (FLOAT, [1, 3, 64, 64]), True, "takes 2 inputs"),
        ((FLOAT, [1, 3, 64, 32]), (FLOAT, [1, 3, 64, 32]), False, "has the shape"),
        ((FLOAT, [1, 3, "h", "w"]), (FLOAT, [1, 3, "h", "w"]), False, "has the shape"),
        ((FLOAT, [1, 1, 64, 64]), (FLOAT, [1, 1, 64, 64]), False, "has the shape"),
        ((FLOAT, [1, 64, 64, 3]), (FLOAT, [1, 64, 64, 3]), False, "has the shape"),
        ((FLOAT, [3, 64, 64]), (FLOAT, [3, 64, 64]), False, "has the shape"),
        ((FLOAT, [1, 3, 8192, 8192]), (FLOAT, [1, 3, 8192, 8192]), False, "has the shape"),
        ((INT64, [1, 3, 64, 64]), (INT64, [1, 3, 64, 64]), False, "takes tensor(int64)"),
        ((UINT8, [1, 64, 64, 3]), (UINT8, [1, 64, 64, 3]), False, "no output 'mean'"),
        ((FLOAT, [1, 3, 64, 64]), (UINT8, [1, 3, 64, 64]), False, "answers tensor(uint8)"),
    ],
)
def test_a_graph_of_another_shape_is_no_gpen_net(tmp_path, given, answer, extra, words):
    sentence = refusal(graph_file(tmp_path / "foreign.onnx", given, answer, extra=extra))
    assert words in sentence
    assert "is no GPEN net" in sentence


def test_a_graph_onnxruntime_does_not_know_is_told(tmp_path):
    node = helper.make_node("Magic", ["input"], ["output"], domain="some.where")
    info = [helper.make_tensor_value_info(name, FLOAT, [1, 3, 64, 64]) for name in ("input", "output")]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("some.where", 1)]), tmp_path / "x.onnx")
    assert "no ONNX net that onnxruntime can run" in refusal(tmp_path / "x.onnx")


def test_a_seal_over_half_of_what_export_writes_is_no_export(exports, tmp_path):
    model = onnx.load(exports["float"])
    del model.metadata_props[:]
    path = tmp_path / "net.onnx"
    path.write_bytes(sealed(model.SerializeToString()))
    assert "lacks what gpen export writes" in refusal(path)


def test_an_export_without_its_seal_is_no_foreign_file(exports, tmp_path):
    model = onnx.load(exports["float"])
    del model.metadata_props[-1]
    onnx.save(model, tmp_path / "net.onnx")
    assert "damaged or changed" in refusal(tmp_path / "net.onnx")


def test_a_missing_file_and_a_folder_are_told(tmp_path):
    with pytest.raises(WeightsError, match="does not exist"):
        from_path(tmp_path / "no.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(WeightsError, match="is a folder"):
        from_path(tmp_path / "folder.onnx")


# -- how a run comes to its ONNX nets ----------------------------------------------------------------------------------


def engine_for(**net):
    return build_engine(Options(net=NetOptions(**net), faces=FaceOptions(detector="retinaface-mobile")))


def test_an_onnx_file_implies_the_runtime_and_the_log_says_provider_and_precision(exports):
    engine = engine_for(weights=exports["fp16"], threads=1)
    assert (engine.setup.runtime, engine.setup.provider, engine.setup.precision) == ("onnx", "cpu", "fp16")
    line = describe_choice(engine.choices[0], engine)
    assert "runtime onnx on cpu" in line
    assert "fp16 (the ONNX file's own)" in line
    assert type(engine.net("drawn")) is OnnxGpen


def test_what_contradicts_an_onnx_file_is_a_usage_error(exports):
    for values, words in (
        ({"weights": exports["float"], "runtime": "eager"}, "which --runtime eager cannot run"),
        ({"weights": exports["float"], "precision": "fp16"}, "computes in fp32"),
        ({"weights": exports["fp16"], "precision": "fp32"}, "computes in fp16"),
        ({"weights": exports["float"], "precision": "bf16"}, "--precision bf16"),
        ({"runtime": "compiled", "provider": "cpu"}, "--provider cpu is for --runtime onnx"),
        ({"provider": ""}, "--provider is empty"),
    ):
        with pytest.raises(UsageError, match=words):
            engine_for(**values)
    assert engine_for(weights=exports["fp16"], precision="fp16", threads=1).setup.precision == "fp16"


def test_other_weights_are_made_into_onnx_once(drawn):
    engine = engine_for(weights=drawn, runtime="onnx", threads=1)
    (choice,) = engine.choices
    assert choice.weights.path.parent.name == "onnx"
    assert (choice.name, choice.crop_size) == ("drawn", 64)
    stamp = choice.weights.path.stat().st_mtime_ns
    assert engine_for(weights=drawn, provider="cpu", threads=1).choices[0].weights.path.stat().st_mtime_ns == stamp


def test_where_a_net_cannot_be_made_the_sentence_says_how_to_get_one(drawn, monkeypatch):
    monkeypatch.setattr("gpen_cli.onnx_nets.has_package", lambda name: name != "onnx")
    with pytest.raises(WeightsError, match=r"takes onnx.*'gpen-cli\[onnx\]'.*gpen export --weights .*drawn.pth"):
        engine_for(weights=drawn, runtime="onnx")
    with pytest.raises(WeightsError, match=r"gpen export --model gpen-open-256 --precision fp16 -o gpen-open-256.onnx"):
        engine_for(runtime="onnx", precision="fp16")  # the graph that comes with gpen is fp32
    with pytest.raises(WeightsError, match=r"gpen-bfr-512 is not on this machine.*GPEN-BFR-512.onnx"):
        engine_for(runtime="onnx", model="gpen-bfr-512")


def test_a_net_is_found_by_name_in_the_folders_of_weights(exports, tmp_path, monkeypatch):
    folder = tmp_path / "weights"
    folder.mkdir()
    model = MODELS["gpen-open-256"]
    content = exports["float"].read_bytes()
    (folder / "gpen-open-256.onnx").write_bytes(content)
    with pytest.raises(WeightsError, match="exported from other weights than those of gpen-open-256"):
        find_onnx(model)
    said = read_export(exports["float"])
    assert said is not None
    monkeypatch.setitem(MODELS, "gpen-open-256", type(model)(**{**vars(model), "sha256": said.source_sha256}))
    found = find_onnx(MODELS["gpen-open-256"])
    assert found is not None
    assert (found.name, found.path) == ("gpen-open-256", folder / "gpen-open-256.onnx")
    (folder / "gpen-open-256.onnx").write_bytes(content[:-1] + b"0")
    with pytest.raises(WeightsError, match="damaged"):
        find_onnx(MODELS["gpen-open-256"])


def test_public_files_are_known_by_their_bytes_and_nothing_else_passes_for_them(public, tmp_path, monkeypatch):
    model = MODELS["gpen-bfr-512"]
    assert model.onnx is not None
    folder = tmp_path / "weights"
    folder.mkdir()
    public.replace(folder / model.onnx.file)
    with pytest.raises(WeightsError, match="neither an export of gpen nor the public file of that name"):
        find_onnx(model)
    monkeypatch.setattr(find, "file_sha256", lambda path: model.onnx.sha256)
    found = find_onnx(model)
    assert found is not None
    assert (found.name, found.licence) == ("gpen-bfr-512", model.licence)


def test_the_mark_of_a_run_follows_the_files_bytes(exports):
    marks = {engine_mark(engine_for(weights=exports[name], threads=1)) for name in ("float", "uint8", "fp16")}
    assert len(marks) == 3


def test_make_net_gives_the_onnx_runtime(exports):
    assert type(make_net(from_path(exports["float"]), CPU)) is OnnxGpen


def test_the_command_restores_with_an_onnx_file_and_says_so(photo, exports, tmp_path):
    arguments = [
        "enhance",
        photo,
        "-o",
        tmp_path / "out.png",
        "--weights",
        exports["uint8"],
        "--guard",
        "off",
        "--threads",
        1,
    ]
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    assert result.exit_code == 0, result.output
    assert "runtime onnx on cpu" in result.stderr
    assert "1 by drawn" in result.stderr
    assert Image.open(tmp_path / "out.png").size == (480, 480)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--provider", "cuda"], 5, "onnxruntime-gpu"),
        (["--provider", "warp"], 2, "is not known to onnxruntime"),
        (["--device", "cuda"], 5, "onnxruntime-gpu"),
        (["--device", "mps"], 2, "--provider coreml"),
        (["--runtime", "eager"], 2, "cannot run"),
    ],
)
def test_what_is_not_here_ends_the_command_with_its_code(photo, exports, tmp_path, flags, code, words):
    arguments = ["enhance", photo, "-o", tmp_path / "out.png", "--weights", exports["float"], *flags]
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    assert (result.exit_code, words in " ".join(result.stderr.split())) == (code, True), result.stderr
    assert not (tmp_path / "out.png").exists()


def test_names_of_found_weights(exports):
    assert from_path(exports["float"]).name == "drawn"
    assert FoundWeights(Path("x/GPEN-BFR-64.onnx"), None).name == "GPEN-BFR-64"
