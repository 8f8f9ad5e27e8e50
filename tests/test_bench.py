"""``gpen bench``: each candidate is measured or says why not, and the plainest of the fast ones is recommended."""

from __future__ import annotations

import dataclasses

import pytest
from drawn_weights import save_small_net
from typer.testing import CliRunner

from gpen_cli import bench
from gpen_cli.bench import Candidate, Measured, best, candidates, measure
from gpen_cli.cli.main import app
from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError
from gpen_cli.options import NetOptions
from gpen_cli.weights.find import from_path, require_model

CPU = Setup(device="cpu", precision="bf16", micro_batch=1, threads=2)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return from_path(save_small_net(tmp_path_factory.mktemp("net") / "drawn.pth"))


@pytest.fixture(autouse=True)
def cold(tmp_path, monkeypatch):
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path))


def flags(setup, weights, **options):
    return [item.flags for item in candidates(setup, NetOptions(**options), weights)]


def test_candidates_fit_the_device(weights, monkeypatch):
    monkeypatch.setattr(bench, "cpu_count", lambda: 2)
    assert flags(CPU, weights) == [
        "--runtime eager --precision bf16",
        "--runtime eager --precision fp32",
        "--runtime eager --precision bf16 --threads 1",
    ]
    assert "--compile always" in flags(CPU, weights, compile="always")
    gpu = dataclasses.replace(CPU, device="cuda:0")
    assert "--runtime cuda-graph --batch-size 8" in flags(gpu, weights)
    assert not [item for item in flags(gpu, weights) if "--threads" in item]
    onnx = dataclasses.replace(CPU, runtime="onnx", provider="cpu")
    assert flags(onnx, weights) == ["--runtime onnx --provider cpu"]


def test_the_embedded_net_is_tried_by_onnxruntime_too(monkeypatch):
    embedded = require_model("gpen-open-256")
    tried = next(item for item in candidates(CPU, NetOptions(), embedded) if item.flags == "--runtime onnx")
    (seen,) = measure(embedded, [tried])
    assert seen.error is None
    assert tried.weights is not None
    assert tried.weights.is_onnx
    assert "--runtime onnx" not in flags(dataclasses.replace(CPU, device="cuda:0"), embedded)
    monkeypatch.setattr(bench, "has_package", lambda name: name != "onnxruntime")
    assert "--runtime onnx" not in flags(CPU, embedded)


def test_a_damaged_export_is_not_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("GPEN_WEIGHTS_DIR", str(tmp_path))
    (tmp_path / "gpen-open-256.onnx").write_bytes(b"\x08\x08cut off")
    assert "--runtime onnx" not in flags(CPU, require_model("gpen-open-256"))


def test_what_cannot_run_says_why_and_the_others_are_measured(weights, monkeypatch):
    def refused(found, setup):
        raise DeviceError("no such device here")

    good, bad = Candidate(dataclasses.replace(CPU, precision="fp32"), "good"), Candidate(CPU, "bad")
    make = bench.make_net
    monkeypatch.setattr(
        bench, "make_net", lambda found, setup: refused(found, setup) if setup == CPU else make(found, setup)
    )
    first, second = measure(weights, [bad, good])
    assert first.error == "no such device here"
    assert second.error is None
    assert 0 < second.low <= second.seconds <= second.high
    assert best([first, second]) is second
    assert best([first]) is None


def test_of_two_that_are_equally_fast_the_plainer_is_recommended():
    results = [Measured(Candidate(CPU, name), seconds) for name, seconds in (("plain", 0.104), ("fancy", 0.100))]
    assert best(results).candidate.flags == "plain"
    assert best([Measured(Candidate(CPU, "plain"), 0.2), results[1]]).candidate.flags == "fancy"


def test_the_command_prints_a_table_and_the_fastest(weights):
    result = CliRunner().invoke(app, ["bench", "--weights", str(weights.path), "--device", "cpu"])
    assert result.exit_code == 0, result.stderr
    assert "drawn, 64 px, cpu" in result.stdout
    assert "fastest here: --runtime eager" in result.stdout


def test_a_device_that_is_not_there_is_code_5(weights):
    result = CliRunner().invoke(app, ["bench", "--weights", str(weights.path), "--device", "mps"])
    assert result.exit_code == 5
