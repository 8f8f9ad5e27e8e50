"""benchmarks/generator.py: a row is measured in a process of its own, one that fails costs no other, ratios fit their rows."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from drawn_weights import save_small_net

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def generator():
    """The benchmark as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import generator as module

        yield module
    for name in ("generator", "generator_child", "gpu_meter"):
        sys.modules.pop(name)


def test_a_row_is_measured_in_a_process_of_its_own_and_one_that_fails_costs_no_other(generator, tmp_path):
    crops = tmp_path / "crops.npy"
    np.save(crops, np.zeros((2, 64, 64, 3), np.uint8))
    net = save_small_net(tmp_path / "drawn.pth")
    task = generator.Task("gpen, eager", "gpen", "fp32", 2, str(net), str(crops), threads=1, repeats=3)
    row = generator.measured(task, tmp_path / "cache", limit=120)
    assert row.note == ""
    assert 0 < row.low <= row.seconds <= row.high
    assert row.first > row.ready > 0
    assert 0 < row.used <= 1.05
    assert row.peak > net.stat().st_size / 2**20, "its weights at least"
    missing = generator.replace(task, file=str(tmp_path / "missing.pth"))
    assert "does not exist" in generator.measured(missing, tmp_path / "cache", limit=120).note


@pytest.mark.parametrize("there", [True, False])
def test_the_gpus_figures_are_the_drivers_and_none_without_it(generator, tmp_path, monkeypatch, there):
    from gpu_meter import GpuMeter

    if there:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(
            '#!/bin/sh\necho "$*" > "$0.asked"\nprintf "7, 1000\\n[N/A], 1\\n9\\n80, 3000\\n"\n/bin/sleep 60\n'
        )
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with GpuMeter("utilization.gpu", "memory.used") as meter:
        end = time.monotonic() + 20
        while there and len(meter) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert meter.of("memory.used") == ([1000, 3000] if there else [])
    assert meter.of("utilization.gpu", since=1) == ([80] if there else [])
    if there:
        assert "--query-gpu=utilization.gpu,memory.used" in (tmp_path / "nvidia-smi.asked").read_text()


def test_ratios_are_to_the_fp32_rows_and_what_is_not_known_is_a_dash(generator):
    rows = [
        generator.Row("textbook, eager", "fp32", 1, seconds=4.0, first=5.0, peak=100.0, used=0.5),
        generator.Row("gpen, eager", "bf16", 1, seconds=1.0),
        generator.Row("gpen, eager", "fp32", 1, seconds=2.0, peak=None, used=None),
        generator.Row("gpen, compiled", "bf16", 1, seconds=0.5, first=40.0, first_warm=1.5, note=""),
        generator.Row("onnxruntime, our export", "int8", 1, note="failed: no such file"),
    ]
    textbook, bf16, fp32, compiled, failed = generator.deployment_table(rows)[2:]
    assert textbook.endswith("| 5.0 | 100 | 50 % | 0.50 | 1.00 |")
    assert bf16.endswith("| 2.00 | 4.00 |")
    assert fp32.endswith("| – | – | 1.00 | 2.00 |")
    assert "| 40.0 / 1.5 |" in compiled
    assert "failed: no such file" in failed
    assert len({line.count("|") for line in (textbook, compiled, failed)}) == 1
    assert [line.split("|")[1].strip() for line in generator.performance_table(rows, 1e9, {"fp32": 10.0})[2:]] == [
        "textbook, eager", "gpen, eager", "gpen, eager", "gpen, compiled",
    ]  # fmt: skip
