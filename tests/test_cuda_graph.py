"""The contract of graph replay, without a GPU: one shape, memory that stays where it was, no stale answers; or with one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from drawn_weights import save_small_net
from torch import Tensor

from gpen_cli.device import Setup
from gpen_cli.runtime import cuda_graph
from gpen_cli.runtime.cuda_graph import SLOTS, WARM_UP, GraphPass
from gpen_cli.runtime.torch_gpen import TorchGpen
from gpen_cli.weights.find import from_path

SHAPE = (3, 8, 8, 3)
POISON = 77
GRAPH = Setup(device="cpu", precision="fp32", micro_batch=3, threads=1, runtime="cuda-graph")


class StandInGraphs:
    """A ``GraphApi`` on the CPU that keeps CUDA's rules: a replay reads and writes the memory of the capture, whatever the caller
    holds now, what a caller still holds of the last answer is overwritten by the next one, and what is submitted happens in
    order, at any time up to the wait: at once, or (``late``) not before somebody waits for it."""

    def __init__(self, device: torch.device | None = None, *, late: bool = True) -> None:
        self.warm_ups = self.captures = self.replays = self.waits = 0
        self.jobs: list[Callable[[], None]] = []
        self.late = late

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
            fresh = work()
            for output, value in zip(outputs, fresh, strict=True):
                output.fill_(POISON)
                output.copy_(value)

        return replay, outputs

    def submit(self, given, replay, taken):
        @torch.inference_mode()
        def job() -> None:
            given[0].copy_(given[1])
            replay()
            for host, device in taken:
                host.copy_(device)

        self.jobs.append(job)
        if not self.late:
            self.run(job)

        def wait() -> None:
            self.waits += 1
            self.run(job)

        return wait

    def run(self, job) -> None:
        """Everything up to and including ``job``."""
        while job in self.jobs:
            self.jobs.pop(0)()


def double(crops: Tensor) -> tuple[Tensor, Tensor]:
    return (crops * 2), torch.isfinite(crops.float()).all()


def crops_of(value: int) -> Tensor:
    return torch.full(SHAPE, value, dtype=torch.uint8)


@pytest.fixture(params=[True, False], ids=["late", "at-once"])
def api(request) -> StandInGraphs:
    return StandInGraphs(late=request.param)


def test_every_slot_is_warmed_up_and_captured_once_and_one_replayed_for_each_batch(api):
    graph = GraphPass(double, SHAPE, api)
    assert (api.warm_ups, api.captures, api.replays) == (WARM_UP * SLOTS, SLOTS, 0)
    for value in (1, 2, 3):
        pixels, finite = graph(crops_of(value))
        assert (pixels == 2 * value).all()
        assert bool(finite)
        assert not api.jobs, "the device was waited for"
    assert (api.captures, api.replays, api.waits) == (SLOTS, 3, 3)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_batches_on_their_way_keep_apart(api, order):
    graph = GraphPass(double, SHAPE, api)
    for start in (10, 20, 30):
        crops = [crops_of(start), crops_of(start + 1)]
        answers = [graph.begin(each) for each in crops]
        for each in crops:
            each.fill_(200)  # the caller's memory is read at once
        for index in order:
            pixels, finite = answers[index]()
            assert (pixels == 2 * (start + index)).all()
            assert bool(finite)


def test_a_chain_of_passes_in_which_each_begins_before_the_last_is_answered(api):
    """As the batcher does it."""
    graph = GraphPass(double, SHAPE, api)
    before = graph.begin(crops_of(0))
    for value in range(1, 12):
        after = graph.begin(crops_of(value))
        assert (before()[0] == 2 * (value - 1)).all()
        before = after
    assert (before()[0] == 22).all()


def test_more_batches_than_slots_are_a_fault_of_the_program_and_reach_no_buffer(api):
    graph = GraphPass(double, SHAPE, api)
    answers = [graph.begin(crops_of(value)) for value in range(SLOTS)]
    with pytest.raises(AssertionError, match="at a time"):
        graph.begin(crops_of(9))
    assert [int(answer()[0][0, 0, 0, 0]) for answer in answers] == [2 * value for value in range(SLOTS)]


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
    slot = graph._slots[0]
    slot._crops = slot._crops.clone()
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

    def test_passes_overlap_in_graphs_alone_and_a_bad_one_is_done_again_in_fp32(self, weights, crops, monkeypatch):
        expected = TorchGpen(weights, dataclasses.replace(GRAPH, runtime="eager")).run(crops)
        assert not TorchGpen(weights, dataclasses.replace(GRAPH, runtime="eager")).overlaps
        graph = TorchGpen(weights, dataclasses.replace(GRAPH, precision="bf16"))
        assert graph.overlaps
        answers = [graph.begin(crops), graph.begin(crops[::-1])]
        with torch.inference_mode():
            for slot in graph._pass._slots:
                monkeypatch.setattr(slot, "_host_outputs", (slot._host_outputs[0], torch.tensor(False)))
        assert np.array_equal(answers[0](), expected)
        assert not graph.overlaps, "fp32 from here on"
        assert np.array_equal(answers[1](), expected[::-1])

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
