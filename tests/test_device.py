"""The setup: what was asked for or an error, never something else in silence; and the reason is written down."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import subprocess
import sys

import pytest
import torch

from gpen_cli import device
from gpen_cli.device import cpu_count, cpu_has_bf16, lists_bf16, resolve_runtime, resolve_setup
from gpen_cli.errors import DeviceError, UsageError
from gpen_cli.onnx_nets import settle
from gpen_cli.options import NetOptions
from gpen_cli.train.config import TrainConfig
from gpen_cli.train.setup import prepare_device


def setup(**options) -> device.Setup:
    return resolve_setup(NetOptions(**options))


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


class NoContext:
    """Stands in for ``torch.cuda.device``."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@pytest.fixture
def two_gpus(monkeypatch):
    """Pretends; the returned list's item says whether they have bf16."""
    bf16 = [True]
    monkeypatch.setattr(device, "may_have_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device", NoContext)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16[0] or including_emulation)
    return bf16


def test_without_a_gpu_auto_is_the_cpu(no_gpu):
    assert setup().device == setup(device="cpu").device == "cpu"


def test_on_a_cpu_one_face_is_run_at_a_time_whatever_the_batch_size():
    assert setup(device="cpu", batch_size=16).micro_batch == 1


def test_on_a_gpu_the_batch_size_is_the_micro_batch(two_gpus):
    assert setup(device="cuda", batch_size=16).micro_batch == 16


def test_threads_are_those_asked_for_or_the_cores_we_may_use(monkeypatch):
    assert setup(device="cpu", threads=3).threads == 3
    assert setup(device="cpu").threads == cpu_count() >= 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert cpu_count() == 3


def test_the_runtime_is_pytorchs_plain_one_until_the_work_is_known():
    assert setup(device="cpu").runtime == "eager"
    assert setup(device="cpu", runtime="compiled").runtime == "eager"
    assert resolve_runtime(NetOptions(runtime="onnx")) == "onnx"


@pytest.mark.skipif(device.may_have_gpu(), reason="PyTorch has to be asked here")
def test_where_there_is_surely_no_gpu_pytorch_is_not_imported_to_ask():
    code = (
        "import sys\nfrom gpen_cli.device import resolve_setup\nfrom gpen_cli.options import NetOptions\n"
        "print(resolve_setup(NetOptions()).device, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu", "False"]


def test_waiting_threads_sleep_unless_the_user_wants_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    setup(device="cpu")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    setup(device="cpu")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_that_is_not_there_is_an_error_with_advice_not_the_cpu(no_gpu, name):
    with pytest.raises(
        DeviceError, match=rf"--device {name}: PyTorch .* sees no CUDA GPU here; .*--device cpu"
    ) as caught:
        setup(device=name)
    assert caught.value.exit_code == 5


def test_an_apple_gpu_that_is_not_there_is_an_error_too(no_gpu):
    with pytest.raises(DeviceError, match=r"--device mps: .*--device cpu"):
        setup(device="mps")


def test_a_gpu_beyond_those_there_are_is_an_error(two_gpus):
    assert setup(device="cuda:1").device == "cuda:1"
    with pytest.raises(DeviceError, match=r"--device cuda:2: this machine has 2 CUDA GPU\(s\), counted from 0"):
        setup(device="cuda:2")


def test_auto_and_cuda_without_a_number_are_the_first_gpu(two_gpus):
    assert setup().device == setup(device="cuda").device == "cuda:0"


@pytest.mark.parametrize(
    "name", ["", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cpu\n", "cuda:1 ", "cuda:٣", "auto,cpu"]
)
def test_a_name_that_is_no_device_is_a_usage_error(name):
    with pytest.raises(UsageError, match=r"--device .* is not known; choose auto, cpu, cuda, cuda:N or mps") as caught:
        setup(device=name)
    assert caught.value.exit_code == 2


# -- precision ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_precision_asked_for_is_taken(precision):
    chosen = setup(device="cpu", precision=precision)
    assert (chosen.precision, chosen.precision_reason) == (precision, "asked for")


@pytest.mark.parametrize(("has", "precision"), [(True, "bf16"), (False, "fp32")])
def test_on_a_cpu_auto_is_bf16_only_where_the_cpu_has_it(monkeypatch, has, precision):
    monkeypatch.setattr(device, "cpu_has_bf16", lambda: has)
    chosen = setup(device="cpu")
    assert chosen.precision == precision
    assert "bf16 instructions" in chosen.precision_reason


@pytest.mark.parametrize(("has", "precision"), [(True, "bf16"), (False, "fp16")])
def test_on_a_gpu_auto_is_bf16_only_where_it_is_native(two_gpus, has, precision):
    two_gpus[0] = has
    chosen = setup(device="cuda")
    assert chosen.precision == precision
    assert "native" in chosen.precision_reason


def test_on_an_apple_gpu_auto_is_fp32(monkeypatch, no_gpu):
    monkeypatch.setattr(device, "may_have_gpu", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert setup().device == "mps"
    assert setup().precision == "fp32"


X86 = (
    "processor\t: 0\nmodel name\t: Some CPU with bf16 in its name\nflags\t\t: fpu sse2 avx512f {}\nbugs\t\t: spectre\n"
)
ARM = "processor\t: 0\nFeatures\t: fp asimd {}\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("text", "has"),
    [
        (X86.format("avx512_bf16 avx512vl"), True),
        (X86.format("amx_bf16 amx_tile"), True),
        (X86.format("avx512_bf16") + "\n" + X86.format(""), True),
        (X86.format("avx512vl"), False),
        (X86.format("avx512_bf16_soon notbf16"), False),
        (ARM.format("i8mm bf16"), True),
        (ARM.format("i8mm"), False),
        ("flags\t:\nbugs\t: amx_bf16\n", False),
        ("", False),
    ],
)
def test_bf16_is_read_off_the_flags_alone(text, has):
    assert lists_bf16(text) is has


def test_where_flags_cannot_be_read_the_cpu_counts_as_without_bf16(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    assert cpu_has_bf16() is False


def test_choosing_the_cpu_needs_no_torch():
    import subprocess
    import sys

    code = (
        "import sys; from gpen_cli.device import resolve_setup; from gpen_cli.options import NetOptions; "
        "resolve_setup(NetOptions(device='cpu')); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "False"


FAULTS_OF_SECOND_ROUND = """
import resource, sys
from gpen_cli.device import keep_freed_memory
keep_freed_memory(large=sys.argv[1] == "large")
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * int(sys.argv[2])
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_freed_memory_is_kept_unless_the_user_said_otherwise() -> None:
    def faults(kind: str, megabytes: int, **more: str) -> int:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        command = [sys.executable, "-c", FAULTS_OF_SECOND_ROUND, kind, str(megabytes << 20)]
        return int(subprocess.run(command, env={**clean, **more}, capture_output=True, text=True, check=True).stdout)

    assert faults("usual", 30) < 500  # 30 MiB are 7680 pages
    assert faults("usual", 64) > 10_000
    assert faults("large", 64) < 1000
    assert faults("usual", 30, MALLOC_MMAP_THRESHOLD_="1000000") > 5000


# -- several GPUs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "devices"),
    [
        ("auto", ("cuda:0",)),
        ("cuda", ("cuda:0",)),
        ("cuda:1", ("cuda:1",)),
        ("cuda:1,cuda:0", ("cuda:1", "cuda:0")),
        ("cuda:all", ("cuda:0", "cuda:1")),
    ],
)
def test_the_gpus_that_were_asked_for_and_no_other(two_gpus, asked, devices):
    found = setup(device=asked)
    assert found.devices == devices
    assert [found.on(name).devices for name in devices] == [(name,) for name in devices]


@pytest.mark.parametrize(
    ("asked", "error", "sentence"),
    [
        ("cuda:0,cuda:2", DeviceError, "this machine has 2 CUDA GPU"),
        ("cuda:0,cuda:0", UsageError, "names a GPU twice"),
        ("cuda,cuda:1", UsageError, "is not known"),
        ("cuda:0,cpu", UsageError, "is not known"),
        ("cuda:all,cuda:0", UsageError, "is not known"),
    ],
)
def test_a_list_that_cannot_be_had_is_one_sentence(two_gpus, asked, error, sentence):
    with pytest.raises(error, match=sentence):
        setup(device=asked)


@pytest.mark.parametrize("asked", ["cuda:", "cuda:0,cpu", "cuda:0,", "cuda:0,cuda:0", "gpu"])
def test_a_slip_of_the_pen_is_not_blamed_on_the_driver(no_gpu, asked):
    for options in (NetOptions(device=asked), NetOptions(device=asked, runtime="onnx")):
        with pytest.raises(UsageError, match=r"--device .*(is not known; choose|names a GPU twice)"):
            settle(options, None)


def test_what_runs_on_one_gpu_does_not_leave_the_others_out_in_silence(two_gpus):
    assert setup(device="cuda:1").only_device("name one") == "cuda:1"
    with pytest.raises(UsageError, match=r"--device cuda:0,cuda:1 names several GPUs, and this takes one; name one\."):
        setup(device="cuda:all").only_device("name one")
    with pytest.raises(UsageError, match="torchrun"):
        prepare_device(TrainConfig(device="cuda:0,cuda:1"))


def test_a_run_that_is_resumed_takes_up_its_gpus(two_gpus):
    before = device.Setup(**json.loads(json.dumps(dataclasses.asdict(setup(device="cuda:all")))))
    assert resolve_setup(NetOptions(), before).devices == ("cuda:0", "cuda:1")
    assert resolve_setup(NetOptions(device="cuda:1"), before).devices == ("cuda:1",)


def test_onnx_nets_too_run_on_several(two_gpus, monkeypatch):
    onnx = functools.partial(resolve_setup, provider="cuda")
    assert onnx(NetOptions(device="cuda:0,cuda:1")).devices == ("cuda:0", "cuda:1")
    assert onnx(NetOptions(device="cuda:all")).devices == ("cuda:0", "cuda:1")
    before = onnx(NetOptions(device="cuda:all"))
    assert onnx(NetOptions(), before).devices == ("cuda:0", "cuda:1")
    monkeypatch.setattr(device, "has_package", lambda name: False)
    with pytest.raises(UsageError, match="name them: cuda:0,cuda:1"):
        onnx(NetOptions(device="cuda:all"))


def test_pytorch_is_imported_without_the_collector_which_runs_again_afterwards():
    code = (
        "import gc, sys\n"
        "from gpen_cli.device import import_torch\n"
        "was = []\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': was.append(gc.isenabled())\n"
        "sys.meta_path.insert(0, Watch())\n"
        "import_torch()\n"
        "print(was, gc.isenabled(), 'torch' in sys.modules)\n"
        "gc.disable(); import_torch(); print(gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[False] True True", "False"]
