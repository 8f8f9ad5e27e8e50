"""Compiled nets: the same pictures as the plain ones, kept for the next process, and never somebody else's code."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_weights import save_small_net

from gpen_cli import engine
from gpen_cli.device import Setup
from gpen_cli.errors import DeviceError, UsageError
from gpen_cli.options import NetOptions, Options, RunOptions
from gpen_cli.runtime import choice, packages, torch_compiled, torch_gpen
from gpen_cli.runtime.aoti import CompiledLibrary, library_in
from gpen_cli.runtime.choice import HEAVY_PAYS_FROM, LANES_FROM, LIGHT_PAYS_FROM, choose_runtime, gains_by_lanes
from gpen_cli.runtime.torch_compiled import CompileError
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import FoundWeights, from_path

CPU = Setup(device="cpu", precision="fp32", micro_batch=1, threads=1)
COMPILED = dataclasses.replace(CPU, runtime="compiled", compiled=True)
CAN_COMPILE = choice._can_compile
needs_packages = pytest.mark.skipif(not packages.supported(), reason="packages need torch 2.6 and a POSIX system")
needs_compiler = pytest.mark.skipif(not torch_compiled.has_compiler("cpu"), reason="no C++ compiler here")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return from_path(save_small_net(tmp_path_factory.mktemp("net") / "drawn.pth"))


@pytest.fixture(scope="module")
def crops(astronaut):
    return np.stack([astronaut[60:124, 190:254], astronaut[100:164, 200:264]])


@pytest.fixture(scope="module")
def filled(weights, tmp_path_factory) -> Path:
    """A cache folder that holds the compiled net, made once for all tests here (about half a minute)."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPEN_CACHE_DIR", str(folder))
        TorchGpen(weights, COMPILED)
    return folder


@pytest.fixture
def cache(filled, tmp_path, monkeypatch) -> Path:
    """A copy of that folder, this test's own; compiling again would be an error."""
    folder = tmp_path / "cache"
    shutil.copytree(filled, folder, copy_function=shutil.copy2)
    monkeypatch.setenv("GPEN_CACHE_DIR", str(folder))

    def again(*given, **named):
        raise AssertionError("compiled again")

    monkeypatch.setattr(torch_compiled, "_make_package", again)
    return folder


def only(folder: Path, suffix: str) -> Path:
    (path,) = (folder / "compiled").glob(f"*{suffix}")
    return path


@pytest.mark.slow
@needs_packages
@needs_compiler
class TestPackages:
    def test_the_pictures_are_the_plain_nets(self, weights, crops, cache):
        plain, compiled = TorchGpen(weights, CPU), TorchGpen(weights, COMPILED)
        assert compiled.crop_size == plain.crop_size == 64
        for crop in crops:
            difference = plain.run(crop[None]).astype(int) - compiled.run(crop[None]).astype(int)
            assert np.abs(difference).max() <= 1
        assert plain.run(crops[:1]).std() > 5, "a flat answer would prove nothing"

    def test_equal_crops_give_equal_bytes(self, weights, crops, cache):
        first, second = TorchGpen(weights, COMPILED), TorchGpen(weights, COMPILED)
        answers = [net.run(crops[:1]) for net in (first, first, second, first)]
        assert all(np.array_equal(answer, answers[0]) for answer in answers)

    def test_a_second_process_finds_it(self, weights, cache):
        code = (
            "import sys\nfrom gpen_cli.device import Setup\nfrom gpen_cli.runtime import packages, torch_compiled\n"
            "from gpen_cli.weights.find import FoundWeights, from_path\nfrom pathlib import Path\n"
            f"setup = Setup(**{dataclasses.asdict(COMPILED)!r})\nimport torch\ntorch.set_num_threads(1)\n"
            f"found = torch_compiled.from_cache(from_path(Path({str(weights.path)!r})), setup)\n"
            "print(found.crop_size, found.seconds)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["64", "0.0"]

    def test_passes_at_a_time_keep_apart(self, weights, crops, cache):
        """Each lane has a library of its own; the lock is free inside, so they do run at the same time."""
        nets = [TorchGpen(weights, COMPILED) for _ in range(2)]
        expected = [nets[0].run(crop[None]) for crop in crops]

        def passes(lane: int) -> list[np.ndarray]:
            return [nets[lane].run(crops[(lane + turn) % 2][None]) for turn in range(20)]

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(passes, range(2)))
        for lane in range(2):
            assert all(np.array_equal(a, expected[(lane + turn) % 2]) for turn, a in enumerate(answers[lane]))

    def test_a_library_takes_the_one_shape_and_any_layout_of_it(self, weights, crops, cache):
        package = packages.find_package(weights, COMPILED)
        assert package is not None
        library = CompiledLibrary(package.path, (1, 64, 64, 3))
        whole = torch.from_numpy(crops[:1])
        pixels, finite = library(whole)
        turned = whole.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
        assert not turned.is_contiguous()
        assert torch.equal(library(turned)[0], pixels)
        assert bool(finite)
        for other in (torch.zeros(2, 64, 64, 3, dtype=torch.uint8), torch.zeros(1, 64, 64, 3)):
            with pytest.raises(ValueError, match="compiled for"):
                library(other)

    def test_other_shared_libraries_are_refused(self):
        with pytest.raises(AttributeError):
            CompiledLibrary(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so", (1, 64, 64, 3))

    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.write_bytes(path.read_bytes()[:-1000]),
            lambda path: path.write_bytes(path.read_bytes()[:1000] + b"x" + path.read_bytes()[1001:]),
            lambda path: path.with_suffix(".json").unlink(),
            lambda path: path.with_suffix(".json").write_text("[]"),
            lambda path: path.chmod(0o666),
            lambda path: path.parent.chmod(0o777),
        ],
        ids=["cut off", "one byte", "no note", "another note", "anyone may write it", "anyone may put one there"],
    )
    def test_what_is_damaged_or_open_to_others_is_never_loaded(self, weights, cache, damage):
        damage(only(cache, ".so"))
        assert torch_compiled.from_cache(weights, COMPILED) is None

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_nor_is_another_users(self, weights, cache):
        os.chown(only(cache, ".so"), 12345, -1)
        assert torch_compiled.from_cache(weights, COMPILED) is None

    def test_after_a_library_that_is_another_the_right_one_is_loaded_under_its_name(self, weights, crops, cache):
        """The system knows open libraries by their names."""
        path = only(cache, ".so")
        whole = path.read_bytes()
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("g++")
        path.unlink()
        subprocess.run([compiler, "-shared", "-x", "c", "-o", path, "-"], input=b"int other;", check=True)
        with pytest.raises(AttributeError):
            CompiledLibrary(path, (1, 64, 64, 3))
        path.unlink()
        path.write_bytes(whole)
        pixels, _ = CompiledLibrary(path, (1, 64, 64, 3))(torch.from_numpy(crops[:1]))
        assert np.array_equal(pixels.numpy(), TorchGpen(weights, COMPILED).run(crops[:1]))

    def test_one_that_does_not_load_is_removed_and_told(self, weights, cache, monkeypatch, caplog):
        path = only(cache, ".so")
        path.write_bytes(b"no package")
        note = {"sha256": packages.sha256_of(path), "crop_size": 64, "seconds": 1.0}
        path.with_suffix(".json").write_text(json.dumps(note))
        path.chmod(0o600)
        assert torch_compiled.from_cache(weights, COMPILED) is None
        assert not path.exists()
        assert "does not load" in caplog.text

    @pytest.mark.parametrize(
        "change", [{"precision": "bf16"}, {"threads": 2}, {"micro_batch": 2}], ids=["precision", "threads", "batch"]
    )
    def test_another_setup_has_another_package(self, weights, cache, change):
        assert torch_compiled.from_cache(weights, COMPILED) is not None
        assert torch_compiled.from_cache(weights, dataclasses.replace(COMPILED, **change)) is None

    def test_other_weights_torch_or_cpu_have_another(self, weights, cache, monkeypatch):
        path = packages.package_path(weights, COMPILED)
        monkeypatch.setattr(packages, "_cpu", lambda: "another CPU")
        assert packages.package_path(weights, COMPILED) != path
        monkeypatch.undo()
        monkeypatch.setattr(packages.metadata, "version", lambda name: "2.99.0")
        assert packages.package_path(weights, COMPILED) != path

    def test_the_oldest_are_removed_over_the_limit(self, weights, cache, monkeypatch):
        folder = cache / "compiled"
        for age in range(3):
            old = folder / f"old{age}.so"
            old.write_bytes(bytes(1000))
            os.utime(old, (10**9 - age, 10**9 - age))
        newest = only_named(folder, "drawn")
        monkeypatch.setattr(packages, "LIMIT_BYTES", newest.stat().st_size + 2500)
        packages._remove_old(newest)
        assert sorted(path.name for path in folder.glob("old*")) == ["old0.so", "old1.so"]
        assert newest.exists()


def only_named(folder: Path, start: str) -> Path:
    (path,) = folder.glob(f"{start}*.so")
    return path


@pytest.mark.parametrize("count", [0, 2])
def test_a_package_without_its_one_library_is_refused(tmp_path, count):
    with zipfile.ZipFile(tmp_path / "a.pt2", "w") as archive:
        for number in range(count):
            archive.writestr(f"model/{number}.so", b"code")
    with pytest.raises(RuntimeError, match=f"holds {count} libraries"):
        library_in(tmp_path / "a.pt2", tmp_path / "a.so")
    assert not (tmp_path / "a.so").exists()


class TestFailures:
    @pytest.fixture(autouse=True)
    def empty_cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path / "cache"))

    def test_a_compiler_that_fails_is_one_sentence(self, weights, monkeypatch):
        def broken(*given):
            raise RuntimeError("no compiler\nwith a long story")

        monkeypatch.setattr(torch_compiled, "_make_package", broken)
        monkeypatch.setattr(torch, "compile", lambda net, **options: broken)
        with pytest.raises(CompileError, match=r"compiler failed.*--runtime eager") as caught:
            TorchGpen(weights, COMPILED)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 5

    @needs_packages
    def test_a_cache_that_cannot_be_written_is_one_sentence(self, weights, tmp_path, monkeypatch):
        (tmp_path / "cache").write_text("a file")
        with pytest.raises(CompileError, match="set GPEN_CACHE_DIR"):
            TorchGpen(weights, COMPILED)

    def test_without_packages_torch_compile_does_it_for_the_one_shape(self, weights, crops, monkeypatch):
        compiled = []

        def fake_compile(net, **options):
            compiled.append(options)
            return net

        monkeypatch.setattr(packages, "supported", lambda: False)
        monkeypatch.setattr(torch, "compile", fake_compile)
        # The plain net filters by convolution, which on some processors rounds a sum the other way.
        monkeypatch.setattr(torch_gpen, "filter_by_convolution", lambda net, below: None)
        expected = TorchGpen(weights, dataclasses.replace(CPU, micro_batch=2)).run(crops)
        net = TorchGpen(weights, dataclasses.replace(COMPILED, micro_batch=2))
        assert np.array_equal(net.run(crops), expected)
        assert compiled == [{"fullgraph": True, "dynamic": False}]


class TestChoice:
    """Which runtime follows from the flags and the work."""

    @pytest.fixture(autouse=True)
    def cold(self, monkeypatch, tmp_path):
        monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(choice, "_can_compile", lambda device: True)
        monkeypatch.setattr(packages, "supported", lambda: True)

    def chosen(self, weights, photos, *, device="cpu", resumed=False, before=CPU, **flags) -> tuple[str, bool]:
        setup = dataclasses.replace(before, device=device)
        done = choose_runtime(NetOptions(**flags), setup, [weights], photos, resumed=resumed)
        return done.runtime, done.compiled

    def test_a_few_photos_are_done_plainly_and_many_compiled(self, weights, monkeypatch):
        assert self.chosen(weights, 1) == ("eager", False)
        assert self.chosen(weights, HEAVY_PAYS_FROM) == ("eager", False)
        assert self.chosen(weights, LIGHT_PAYS_FROM) == ("compiled", True)
        monkeypatch.setattr(choice, "LIGHT_BYTES", 0)
        assert self.chosen(weights, 1) == ("eager", False)
        assert self.chosen(weights, HEAVY_PAYS_FROM) == ("compiled", True)

    def test_what_is_compiled_already_is_taken(self, weights, monkeypatch):
        path = packages.package_path(weights, CPU)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"damaged")
        assert self.chosen(weights, 10) == ("eager", False), "what does not load counts as not there"
        monkeypatch.setattr(packages, "find_package", lambda found, setup: packages.Package(path, 64, 1.0))
        assert self.chosen(weights, 1) == ("compiled", True), "it starts sooner than the plain net"
        assert self.chosen(weights, None) == ("compiled", True), "--watch: nobody knows how many there will be"

    def test_what_is_compiled_already_needs_no_compiler(self, weights, monkeypatch):
        monkeypatch.setattr(choice, "_can_compile", lambda device: pytest.fail("asked for a compiler"))
        monkeypatch.setattr(packages, "find_package", lambda found, setup: packages.Package(Path("x"), 64, 1.0))
        assert self.chosen(weights, LIGHT_PAYS_FROM) == ("compiled", True)

    @pytest.mark.parametrize("ready", [True, False])
    def test_what_is_ready_is_loaded_with_the_first_photos_and_what_is_not_is_compiled_before(
        self, weights, monkeypatch, ready
    ):
        monkeypatch.setattr(engine, "_choices", lambda options, onnx: [engine.NetChoice("net", 64, weights)])
        monkeypatch.setattr(engine, "is_compiled", lambda found, setup: ready)
        loaded = []
        monkeypatch.setattr(engine, "make_net", lambda found, setup: loaded.append(found.name))
        options = Options(net=NetOptions(compile="always"), run=RunOptions(aligned=True))
        built = engine.build_engine(options)
        assert (built.setup.runtime, built.preload, len(loaded)) == ("compiled", ("net",), 0 if ready else 1)

    def test_nets_that_cost_little_are_loaded_before_any_face_is_known(self, weights, monkeypatch, tmp_path):
        heavy = FoundWeights(tmp_path / "heavy.pth", None)
        heavy.path.write_bytes(bytes(2 * weights.path.stat().st_size))
        monkeypatch.setattr(choice, "LIGHT_BYTES", weights.path.stat().st_size)
        few = [engine.NetChoice("a", 64, weights), engine.NetChoice("b", 128, weights)]
        for choices, expected in (
            ([few[0]], ("a",)),
            (few, ("a", "b")),
            ([*few, engine.NetChoice("c", 256, heavy)], ("a", "b")),
        ):
            assert engine.Engine(detector=None, choices=choices, parser=None, setup=CPU).preload == expected
        alone = [engine.NetChoice("c", 256, heavy)]
        assert engine.Engine(detector=None, choices=alone, parser=None, setup=CPU).preload == ("c",)

    @pytest.mark.parametrize(
        ("change", "light", "photos", "gains"),
        [
            ({}, [True, True], LANES_FROM, True),
            ({}, [True], LANES_FROM - 1, False),
            ({}, [True], None, False),
            ({}, [True, False], 100, False),
            ({"threads": 1}, [True], 100, False),
            ({"device": "cuda:0"}, [True], 100, False),
            ({"runtime": "onnx"}, [True], 100, False),
        ],
    )
    def test_which_runs_go_in_lanes(self, weights, monkeypatch, tmp_path, change, light, photos, gains):
        heavy = FoundWeights(tmp_path / "heavy.pth", None)
        heavy.path.write_bytes(bytes(2 * weights.path.stat().st_size))
        monkeypatch.setattr(choice, "LIGHT_BYTES", weights.path.stat().st_size)
        nets = [weights if each else heavy for each in light]
        assert gains_by_lanes(dataclasses.replace(CPU, **{"threads": 4, **change}), nets, photos) == gains

    @pytest.mark.parametrize(("threads", "lanes", "each"), [(2, 2, 1), (3, 3, 1), (4, 4, 1), (8, 4, 2), (15, 4, 3)])
    def test_lanes_share_the_threads(self, threads, lanes, each):
        setup = dataclasses.replace(CPU, threads=threads).in_lanes()
        assert (setup.lanes, setup.threads, setup.crops_in_flight) == (lanes, each, 2 * lanes)
        assert setup.on("cpu").lanes == 1

    def test_flags_decide(self, weights):
        assert self.chosen(weights, 1, compile="always") == ("compiled", True)
        assert self.chosen(weights, 1, runtime="compiled") == ("compiled", True)
        assert self.chosen(weights, 10**6, compile="never") == ("eager", False)
        assert self.chosen(weights, 10**6, runtime="eager") == ("eager", False)

    @pytest.mark.parametrize(("runtime", "compile"), [("eager", "always"), ("compiled", "never"), ("onnx", "always")])
    def test_flags_that_contradict_each_other_are_refused(self, runtime, compile):
        with pytest.raises(UsageError, match="contradict"):
            NetOptions(runtime=runtime, compile=compile)

    def test_a_resumed_run_keeps_its_runtime(self, weights):
        before = dataclasses.replace(CPU, runtime="compiled", compiled=True)
        assert self.chosen(weights, 1, resumed=True, before=before) == ("compiled", True)
        assert self.chosen(weights, 10**6, resumed=True) == ("eager", False)

    def test_graphs_are_for_cuda(self, weights):
        assert self.chosen(weights, 1, device="cuda:0") == ("cuda-graph", False)
        assert self.chosen(weights, 1, device="cuda:0", compile="always") == ("cuda-graph", True)
        assert self.chosen(weights, 10**6, device="cuda:0") == ("cuda-graph", True)
        assert self.chosen(weights, 1, device="cuda:0", runtime="eager") == ("eager", False)
        with pytest.raises(DeviceError, match="needs a CUDA GPU"):
            self.chosen(weights, 1, runtime="cuda-graph")

    def test_without_a_compiler_it_is_said_once_and_the_run_goes_on(self, weights, monkeypatch, caplog):
        monkeypatch.setattr(choice, "_can_compile", CAN_COMPILE)
        monkeypatch.setattr(torch_compiled, "has_compiler", lambda device: False)
        assert self.chosen(weights, 10**6) == ("eager", False)
        assert caplog.text.count("there is no C++ compiler") == 1

    def test_an_onnx_run_stays_one(self, weights):
        before = dataclasses.replace(CPU, runtime="onnx", provider="cpu")
        assert self.chosen(weights, 10**6, before=before) == ("onnx", False)
