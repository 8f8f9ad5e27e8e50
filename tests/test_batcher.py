"""The batcher: every result belongs to its crop, every error reaches whoever waits, and nothing ever waits for ever."""

from __future__ import annotations

import functools
import random
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpen_cli.batcher import Batcher
from gpen_cli.errors import DeviceError, WeightsError
from gpen_cli.runtime.protocol import NetMemoryError, NonFiniteOutputError

LIMIT_SECONDS = 20.0
"""A test that needs longer has met a deadlock."""
BAD = 255
"""The mark of a crop for which a net of these tests gives no finite number."""


def crop(net: int, number: int, mark: int = 0) -> np.ndarray:
    """A small crop that carries its net, its number and a mark."""
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[0, 0] = net, number // 256, number % 256
    pixels[1, 0, 0] = mark
    return pixels


class Net:
    """Answers each crop with its negative; keeps count of what it was given."""

    def __init__(self, number: int, micro_batch: int, *, seconds: float = 0.0) -> None:
        self.name = f"net-{number}"
        self.number = number
        self.crop_size = 4
        self.micro_batch = micro_batch
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()
        self.busy = threading.Lock()
        self._seconds = seconds

    def run(self, crops: np.ndarray) -> np.ndarray:
        assert self.busy.acquire(blocking=False), "two threads in one net"
        try:
            self.threads.add(threading.get_ident())
            assert crops.dtype == np.uint8
            assert {int(value) for value in crops[:, 0, 0, 0]} == {self.number}, "crops of another net"
            self.batches.append([int(a) * 256 + int(b) for _, a, b in crops[:, 0, 0]])
            if self._seconds:
                time.sleep(self._seconds)
            if (crops[:, 1, 0, 0] == BAD).any():
                raise NonFiniteOutputError("not finite")
            return 255 - crops
        finally:
            self.busy.release()

    def halve(self) -> bool:
        self.micro_batch, before = max(1, self.micro_batch // 2), self.micro_batch
        return before > 1


class Overlapping(Net):
    """One pass may be on its way when the next one begins. Answers late, from what it was given at the beginning."""

    overlaps = True

    def __init__(self, number: int, micro_batch: int, *, seconds: float = 0.0) -> None:
        super().__init__(number, micro_batch, seconds=seconds)
        self.running = self.most = 0
        self.events: list[tuple[str, int]] = []

    def begin(self, crops: np.ndarray):
        self.running += 1
        self.most = max(self.most, self.running)
        given, first = crops.copy(), int(crops[0, 0, 0, 1]) * 256 + int(crops[0, 0, 0, 2])
        self.events.append(("begun", first))

        def answer() -> np.ndarray:
            self.events.append(("answered", first))
            self.running -= 1
            return Net.run(self, given)

        return answer


class Held(Net):
    """Says when a pass has begun, and ends it when the gate is opened."""

    def __init__(self, number: int, micro_batch: int) -> None:
        super().__init__(number, micro_batch)
        self.begun, self.gate = threading.Event(), threading.Event()

    def run(self, crops: np.ndarray) -> np.ndarray:
        self.begun.set()
        self.gate.wait(LIMIT_SECONDS)
        return super().run(crops)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name == "gpen-device"]
    assert left == []


def batcher_of(*nets: Net, **options) -> Batcher:
    by_name = {net.name: net for net in nets}
    return Batcher(by_name.__getitem__, **options)


def close(batcher: Batcher, *, cancel: bool = False) -> None:
    """Closes, and fails the test instead of hanging it."""
    thread = threading.Thread(target=batcher.close, kwargs={"cancel": cancel}, daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive(), "close() did not return"


def answer(future: Future) -> np.ndarray:
    return future.result(timeout=LIMIT_SECONDS).pixels


@settings(max_examples=40, deadline=None)
@given(
    micro_batches=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    photos=st.lists(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=7), max_size=12),
    feeders=st.integers(1, 6),
    seconds=st.sampled_from([0.0, 0.0005]),
    cancel=st.booleans(),
    overlapping=st.sets(st.integers(0, 2)),
)
def test_whatever_the_load_every_crop_gets_its_own_result_in_clean_batches(
    micro_batches, photos, feeders, seconds, cancel, overlapping
):
    nets = [
        (Overlapping if number in overlapping else Net)(number, size, seconds=seconds)
        for number, size in enumerate(micro_batches)
    ]
    batcher = batcher_of(*nets)

    def restore(photo: int) -> None:
        faces = [(which % len(nets), bad) for which, bad in photos[photo]]
        crops = [crop(which, photo * 16 + index, BAD * bad) for index, (which, bad) in enumerate(faces)]
        futures = [batcher.submit(pixels, f"net-{which}") for pixels, (which, _) in zip(crops, faces, strict=True)]
        for pixels, future, (_, bad) in zip(crops, futures, faces, strict=True):  # waits while others are fed
            if bad:
                with pytest.raises(NonFiniteOutputError):
                    answer(future)
            else:
                assert np.array_equal(answer(future), 255 - pixels)

    with ThreadPoolExecutor(feeders) as pool:
        for done in [pool.submit(restore, photo) for photo in range(len(photos))]:
            done.result(timeout=LIMIT_SECONDS)
    close(batcher, cancel=cancel)
    for net in nets:
        assert all(len(batch) <= net.micro_batch for batch in net.batches)
        assert len(net.threads) <= 1
        assert not isinstance(net, Overlapping) or (net.running == 0 and net.most <= 2)
    assert len(set().union(*(net.threads for net in nets))) <= 1, "one thread owns the device"


def test_batches_fill_by_themselves_under_load():
    net = Net(0, 4, seconds=0.002)
    batcher = batcher_of(net)
    with ThreadPoolExecutor(8) as pool:
        futures = list(pool.map(lambda number: batcher.submit(crop(0, number), "net-0"), range(200)))
    wait(futures, timeout=LIMIT_SECONDS)
    close(batcher)
    assert batcher.crops_run == 200
    assert batcher.passes == len(net.batches) < 80  # 50 if every batch is full


def test_a_lone_crop_is_run_at_once_not_held_until_a_batch_is_full():
    batcher = batcher_of(Net(0, 8))
    assert np.array_equal(answer(batcher.submit(crop(0, 1), "net-0")), 255 - crop(0, 1))
    close(batcher)


def test_crops_of_a_net_are_run_in_the_order_they_came_and_no_net_starves():
    gate = threading.Event()
    passes: list[tuple[int, list[int]]] = []

    class Recording(Net):
        def run(self, crops):
            output = super().run(crops)
            passes.append((self.number, self.batches[-1]))
            return output

    nets = [Recording(0, 2), Recording(1, 2)]

    def load(name):
        gate.wait(LIMIT_SECONDS)
        return nets[int(name[-1])]

    batcher = Batcher(load)
    order = [0, 0, 0, 1, 0, 1, 0, 1]
    futures = [batcher.submit(crop(net, number), f"net-{net}") for number, net in enumerate(order)]
    gate.set()
    wait(futures, timeout=LIMIT_SECONDS)
    close(batcher)
    assert passes == [(0, [0, 1]), (0, [2, 4]), (1, [3, 5]), (0, [6]), (1, [7])], "the oldest crop's net comes first"


def test_seconds_are_shared_among_the_faces_of_a_pass():
    gate = threading.Event()
    net = Net(0, 4, seconds=0.04)

    def load(name):
        gate.wait(LIMIT_SECONDS)
        return net

    batcher = Batcher(load)
    futures = [batcher.submit(crop(0, number), "net-0") for number in range(4)]
    gate.set()
    seconds = [future.result(timeout=LIMIT_SECONDS).seconds for future in futures]
    close(batcher)
    assert 0.04 <= sum(seconds) < 0.4
    assert len(set(seconds)) == 1


# -- passes that overlap -----------------------------------------------------------------------------------------------


def queued(net: Net, *numbers: int) -> tuple[Batcher, list[Future]]:
    """A batcher whose thread begins when all these crops wait."""
    gate = threading.Event()

    def load(name):
        gate.wait(LIMIT_SECONDS)
        return net

    batcher = Batcher(load)
    futures = [batcher.submit(crop(0, number, BAD * (number == 2)), "net-0") for number in numbers]
    gate.set()
    return batcher, futures


def test_the_next_pass_begins_before_the_answer_of_the_last_is_taken():
    net = Overlapping(0, 1)
    batcher, futures = queued(net, 0, 1, 3)
    wait(futures, timeout=LIMIT_SECONDS)
    close(batcher)
    events = [("begun", 0), ("begun", 1), ("answered", 0), ("begun", 3), ("answered", 1), ("answered", 3)]
    assert net.events == events
    assert batcher.passes == 3


def test_an_answer_is_taken_at_once_when_nothing_else_waits():
    net = Overlapping(0, 2)
    batcher = batcher_of(net)
    for number in range(3):
        assert np.array_equal(answer(batcher.submit(crop(0, number), "net-0")), 255 - crop(0, number))
    close(batcher)


def test_the_time_of_passes_that_overlap_is_counted_once():
    net = Overlapping(0, 1, seconds=0.02)
    begin = time.perf_counter()
    batcher, futures = queued(net, *(number for number in range(10) if number != 2))
    wait(futures, timeout=LIMIT_SECONDS)
    taken = time.perf_counter() - begin
    close(batcher)
    assert 9 * 0.02 <= batcher.busy_seconds <= taken
    assert sum(future.result().seconds for future in futures) == pytest.approx(batcher.busy_seconds)


def test_a_bad_face_of_a_pass_on_its_way_spares_its_neighbours_and_the_pass_behind_it():
    batcher, futures = queued(Overlapping(0, 3), *range(7))
    for number, future in enumerate(futures):
        if number == 2:
            with pytest.raises(NonFiniteOutputError):
                answer(future)
        else:
            assert np.array_equal(answer(future), 255 - crop(0, number))
    close(batcher)


def test_memory_that_ends_while_another_pass_is_on_its_way_halves_the_next_ones():
    class Large(Overlapping):
        def begin(self, crops):
            if len(crops) > 1:
                raise NetMemoryError("too large")
            return super().begin(crops)

    net = Large(0, 4)
    batcher, futures = queued(net, 0, 1, 3, 4, 5, 6, 7)
    for number, future in zip((0, 1, 3, 4, 5, 6, 7), futures, strict=True):
        assert np.array_equal(answer(future), 255 - crop(0, number))
    close(batcher)
    assert net.micro_batch == 1


def test_an_error_at_the_beginning_of_a_pass_reaches_its_faces_and_no_others():
    class Failing(Overlapping):
        def begin(self, crops):
            if crops[0, 0, 0, 2] == 1:
                raise DeviceError("lost")
            return super().begin(crops)

    batcher, futures = queued(Failing(0, 1), 0, 1, 3)
    with pytest.raises(DeviceError):
        answer(futures[1])
    assert [np.array_equal(answer(futures[index]), 255 - crop(0, number)) for index, number in ((0, 0), (2, 3))]
    close(batcher)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_face_without_a_finite_answer_spares_its_neighbours():
    gate = threading.Event()
    net = Net(0, 4)

    def load(name):
        gate.wait(LIMIT_SECONDS)
        return net

    batcher = Batcher(load)
    futures = [batcher.submit(crop(0, number, BAD * (number == 2)), "net-0") for number in range(4)]
    gate.set()
    for number, future in enumerate(futures):
        if number == 2:
            with pytest.raises(NonFiniteOutputError):
                answer(future)
        else:
            assert np.array_equal(answer(future), 255 - crop(0, number))
    close(batcher)


@pytest.mark.parametrize("error", [DeviceError("lost"), MemoryError(), ZeroDivisionError(), SystemExit(3)])
def test_an_error_of_a_net_reaches_every_face_of_its_pass_and_the_thread_lives_on(error):
    class Failing(Net):
        def run(self, crops):
            raise error

    batcher = batcher_of(Failing(0, 4), Net(1, 4))
    futures = [batcher.submit(crop(0, number), "net-0") for number in range(10)]
    for future in futures:
        with pytest.raises(type(error)):
            answer(future)
    assert np.array_equal(answer(batcher.submit(crop(1, 0), "net-1")), 255 - crop(1, 0))
    close(batcher)


def test_a_net_that_cannot_be_loaded_is_told_to_every_crop_that_wants_it_and_to_no_other():
    def load(name):
        if name == "net-0":
            raise WeightsError("damaged")
        return Net(1, 2)

    batcher = Batcher(load)
    futures = [batcher.submit(crop(0, number), "net-0") for number in range(5)]
    good = batcher.submit(crop(1, 9), "net-1")
    for future in futures:
        with pytest.raises(WeightsError, match="damaged"):
            answer(future)
    assert np.array_equal(answer(good), 255 - crop(1, 9))
    close(batcher)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_net_that_answers_too_few_or_too_many_is_an_error_not_a_wait_for_ever(count):
    class Miscounting(Net):
        def run(self, crops):
            return np.zeros((count, 4, 4, 3), np.uint8)

    batcher = batcher_of(Miscounting(0, 2))
    futures = [batcher.submit(crop(0, number), "net-0") for number in range(4)]
    wait(futures, timeout=LIMIT_SECONDS)
    close(batcher)
    assert [future.done() for future in futures] == [True] * 4
    assert count == 1 or all(isinstance(future.exception(), RuntimeError) for future in futures)


def test_nets_are_loaded_ahead_on_the_device_thread():
    loaded = threading.Event()
    names: list[tuple[str, str]] = []

    def load(name):
        names.append((name, threading.current_thread().name))
        if len(names) == 2:
            loaded.set()
        return Net(0, 1)

    batcher = Batcher(load, preload=("net-0", "net-1"))
    batcher.start()
    assert loaded.wait(LIMIT_SECONDS)
    close(batcher)
    assert names == [("net-0", "gpen-device"), ("net-1", "gpen-device")]


def test_a_crop_that_waits_comes_before_the_next_net_to_load():
    begun, gate = threading.Event(), threading.Event()
    names = []

    def load(name):
        names.append(name)
        begun.set()
        assert gate.wait(LIMIT_SECONDS)
        return Net(0, 1)

    batcher = Batcher(load, preload=("net-0", "net-1"))
    batcher.start()
    assert begun.wait(LIMIT_SECONDS)
    future = batcher.submit(crop(0, 0), "net-0")
    gate.set()
    answer(future)
    close(batcher)
    assert set(names) == {"net-0"}


def test_an_error_of_loading_ahead_is_met_by_the_first_crop():
    def load(name):
        raise WeightsError("damaged")

    batcher = Batcher(load, preload=("net-0",))
    batcher.start()
    with pytest.raises(WeightsError, match="damaged"):
        answer(batcher.submit(crop(0, 0), "net-0"))
    close(batcher)


# -- closing -----------------------------------------------------------------------------------------------------------


def test_closing_finishes_what_was_submitted():
    net = Net(0, 2, seconds=0.005)
    batcher = batcher_of(net)
    futures = [batcher.submit(crop(0, number), "net-0") for number in range(20)]
    close(batcher)
    assert all(np.array_equal(answer(future), 255 - crop(0, number)) for number, future in enumerate(futures))


def test_closing_with_cancel_drops_what_has_not_begun_and_nobody_waits():
    begun, gate = threading.Event(), threading.Event()

    class Slow(Net):
        def run(self, crops):
            begun.set()
            gate.wait(LIMIT_SECONDS)
            return super().run(crops)

    batcher = batcher_of(Slow(0, 1))
    futures = [batcher.submit(crop(0, number), "net-0") for number in range(6)]
    assert begun.wait(LIMIT_SECONDS)
    threading.Timer(0.05, gate.set).start()
    close(batcher, cancel=True)
    assert np.array_equal(answer(futures[0]), 255 - crop(0, 0)), "what had begun is finished"
    for future in futures[1:]:
        with pytest.raises(CancelledError):
            answer(future)


def test_a_crop_that_its_photo_no_longer_wants_is_not_run():
    net = Held(0, 2)
    begun, gate = net.begun, net.gate
    batcher = batcher_of(net)
    futures = [batcher.submit(crop(0, 0), "net-0")]
    assert begun.wait(LIMIT_SECONDS)
    futures += [batcher.submit(crop(0, number), "net-0") for number in (1, 2, 3)]
    assert futures[1].cancel()
    assert futures[2].cancel()
    gate.set()
    assert np.array_equal(answer(futures[3]), 255 - crop(0, 3))
    close(batcher)
    assert net.batches == [[0], [3]]


@pytest.mark.parametrize("cancel", [False, True])
def test_after_closing_nothing_is_taken_and_closing_again_does_no_harm(cancel):
    batcher = batcher_of(Net(0, 2))
    close(batcher, cancel=cancel)
    close(batcher, cancel=not cancel)
    with pytest.raises(CancelledError):
        batcher.submit(crop(0, 0), "net-0")


def test_closing_while_others_submit_leaves_no_future_open():
    for seed in range(20):
        rng = random.Random(seed)
        batcher = batcher_of(Net(0, 3, seconds=0.0003))
        futures: list[Future] = []

        def feed(batcher=batcher, futures=futures):
            for number in range(50):
                try:
                    futures.append(batcher.submit(crop(0, number), "net-0"))
                except CancelledError:
                    return

        feeders = [threading.Thread(target=feed) for _ in range(3)]
        for feeder in feeders:
            feeder.start()
        time.sleep(rng.random() * 0.01)
        close(batcher, cancel=rng.random() < 0.5)
        for feeder in feeders:
            feeder.join(LIMIT_SECONDS)
        assert all(future.done() for future in futures)


class SmallMemory(Net):
    """A device that holds so many faces at once, and no more."""

    def __init__(self, micro_batch: int, *, holds: int) -> None:
        super().__init__(1, micro_batch)
        self._holds = holds

    def run(self, crops: np.ndarray) -> np.ndarray:
        if len(crops) > self._holds:
            raise NetMemoryError(f"the memory does not hold {len(crops)} face(s) at once")
        return super().run(crops)


def test_a_batch_that_the_memory_does_not_hold_is_halved_and_stays_so(caplog):
    net = SmallMemory(8, holds=2)
    batcher = Batcher(lambda name: net)
    with caplog.at_level("WARNING"):
        results = [batcher.submit(crop(1, number), "net") for number in range(40)]
        answers = [result.result(LIMIT_SECONDS).pixels for result in results]
    batcher.close()
    assert all(np.array_equal(answer, 255 - crop(1, number)) for number, answer in enumerate(answers))
    assert net.micro_batch == 2
    assert max(map(len, net.batches)) == 2
    assert 1 <= len(caplog.records) <= 2, "said once for each halving, not for each batch"
    assert "2 face(s) a pass from here on" in caplog.text


def test_a_face_too_large_for_the_memory_is_that_photos_error():
    net = SmallMemory(4, holds=0)
    batcher = Batcher(lambda name: net)
    results = [batcher.submit(crop(1, number), "net") for number in range(6)]
    for result in results:
        with pytest.raises(NetMemoryError):
            result.result(LIMIT_SECONDS)
    batcher.close()
    assert net.micro_batch == 1


# -- the window -------------------------------------------------------------------------------------------------------


def test_an_announced_face_shares_the_pass_of_the_one_that_waits():
    net = Net(0, 2)
    batcher = Batcher({"net-0": net}.__getitem__, window=LIMIT_SECONDS)
    batcher.expect("b")
    first = batcher.submit(crop(0, 0), "net-0", owner="a")
    time.sleep(0.05)
    assert not first.done()
    answer(batcher.submit(crop(0, 1), "net-0", owner="b"))
    close(batcher)
    assert net.batches == [[0, 1]]


@pytest.mark.parametrize("net_size", [1, 2])
@pytest.mark.parametrize("window", [0.0, LIMIT_SECONDS])
def test_nothing_waits_for_faces_that_nobody_announced_nor_for_a_full_batch(net_size, window):
    net = Net(0, net_size)
    batcher = Batcher({"net-0": net}.__getitem__, window=window)
    if net_size == 1 or window == 0:
        batcher.expect("never comes")
    begin = time.monotonic()
    answer(batcher.submit(crop(0, 0), "net-0", owner="a"))
    assert time.monotonic() - begin < LIMIT_SECONDS / 2
    close(batcher)


def test_the_window_ends():
    net = Net(0, 2)
    batcher = Batcher({"net-0": net}.__getitem__, window=0.05)
    batcher.expect("never comes")
    answer(batcher.submit(crop(0, 0), "net-0", owner="a"))
    close(batcher)
    assert net.batches == [[0]]


@pytest.mark.parametrize("end", ["drop", "close"])
def test_who_went_away_is_waited_for_no_longer(end):
    net = Net(0, 2)
    batcher = Batcher({"net-0": net}.__getitem__, window=LIMIT_SECONDS)
    batcher.expect("gone")
    future = batcher.submit(crop(0, 0), "net-0", owner="a")
    time.sleep(0.02)
    begin = time.monotonic()
    if end == "drop":
        batcher.drop("gone")
        answer(future)
    close(batcher)
    assert future.done()
    assert time.monotonic() - begin < LIMIT_SECONDS / 2


# -- owners take turns -------------------------------------------------------------------------------------------------


class Gated:
    """Batchers whose device thread waits until everything is submitted, so that the order of the passes is the scheduler's."""

    def __init__(self, *nets: Net) -> None:
        self._gate = threading.Event()
        self._nets = {net.name: net for net in nets}
        self.batcher = Batcher(self._load)

    def _load(self, name):
        self._gate.wait(LIMIT_SECONDS)
        return self._nets[name]

    def run(self, futures):
        self._gate.set()
        wait(futures, timeout=LIMIT_SECONDS)
        close(self.batcher)


def test_one_face_does_not_wait_behind_sixty():
    net = Net(0, 1)
    gated = Gated(net)
    futures = [gated.batcher.submit(crop(0, number), "net-0", owner="sixty") for number in range(60)]
    futures.append(gated.batcher.submit(crop(0, 100), "net-0", owner="one"))
    gated.run(futures)
    order = [number for batch in net.batches for number in batch]
    assert order.index(100) <= 1
    assert [number for number in order if number < 60] == list(range(60)), "each owner's crops keep their order"


def test_owners_take_turns_and_share_passes():
    net = Net(0, 3)
    gated = Gated(net)
    futures = [
        gated.batcher.submit(crop(0, 10 * owner + number), "net-0", owner=owner)
        for owner in range(3)
        for number in range(3)
    ]
    gated.run(futures)
    assert net.batches == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]


def test_one_face_for_another_net_does_not_wait_behind_sixty_either():
    nets = [Net(0, 1), Net(1, 1)]
    gated = Gated(*nets)
    many = [gated.batcher.submit(crop(0, number), "net-0", owner="sixty") for number in range(60)]
    done_before: list[int] = []
    one = gated.batcher.submit(crop(1, 0), "net-1", owner="one")
    one.add_done_callback(lambda _: done_before.append(len(nets[0].batches)))
    gated.run([*many, one])
    assert done_before[0] <= 2


def test_a_stream_of_newcomers_does_not_overtake_who_waits():
    submitted = threading.Event()
    answered: list[int] = []

    class Busy(Net):
        def run(self, crops):
            submitted.wait(LIMIT_SECONDS)
            output = super().run(crops)
            number = self.batches[-1][0]
            answered.append(number)
            if len(answered) < 40:  # whenever one is done, two newcomers arrive
                for newcomer in (0, 1):
                    name = 1000 + 2 * len(answered) + newcomer
                    futures.append(batcher.submit(crop(0, name), "net-0", owner=name))
            return output

    futures: list[Future] = []
    batcher = batcher_of(Busy(0, 1))
    futures += [batcher.submit(crop(0, number), "net-0", owner="old") for number in range(5)]
    submitted.set()
    while len(answered) < 40:
        time.sleep(0.001)
    close(batcher)
    assert answered.index(2) <= 6, "the old owner's crops go on being served"
    assert len(answered) == len(futures)


def test_the_crops_of_an_owner_that_has_gone_are_not_run():
    net = Held(0, 2)
    begun, gate = net.begun, net.gate
    batcher = batcher_of(net)
    first = batcher.submit(crop(0, 0), "net-0", owner="a")
    assert begun.wait(LIMIT_SECONDS)
    gone = [batcher.submit(crop(0, number), "net-0", owner="gone") for number in range(10, 20)]
    stays = [batcher.submit(crop(0, number), "net-0", owner="stays") for number in (1, 2)]
    assert batcher.waiting == 12
    batcher.drop("gone")
    batcher.drop("never seen")
    assert batcher.waiting == 2
    gate.set()
    assert all(future.cancelled() for future in gone)
    for number, future in enumerate([first, *stays]):
        assert np.array_equal(answer(future), 255 - crop(0, number))
    close(batcher)
    assert net.batches == [[0], [1, 2]], "and they do not make the batches of others short"


def test_there_is_no_thread_before_there_is_work():
    """A stop signal between making a batcher and the ``try`` that closes it must not leave a thread (faults/test_stops.py)."""
    before = threading.active_count()
    batcher = Batcher(lambda name: Net(0, 1))
    assert threading.active_count() == before
    batcher.close()
    batcher.start()
    assert threading.active_count() == before


# -- several devices ---------------------------------------------------------------------------------------------------


def test_devices_share_one_queue_and_work_at_the_same_time():
    """Each pass waits for one of the other device: were there one thread, or two queues, nothing would come."""
    nets = [Net(0, 1), Net(0, 1)]
    together = threading.Barrier(2)
    ran_on: list[set[str]] = [set(), set()]

    def lane(number: int):
        def load(name: str):
            net = nets[number]
            run = type(net).run

            def meeting(crops):
                ran_on[number].add(threading.current_thread().name)
                together.wait(LIMIT_SECONDS)
                return run(net, crops)

            net.run = meeting
            return net

        return functools.cache(load)

    batcher = Batcher(lane(0), lane(1))
    futures = [batcher.submit(crop(0, number), "net-0", owner=number) for number in range(2)]
    for number, future in enumerate(futures):
        assert np.array_equal(answer(future), 255 - crop(0, number))
    close(batcher)
    assert ran_on == [{"gpen-device"}, {"gpen-device-1"}]
    assert (batcher.passes, batcher.crops_run) == (2, 2)
