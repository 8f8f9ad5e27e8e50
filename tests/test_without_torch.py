"""Everything but the torch runtimes works where torch, torchvision and facexlib are not installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from drawn_weights import save_small_net
from PIL import Image

from gpen_cli import export
from gpen_cli.export import export_net
from gpen_cli.options import ExportOptions
from gpen_cli.weights.find import from_path

ROOT = Path(__file__).resolve().parent.parent
ABSENT = ("torch", "torchvision", "facexlib", "onnx", "safetensors")
WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from gpen_cli.cli.main import run
run()
"""


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("net")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "cpu_count", lambda: 1)
        export_net(from_path(save_small_net(folder / "drawn.pth")), folder / "drawn.onnx", ExportOptions())
    torch.set_num_threads(before)
    return folder / "drawn.onnx"


def gpen(*arguments: str | Path, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "GPEN_CACHE_DIR": str(cache)},
    )  # fmt: skip


def test_an_onnx_net_restores_and_a_folder_of_photos_too(onnx_file, tmp_path):
    out = tmp_path / "out.png"
    arguments = ("--weights", onnx_file, "--guard", "off", "--sharp-faces", "restore")
    result = gpen("enhance", "examples/astronaut.jpg", "-o", out, *arguments, cache=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "runtime onnx on cpu" in result.stderr
    assert "1 found, 1 restored" in result.stderr
    assert Image.open(out).size == (576, 672)
    result = gpen("batch", "examples", tmp_path / "all", *arguments, "--quiet", cache=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model", "gpen-bfr-512"), 4, "gpen-bfr-512 is not on this machine"),
        (
            ("--weights", "pretrained_models/gpen-open-256.safetensors", "--precision", "fp16"),
            4,
            "gpen export --model gpen-open-256 --precision fp16 -o gpen-open-256.onnx",
        ),
        (("--runtime", "eager", "--device", "cpu"), 5, "needs PyTorch, which is not installed"),
        (("--mask", "parse"), 5, "--mask parse needs PyTorch and facexlib"),
        (("--detector", "retinaface-r50"), 5, "--detector retinaface-r50 needs PyTorch and facexlib"),
    ],
)
def test_what_needs_torch_says_so_in_one_sentence(tmp_path, arguments, code, words):
    result = gpen("enhance", "examples/astronaut.jpg", "-o", tmp_path / "x.png", *arguments, cache=tmp_path)
    assert (result.returncode, words in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr


def test_the_embedded_net_needs_nothing_but_its_graph(tmp_path):
    result = gpen("enhance", "examples/astronaut.jpg", "-o", tmp_path / "x.png", cache=tmp_path)
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"net: gpen-open-256 .*gpen-open-256\.onnx.*fp32 \(the ONNX file's own\), runtime onnx on cpu", result.stderr
    )
    assert "1 found, 1 restored" in result.stderr


def test_exporting_says_so_too(tmp_path):
    result = gpen("export", "--model", "gpen-open-256", "-o", tmp_path / "x.onnx", cache=tmp_path)
    assert result.returncode == 5
    assert "gpen export needs PyTorch" in result.stderr


def test_the_requirements_without_torch_are_pyprojects_less_torchs():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert listed is not None
    wanted = set(re.findall(r'"([^"]+)"', listed.group(1)))
    without = {item for item in wanted if re.split(r"[<>=]", item)[0] not in ABSENT}
    lines = (ROOT / "requirements-onnx.txt").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if line and not line.startswith("#")} == without
