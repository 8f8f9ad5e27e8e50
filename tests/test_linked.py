"""Graphs whose weights stay in the file beside them, and the runs that take one because PyTorch would start too slowly."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from drawn_weights import save_small_net
from safetensors.torch import save_file
from typer.testing import CliRunner

from gpen_cli import export, onnx_nets
from gpen_cli.aligned_faces import example_crops
from gpen_cli.cli.main import app
from gpen_cli.device import Setup
from gpen_cli.engine import build_engine
from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.export import export_net
from gpen_cli.onnx_nets import SHORT_RUN_FACES, suits_short_run
from gpen_cli.options import ExportOptions, NetOptions, Options, QuantizeOptions
from gpen_cli.quantize import quantize_file
from gpen_cli.runtime import onnx_linked
from gpen_cli.runtime.onnx import OnnxGpen
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import FoundWeights, from_path
from gpen_cli.weights.load import load_gpen
from gpen_cli.weights.table import MODELS

ROOT = Path(__file__).resolve().parent.parent
EMBEDDED = ROOT / "pretrained_models" / "gpen-open-256.onnx"
LINKED = ExportOptions(linked=True)
CPU = Setup("cpu", "fp32", 1, 1)
ONNX = dataclasses.replace(CPU, runtime="onnx", provider="cpu")


def drawn(folder: Path, dtype: torch.dtype = torch.float16) -> Path:
    """A small net as a .safetensors file."""
    state = load_gpen(save_small_net(folder / "drawn.pth")).state_dict()
    save_file({name: value.to(dtype).contiguous() for name, value in state.items()}, folder / "drawn.safetensors")
    return folder / "drawn.safetensors"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(export, "cpu_count", lambda: 1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[Path, Path]:
    """A weight file and the graph over it."""
    folder = tmp_path_factory.mktemp("linked")
    weights = drawn(folder)
    export_net(from_path(weights), folder / "drawn.onnx", LINKED)
    return weights, folder / "drawn.onnx"


@pytest.fixture
def moved(pair, tmp_path) -> tuple[Path, Path]:
    """Copies of both in a folder of their own."""
    return tuple(Path(shutil.copy(file, tmp_path)) for file in pair)  # type: ignore[return-value]


# -- the graph ---------------------------------------------------------------------------------------------------------


def test_a_linked_graph_is_small_valid_and_answers_like_the_whole_one(pair, tmp_path):
    weights, graph = pair
    export_net(from_path(weights), tmp_path / "whole.onnx", ExportOptions())
    assert graph.stat().st_size < (tmp_path / "whole.onnx").stat().st_size / 3
    onnx.checker.check_model(os.fspath(graph), full_check=True)
    crops = example_crops(64)
    whole, linked = (OnnxGpen(from_path(file), ONNX) for file in (tmp_path / "whole.onnx", graph))
    for crop in crops:
        difference = np.abs(whole.run(crop[None]).astype(int) - linked.run(crop[None]).astype(int))
        assert difference.max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_weights_of_any_type_can_be_linked(tmp_path, dtype):
    weights = drawn(tmp_path, dtype)
    figures = export_net(from_path(weights), tmp_path / "drawn.onnx", LINKED)  # held against PyTorch there
    assert all(item.most_levels <= 1 for item in figures)


def test_the_embedded_nets_graph_belongs_to_the_embedded_weights():
    found = from_path(EMBEDDED)
    assert found.export is not None
    assert found.export.source_sha256 == MODELS["gpen-open-256"].sha256
    assert EMBEDDED.stat().st_size < 300_000
    crop = example_crops(256)[1]
    expected = TorchGpen(from_path(EMBEDDED.with_suffix(".safetensors")), CPU).run(crop[None])
    difference = np.abs(OnnxGpen(found, ONNX).run(crop[None]).astype(int) - expected.astype(int))
    assert difference.max() <= 1
    assert difference.mean() < 0.001


def test_named_weights_take_the_graph_that_lies_here(monkeypatch):
    monkeypatch.setattr(onnx_nets, "_made", lambda found, options: pytest.fail("made a file"))
    named = NetOptions(weights=EMBEDDED.with_suffix(".safetensors"), runtime="onnx")
    assert onnx_nets.named_onnx(named).path.samefile(EMBEDDED)


def test_where_fp16_is_asked_the_fp32_graph_will_not_do(monkeypatch, tmp_path):
    made = FoundWeights(tmp_path / "made.onnx", None)
    monkeypatch.setattr(onnx_nets, "_made", lambda found, options: made)
    named = NetOptions(weights=EMBEDDED.with_suffix(".safetensors"), runtime="onnx", precision="fp16")
    assert onnx_nets.named_onnx(named) is made


def test_a_large_constant_that_no_tensor_holds_is_refused(pair, monkeypatch):
    weights, graph = pair
    monkeypatch.setattr(onnx_linked, "MOST_LEFT", 100)
    with pytest.raises(Exception, match=r"bytes of the exported graph are in no tensor of .*drawn.safetensors"):
        export_net(from_path(weights), graph, LINKED)
    assert from_path(graph).export is not None, "what was there before stays"


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_graph_without_its_weights_says_which_file_is_missing(moved):
    weights, graph = moved
    weights.unlink()
    with pytest.raises(WeightsError, match=r"takes its numbers from drawn.safetensors, which does not lie beside it"):
        from_path(graph)


def test_a_graph_beside_changed_weights_is_refused(moved):
    weights, graph = moved
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(
        WeightsError, match=r"drawn.safetensors is damaged, or not the file that drawn.onnx was made for"
    ):
        from_path(graph)


def test_a_changed_graph_is_refused(moved):
    _, graph = moved
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    with pytest.raises(WeightsError):
        from_path(graph)


def test_a_graph_elsewhere_than_its_weights_is_not_written(pair, tmp_path):
    weights, _ = pair
    with pytest.raises(UsageError, match=r"--linked: drawn.safetensors has to lie beside the graph"):
        export_net(from_path(weights), tmp_path / "drawn.onnx", LINKED)
    assert list(tmp_path.iterdir()) == []


def test_links_to_both_files_will_do_and_a_link_to_the_weights_alone_is_refused(pair, tmp_path):
    """onnxruntime follows no link out of the graph's own folder."""
    for file in pair:
        (tmp_path / file.name).symlink_to(file)
    crops = example_crops(64)[:1]
    assert OnnxGpen(from_path(tmp_path / "drawn.onnx"), ONNX).run(crops).std() > 1
    (tmp_path / "drawn.onnx").unlink()
    shutil.copy(pair[1], tmp_path)
    with pytest.raises(WeightsError, match=r"a link into another folder, which onnxruntime does not follow; link both"):
        from_path(tmp_path / "drawn.onnx")


def test_weights_that_are_a_link_are_linked_where_they_lie(pair, tmp_path):
    here = tmp_path / "other_name.safetensors"
    here.symlink_to(pair[0])
    with pytest.raises(
        UsageError, match=f"drawn.safetensors has to lie beside the graph; write it into {pair[0].parent}"
    ):
        export_net(from_path(here), tmp_path / "x.onnx", LINKED)
    export_net(from_path(here), pair[0].parent / "x.onnx", LINKED)
    assert from_path(pair[0].parent / "x.onnx").export.linked == "drawn.safetensors"


def test_weights_that_are_no_safetensors_file_cannot_be_linked(tmp_path):
    weights = save_small_net(tmp_path / "drawn.pth")
    with pytest.raises(WeightsError, match=r"drawn.pth is no .safetensors file"):
        export_net(from_path(weights), tmp_path / "drawn.onnx", LINKED)
    assert [file.name for file in tmp_path.iterdir()] == ["drawn.pth"]


def test_fp16_and_int8_are_not_made_of_a_linked_graph(pair, tmp_path):
    with pytest.raises(UsageError, match="--linked computes in fp32, not fp16"):
        ExportOptions(linked=True, precision="fp16")
    with pytest.raises(WeightsError, match="was exported with --linked; int8 is made of a whole file"):
        quantize_file(pair[1], tmp_path / "int8.onnx", QuantizeOptions())


# -- short runs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(onnx_nets, "may_have_gpu", lambda: False)


@pytest.mark.parametrize(
    ("options", "photos", "short"),
    [
        ({}, 1, True),
        ({}, int(SHORT_RUN_FACES / 1.5), True),
        ({}, int(SHORT_RUN_FACES / 1.5) + 1, False),
        ({}, None, False),
        ({"device": "cpu", "precision": "fp32"}, 1, True),
        ({"model": "gpen-open-256"}, 1, True),
        ({"runtime": "eager"}, 1, False),
        ({"compile": "always"}, 1, False),
        ({"compile": "never"}, 1, False),
        ({"provider": "cpu"}, 1, False),
        ({"precision": "bf16"}, 1, False),
        ({"device": "cuda:0"}, 1, False),
        ({"weights": EMBEDDED.with_suffix(".safetensors")}, 1, False),
        ({"model": "gpen-bfr-512"}, 1, False),
    ],
)
def test_which_runs_are_short(on_cpu, options, photos, short):
    assert suits_short_run(NetOptions(**options), photos) == short


def test_a_damaged_graph_is_told_and_pytorch_taken(on_cpu, tmp_path, monkeypatch, caplog):
    for suffix in (".onnx", ".safetensors"):
        shutil.copy(EMBEDDED.with_suffix(suffix), tmp_path)
    (tmp_path / EMBEDDED.name).write_bytes(EMBEDDED.read_bytes()[:-100])
    monkeypatch.setenv("GPEN_WEIGHTS_DIR", str(tmp_path))
    assert not suits_short_run(NetOptions(), 1)
    assert "This run takes PyTorch" in caplog.text
    verified = CliRunner().invoke(app, ["models", "verify"])
    assert verified.exit_code == WeightsError.exit_code
    assert "gpen-open-256\twhole" not in verified.output


def test_where_a_gpu_may_be_pytorch_is_asked(monkeypatch):
    monkeypatch.setattr(onnx_nets, "may_have_gpu", lambda: True)
    assert not suits_short_run(NetOptions(), 1)
    assert suits_short_run(NetOptions(device="cpu"), 1)


@pytest.mark.parametrize(
    ("name", "as_onnx"), [("gpen-bfr-256", False), ("gpen-bfr-512", False), ("gpen-bfr-512", True)]
)
def test_a_heavy_net_or_one_that_is_here_for_pytorch_alone_is_restored_with(
    on_cpu, monkeypatch, tmp_path, name, as_onnx
):
    """Large faces go to a 512 px net that the user fetched, however short the run; PyTorch is faster with it."""
    fetched = FoundWeights(tmp_path / "fetched.pth", MODELS[name])
    fetched.path.touch()
    os.truncate(fetched.path, MODELS[name].bytes or 0)
    there, onnx_there = onnx_nets.find_model, onnx_nets.find_onnx
    monkeypatch.setattr(
        onnx_nets, "find_model", lambda row, **rest: fetched if row.name == name else there(row, **rest)
    )
    if as_onnx:
        monkeypatch.setattr(onnx_nets, "find_onnx", lambda row: fetched if row.name == name else onnx_there(row))
    assert not suits_short_run(NetOptions(), 1)


def test_an_engine_for_more_than_these_photos_is_pytorchs(on_cpu, tmp_path, monkeypatch):
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path))  # nothing is compiled there
    assert build_engine(Options(), photos=1).setup.runtime == "eager"
    short = build_engine(Options(), photos=1, start_counts=True)
    assert (short.setup.runtime, short.setup.precision) == ("onnx", "fp32")
    assert "a short run" in short.setup.precision_reason
    eager = dataclasses.replace(CPU, precision="bf16")
    assert build_engine(Options(), photos=1, start_counts=True, earlier=eager).setup.runtime == "eager", "as it began"


def test_one_photo_is_restored_without_importing_torch(tmp_path):
    code = (
        "import sys, json; from gpen_cli.cli.main import app\n"
        "try: app(sys.argv[1:])\n"
        "finally: print(json.dumps('torch' in sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "GPEN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, "enhance", "examples/astronaut.jpg", "-o", tmp_path / "x.png", "--device", "cpu"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1]) is False
