"""The contract of graph replay, without a GPU: one shape, memory that stays where it was, no stale answers; or with one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from drawn_weights import save_small_net
from torch import Tensor

from gpen_cli.device import Setup
from gpen_cli.runtime import cuda_graph
from gpen_cli.runtime.cuda_graph import WARM_UP, GraphPass
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import from_path

SHAPE = (3, 8, 8, 3)
POISON = 77
GRAPH = Setup(device="cpu", precision="fp32", micro_batch=3, threads=1, runtime="cuda-graph")


class StandInGraphs:
    """A ``GraphApi`` on the CPU that keeps CUDA's rules: a replay reads and writes the memory of the capture, whatever the caller
    holds now, and what a caller still holds of the last answer is overwritten by the next one."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.warm_ups = self.captures = self.replays = self.waits = 0
        self.pending = False

    def device_buffer(self, shape, dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    host_buffer = device_buffer

    def warm_up(self, work) -> None:
        for _ in range(WARM_UP):
            work()
            self.warm_ups += 1

    def capture(self, work):
        outputs = work()
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            self.pending = True
            fresh = work()
            for output, value in zip(outputs, fresh, strict=True):
                output.fill_(POISON)
                output.copy_(value)

        return replay, outputs

    def wait(self) -> None:
        self.waits += 1
        self.pending = False


def double(crops: Tensor) -> tuple[Tensor, Tensor]:
    return (crops * 2), torch.isfinite(crops.float()).all()


def crops_of(value: int) -> Tensor:
    return torch.full(SHAPE, value, dtype=torch.uint8)


@pytest.fixture
def api() -> StandInGraphs:
    return StandInGraphs()


def test_it_is_warmed_up_and_captured_once_and_replayed_for_each_batch(api):
    graph = GraphPass(double, SHAPE, api)
    assert (api.warm_ups, api.captures, api.replays) == (WARM_UP, 1, 0)
    for value in (1, 2, 3):
        pixels, finite = graph(crops_of(value))
        assert (pixels == 2 * value).all()
        assert bool(finite)
        assert not api.pending, "the device was waited for"
    assert (api.captures, api.replays, api.waits) == (1, 3, 3)


def test_an_answer_is_not_changed_by_the_next_replay(api):
    graph = GraphPass(double, SHAPE, api)
    first, _ = graph(crops_of(5))
    graph(crops_of(9))
    assert (first == 10).all()


def test_the_callers_memory_is_read_at_once_and_never_held(api):
    graph = GraphPass(double, SHAPE, api)
    crops = crops_of(4)
    pixels, _ = graph(crops)
    crops.fill_(200)
    assert (pixels == 8).all()
    assert (graph(crops_of(6))[0] == 12).all()


@pytest.mark.parametrize(
    "crops",
    [torch.zeros((2, 8, 8, 3), dtype=torch.uint8), torch.zeros(SHAPE, dtype=torch.float32)],
    ids=["shape", "type"],
)
def test_another_shape_or_type_is_refused_before_it_reaches_the_graph(api, crops):
    graph = GraphPass(double, SHAPE, api)
    with pytest.raises(ValueError, match="captured for"):
        graph(crops)
    assert api.replays == 0


def test_a_buffer_that_moved_is_seen(api):
    graph = GraphPass(double, SHAPE, api)
    graph._crops = graph._crops.clone()
    with pytest.raises(AssertionError, match="moved"):
        graph(crops_of(1))


class TestInANet:
    @pytest.fixture(autouse=True)
    def stand_in(self, monkeypatch):
        monkeypatch.setattr(cuda_graph, "CudaGraphs", StandInGraphs)

    @pytest.fixture(scope="class")
    def weights(self, tmp_path_factory):
        return from_path(save_small_net(tmp_path_factory.mktemp("net") / "drawn.pth"))

    @pytest.fixture(scope="class")
    def crops(self):
        return np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)

    def test_short_batches_are_padded_and_answers_belong_to_their_crops(self, weights, crops):
        plain = TorchGpen(weights, dataclasses.replace(GRAPH, runtime="eager"))
        graph = TorchGpen(weights, GRAPH)
        expected = plain.run(crops)
        for order in ([0], [2, 1], [1, 0, 2]):
            assert np.array_equal(graph.run(crops[order]), expected[order])

    def test_when_memory_runs_out_it_is_captured_again_for_fewer_faces(self, weights, crops):
        graph = TorchGpen(weights, GRAPH)
        before = graph.run(crops[:1])
        assert graph.halve()
        assert graph.micro_batch == 1
        assert np.array_equal(graph.run(crops[:1]), before)
        assert not graph.halve()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGpu:
    @pytest.fixture(scope="class")
    def weights(self, tmp_path_factory):
        return from_path(save_small_net(tmp_path_factory.mktemp("net") / "drawn.pth"))

    @pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
    def test_replay_gives_the_plain_nets_bytes(self, weights, precision):
        crops = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
        setup = dataclasses.replace(GRAPH, device="cuda:0", precision=precision)
        plain, graph = TorchGpen(weights, dataclasses.replace(setup, runtime="eager")), TorchGpen(weights, setup)
        for order in ([0], [2, 1], [1, 0, 2], [1, 0, 2]):
            difference = plain.run(crops[order]).astype(int) - graph.run(crops[order]).astype(int)
            assert np.abs(difference).max() <= 1
