"""onnxruntime's providers: what was asked for runs, or a sentence says why not; TensorRT's engines are kept, and checked."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stub_onnxruntime import CPU, CUDA, TENSORRT, StubOnnxruntime

from gpen_cli.device import Setup, resolve_setup
from gpen_cli.errors import DeviceError, UsageError
from gpen_cli.options import NetOptions
from gpen_cli.runtime import tensorrt
from gpen_cli.runtime.onnx import OnnxGpen
from gpen_cli.runtime.providers import choose_provider
from gpen_cli.weights.find import FoundWeights
from gpen_cli.weights.onnx_file import OnnxExport


@pytest.fixture
def install(monkeypatch):
    """Puts a stub in onnxruntime's place."""

    def put(*available: str, broken: tuple[str, ...] = ()) -> StubOnnxruntime:
        stub = StubOnnxruntime(*available, broken=broken)
        monkeypatch.setitem(sys.modules, "onnxruntime", stub)
        return stub

    return put


def choose(provider: str = "auto", device: str = "auto", earlier: str | None = None) -> str:
    return choose_provider(NetOptions(runtime="onnx", provider=provider, device=device), earlier)


# -- which provider ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "broken", "chosen"),
    [
        ((), (), "cpu"),
        ((CUDA,), (), "cuda"),
        ((TENSORRT, CUDA), (), "tensorrt"),
        ((TENSORRT, CUDA), (TENSORRT,), "cuda"),
        ((TENSORRT, CUDA), (TENSORRT, CUDA), "cpu"),
        (("CoreMLExecutionProvider", "AzureExecutionProvider"), (), "cpu"),
    ],
)
def test_auto_takes_the_first_that_really_works(install, available, broken, chosen):
    install(*available, broken=broken)
    assert choose() == chosen


def test_what_auto_passes_over_and_what_else_is_there_is_told(install, caplog):
    install(TENSORRT, "OpenVINOExecutionProvider", broken=(TENSORRT,))
    with caplog.at_level(logging.INFO):
        assert choose() == "cpu"
    assert "provider tensorrt: this onnxruntime has it, but its libraries do not load here" in caplog.text
    assert "also here, when named with --provider: openvino" in caplog.text


def test_a_name_is_taken_as_gpen_or_onnxruntime_spell_it(install):
    install(TENSORRT, CUDA, "CoreMLExecutionProvider")
    for name, short in (("CUDA", "cuda"), ("CoreMLExecutionProvider", "coreml"), ("coreml", "coreml"), ("cpu", "cpu")):
        assert choose(name) == short


@pytest.mark.parametrize(
    ("asked", "package"),
    [("cuda", "onnxruntime-gpu"), ("tensorrt", "TensorRT"), ("openvino", "onnxruntime-openvino"), ("coreml", "macOS")],
)
def test_a_provider_this_build_lacks_is_code_5_with_its_package_never_the_cpu(install, asked, package):
    install()
    with pytest.raises(DeviceError, match=rf"--provider {asked}: .*built without it; install .*{package}") as caught:
        choose(asked)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("asked", ["cuda", "tensorrt"])
def test_a_provider_whose_libraries_are_missing_is_code_5_too(install, asked):
    install(TENSORRT, CUDA, broken=(TENSORRT, CUDA))
    with pytest.raises(
        DeviceError, match=rf"--provider {asked}: its libraries do not load here; install onnxruntime-gpu"
    ):
        choose(asked)


def test_a_name_nobody_knows_is_a_usage_error_with_what_there_is(install):
    install(CUDA)
    with pytest.raises(
        UsageError, match=r"--provider 'warp' is not known to onnxruntime 1.99.0; it has cuda, cpu, and auto"
    ):
        choose("warp")


def test_device_and_provider_have_to_agree(install):
    install(CUDA)
    assert choose(device="cpu") == "cpu"
    assert choose(device="cuda:1") == "cuda"
    for provider, device in (("cuda", "cpu"), ("cpu", "cuda"), ("cpu", "cuda:1")):
        with pytest.raises(UsageError, match="contradict each other"):
            choose(provider, device)
    with pytest.raises(UsageError, match="--provider coreml"):
        choose(device="mps")


def test_a_gpu_that_was_asked_for_and_is_not_there_is_never_the_cpu(install):
    install()
    with pytest.raises(DeviceError, match=r"--device cuda: .*onnxruntime-gpu.*--device cpu"):
        choose(device="cuda")


def test_a_resumed_run_goes_on_with_its_provider(install):
    install(TENSORRT, CUDA)
    assert choose(earlier="cuda") == "cuda"
    assert choose("tensorrt", earlier="cuda") == "tensorrt"


def test_onnxruntime_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DeviceError, match=r"pip install 'onnxruntime>=1\.20'"):
        choose()


# -- the setup ---------------------------------------------------------------------------------------------------------


def test_the_setup_follows_the_provider():
    def of(provider: str, **options) -> Setup:
        return resolve_setup(NetOptions(runtime="onnx", batch_size=8, threads=3, **options), None, provider=provider)

    own = {"precision_reason": "the ONNX file's own", "provider": "cpu"}
    assert of("cpu") == Setup("cpu", "fp32", micro_batch=1, threads=3, runtime="onnx", **own)
    assert (of("cuda").device, of("cuda").micro_batch) == ("cuda:0", 8)
    assert of("cuda", device="cuda:1").device == "cuda:1"
    assert (of("tensorrt").precision, of("tensorrt", precision="fp32").precision) == ("fp16", "fp32")
    assert (of("coreml").device, of("coreml").torch_device) == ("coreml", "cpu")
    with pytest.raises(UsageError, match="--precision bf16"):
        of("cpu", precision="bf16")
    with pytest.raises(UsageError, match="--device 'gpu' is not known"):
        of("cpu", device="gpu")


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path, monkeypatch) -> FoundWeights:
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tensorrt, "describe_gpu", lambda device_id: "Some GPU, 9.0, 555.1")
    monkeypatch.setattr(tensorrt, "tensorrt_version", lambda: "10.4")
    monkeypatch.setattr("gpen_cli.runtime.onnx.describe_gpu", lambda device_id: "Some GPU, 9.0, 555.1")
    monkeypatch.setattr("gpen_cli.runtime.onnx.tensorrt_version", lambda: "10.4")
    path = tmp_path / "net.onnx"
    path.write_bytes(b"a net")
    return FoundWeights(path, None)


def gpu_setup(provider: str, **changes) -> Setup:
    values = {"device": "cuda:1", "precision": "fp16", "micro_batch": 4, "threads": 3, **changes}
    return Setup(**values, runtime="onnx", provider=provider)


def test_threads_and_determinism_are_asked_for_and_no_falling_back(install, weights):
    stub = install(CUDA)
    OnnxGpen(weights, gpu_setup("cuda"))
    (session,) = stub.on(CUDA)
    options = session.options
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.entries == {"session.intra_op.allow_spinning": "0"}
    assert options.use_deterministic_compute
    assert not session.fallback


def test_cuda_is_told_its_gpu_and_to_stay_deterministic(install, weights):
    stub = install(CUDA)
    net = OnnxGpen(weights, gpu_setup("cuda"))
    assert stub.on(CUDA)[0].providers == [
        (CUDA, {"device_id": "1", "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"})
    ]
    assert net.micro_batch == 4
    crops = np.arange(3 * 64 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(3, 64, 64, 3)
    assert np.array_equal(net.run(crops), crops), "the stub hands pixels through, and so does the way in and out"


def test_memory_of_the_gpu_is_taken_once_for_a_shape(install, weights):
    stub = install(CUDA)
    net = OnnxGpen(weights, gpu_setup("cuda"))
    crops = np.arange(4 * 64 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(4, 64, 64, 3)
    for count in (4, 1, 3):
        assert np.array_equal(net.run(crops[:count]), crops[:count])
    assert stub.taken == [("cuda", 1, (4, 3, 64, 64))] * 2, "one input and one output"
    assert net.halve()
    assert np.array_equal(net.run(crops[:2]), crops[:2])
    assert stub.taken[2:] == [("cuda", 1, (2, 3, 64, 64))] * 2
    assert np.array_equal(net.run(crops[1:3]), crops[1:3])
    assert len(stub.taken) == 4


def test_a_provider_that_drops_out_of_the_session_is_no_silent_cpu(install, weights):
    install(CUDA, broken=(CUDA,))
    with pytest.raises(
        DeviceError, match=r"--provider cuda: onnxruntime could not start it here; install onnxruntime-gpu"
    ):
        OnnxGpen(weights, gpu_setup("cuda"))


# -- TensorRT ----------------------------------------------------------------------------------------------------------


def open_net(weights: FoundWeights, **changes) -> OnnxGpen:
    return OnnxGpen(weights, gpu_setup("tensorrt", **changes))


def engine_folders(weights: FoundWeights) -> list[Path]:
    return sorted((weights.path.parent / "cache" / "tensorrt").iterdir())


def test_an_engine_is_built_once_announced_and_found_again(install, weights, caplog):
    stub = install(TENSORRT, CUDA)
    with caplog.at_level(logging.INFO):
        open_net(weights)
    assert "TensorRT builds an engine" in caplog.text
    assert "TensorRT built its engine in" in caplog.text
    told = dict(stub.on(TENSORRT)[0].providers)
    (folder,) = engine_folders(weights)
    assert told[TENSORRT] == {
        "device_id": "1",
        "trt_fp16_enable": "1",
        "trt_int8_enable": "0",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(folder),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(folder),
        "trt_profile_min_shapes": "input:4x3x64x64",
        "trt_profile_opt_shapes": "input:4x3x64x64",
        "trt_profile_max_shapes": "input:4x3x64x64",
    }
    assert told[CUDA]["device_id"] == "1", "CUDA takes what TensorRT does not"
    caplog.clear()
    stub.builds = ["fail"]  # a second build would fail
    with caplog.at_level(logging.INFO):
        open_net(weights)
    assert "engine taken from" in caplog.text
    assert "builds" not in caplog.text


def test_another_net_shape_precision_or_version_is_another_engine(install, weights, monkeypatch):
    stub = install(TENSORRT, CUDA)
    open_net(weights)
    open_net(weights, micro_batch=8)
    open_net(weights, precision="fp32")
    assert dict(stub.on(TENSORRT)[-1].providers)[TENSORRT]["trt_fp16_enable"] == "0"
    monkeypatch.setattr("gpen_cli.runtime.onnx.describe_gpu", lambda device_id: "Another GPU")
    open_net(weights)
    monkeypatch.setattr("gpen_cli.runtime.onnx.tensorrt_version", lambda: "10.9")
    open_net(weights)
    weights.path.write_bytes(b"another net")
    open_net(weights)
    assert len(engine_folders(weights)) == 6


def test_an_int8_file_gets_an_int8_engine_of_its_own(install, weights):
    stub = install(TENSORRT, CUDA)
    open_net(weights)
    said = OnnxExport("net", 64, "gpen", "licence", "0", "ab", "float", "int8")
    open_net(replace(weights, export=said))
    told = dict(stub.on(TENSORRT)[-1].providers)[TENSORRT]
    assert (told["trt_int8_enable"], told["trt_fp16_enable"]) == ("1", "1")
    open_net(replace(weights, export=said), precision="fp32")
    told = dict(stub.on(TENSORRT)[-1].providers)[TENSORRT]
    assert (told["trt_int8_enable"], told["trt_fp16_enable"]) == ("1", "0")
    assert len(engine_folders(weights)) == 3


@pytest.mark.parametrize("damage", [b"", b"engin", b"other!"])
def test_a_damaged_engine_is_built_again(install, weights, caplog, damage):
    install(TENSORRT, CUDA)
    open_net(weights)
    (folder,) = engine_folders(weights)
    (engine,) = folder.glob("*.engine")
    engine.write_bytes(damage)
    with caplog.at_level(logging.INFO):
        open_net(weights)
    assert "is damaged; it is built anew" in caplog.text
    assert engine.read_bytes() == b"engine"


def test_an_engine_whose_build_was_broken_off_is_not_trusted(install, weights, caplog):
    install(TENSORRT, CUDA)
    open_net(weights)
    (folder,) = engine_folders(weights)
    (folder / "built.json").unlink()
    with caplog.at_level(logging.INFO):
        open_net(weights)
    assert "TensorRT builds an engine" in caplog.text
    assert (folder / "built.json").exists()


def test_an_engine_built_elsewhere_is_refused_with_a_sentence(install, weights, caplog):
    install(TENSORRT, CUDA)
    open_net(weights)
    (folder,) = engine_folders(weights)
    built = json.loads((folder / "built.json").read_text())
    built["key"]["gpu"] = "A GPU far away"
    (folder / "built.json").write_text(json.dumps(built))
    with caplog.at_level(logging.INFO):
        open_net(weights)
    assert "was built on another machine or by other versions (gpu A GPU far away" in caplog.text
    assert "refused" in caplog.text


def test_a_stale_engine_that_tensorrt_refuses_is_built_again_once(install, weights, caplog):
    stub = install(TENSORRT, CUDA)
    stub.builds = ["build one it will refuse"]
    open_net(weights)
    with caplog.at_level(logging.INFO):
        open_net(weights)
    assert "TensorRT does not take its engine" in caplog.text
    assert "TensorRT built its engine" in caplog.text


def test_a_build_that_fails_is_code_5_and_leaves_no_engine(install, weights):
    stub = install(TENSORRT, CUDA)
    stub.builds = ["fail"]
    with pytest.raises(
        DeviceError, match=r"--provider tensorrt: the engine could not be built .*--provider cuda"
    ) as caught:
        open_net(weights)
    assert "\n" not in str(caught.value)
    assert engine_folders(weights) == []


def test_without_tensorrts_library_there_is_a_sentence_and_no_cuda_in_its_place(install, weights):
    install(TENSORRT, CUDA, broken=(TENSORRT,))
    with pytest.raises(DeviceError, match=r"--provider tensorrt: .*TensorRT"):
        open_net(weights)


def test_a_machine_without_nvidias_tool_has_an_unknown_gpu(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert tensorrt.describe_gpu(0) == "unknown"


def test_probes_build_no_engine(install):
    stub = install(TENSORRT, CUDA)
    choose()
    probes = [item for item in stub.sessions if isinstance(item.source, bytes)]
    assert [item.providers[0][1]["trt_min_subgraph_size"] for item in probes] == ["1000"]
    assert CPU in probes[0].get_providers()
