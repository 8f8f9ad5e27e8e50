"""Many clients, one device: each answer is its request's, places come free, nobody holds up the others."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from stand_ins import StandInNet

from gpen_cli.serve import region
from serve.kit import BASE, FACE, HeldNet, negative, pixels_of, png, problem


def test_eight_clients_get_twenty_answers_each_all_their_own(serve):
    net = StandInNet(negative, micro_batch=4)
    server = serve(net)

    def client(number: int) -> int:
        right = 0
        for index in range(20):
            colour = (number * 30 + 5, index * 12 + 7, (number * 20 + index) % 250 + 1)
            answer = server.enhance(png(colour), name=f"{number}-{index}.png")
            pixels = pixels_of(answer.content)
            right += (
                np.array_equal(pixels[64, 64], 255 - np.array(colour))
                and np.array_equal(pixels[0, 0], colour)
                and f"{number}-{index}_enhanced.png" in answer.headers["content-disposition"]
            )
        return right

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(client, range(8))) == [20] * 8
    assert server.client.get("/status").json()["requests_inside"] == 0


def test_requests_share_forward_passes(serve):
    net = HeldNet(micro_batch=4)
    server = serve(net)
    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(server.enhance, png((1, 2, 3)))]
        assert net.begun.wait(10)
        futures += [pool.submit(server.enhance, png((10 * number, 2, 3))) for number in range(1, 5)]
        _until(lambda: server.studio.batcher.waiting == 4)
        net.gate.set()
        assert all(future.result().status_code == 200 for future in futures)
    assert net.passes == 2, "one face at once, then the four that had come meanwhile"


def test_a_face_waits_within_the_window_for_a_photo_that_is_being_read(serve, monkeypatch):
    """Each photo is searched only when both are inside; the first face found would have gone alone."""
    net = StandInNet(negative, micro_batch=2)
    server = serve(net, batch_window=10, warm=False)
    both, search = threading.Barrier(2), region.plan_photo

    def together(*arguments):
        both.wait(10)
        return search(*arguments)

    monkeypatch.setattr(region, "plan_photo", together)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(server.enhance, [png((10, 2, 3)), png((20, 2, 3))]))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert net.passes == 1


def test_a_client_that_goes_away_frees_its_place_and_its_crops(serve):
    net = HeldNet()
    server = serve(net, max_queue=2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.enhance)
        assert net.begun.wait(10)
        asyncio.run(asyncio.wait_for(_leave_while_working(server), 10))
        assert server.studio.batcher.waiting == 0, "its face is not restored for nobody"
        net.gate.set()
        assert first.result().status_code == 200
    assert net.crops == 1
    text = server.client.get("/metrics").text
    assert "gpen_upload_bytes 0" in text


async def _leave_while_working(server) -> None:
    """Talks ASGI itself: sends a whole request, waits until its face is queued, hangs up."""
    body, head = _multipart(png())
    queued = asyncio.Event()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if messages:
            return messages.pop(0)
        await queued.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def watch():
        while server.studio.batcher.waiting < 1:
            await asyncio.sleep(0.005)
        queued.set()

    watching = asyncio.ensure_future(watch())
    await asyncio.wait_for(server.client.app(_scope(head), receive, send), 10)
    await watching
    while (await asyncio.to_thread(server.client.get, "/status")).json()["requests_inside"] > 1:
        await asyncio.sleep(0.01)  # a server's loop does not end either


def test_a_client_that_hangs_up_during_its_upload_costs_nothing(serve):
    server = serve()
    body, head = _multipart(png())
    messages = [{"type": "http.request", "body": body[:100], "more_body": True}, {"type": "http.disconnect"}]

    async def run():
        async def receive():
            return messages.pop(0)

        async def send(message):
            pass

        await asyncio.wait_for(server.client.app(_scope(head), receive, send), 10)

    asyncio.run(run())
    text = server.client.get("/metrics").text
    assert "gpen_upload_bytes 0" in text
    assert 'gpen_requests_total{path="/enhance",status="499"} 1' in text
    assert server.enhance().status_code == 200


def test_a_slow_upload_is_ended(serve):
    server = serve(timeout=0.3)
    body, head = _multipart(png())
    sent: list[dict] = []

    async def run():
        messages = [{"type": "http.request", "body": body[:100], "more_body": True}]

        async def receive():
            if messages:
                return messages.pop(0)
            await asyncio.sleep(30)
            raise AssertionError("waited for ever")

        async def send(message):
            sent.append(message)

        await asyncio.wait_for(server.client.app(_scope(head), receive, send), 10)

    asyncio.run(run())
    assert sent[0]["status"] == 408
    assert b"too-slow" in sent[1]["body"]


def test_uploads_together_hold_no_more_than_their_memory(serve):
    server = serve(max_queue=1, max_upload=1000)

    async def run():
        body, head = _multipart(bytes(900))
        held = asyncio.Event()
        answers: dict[str, int] = {}

        def talk(name: str, parts: list[bytes], wait_before_last: asyncio.Event | None):
            messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
            messages[-1]["more_body"] = False

            async def receive():
                if len(messages) == 1 and wait_before_last is not None:
                    await wait_before_last.wait()
                return messages.pop(0) if messages else await asyncio.sleep(30)

            async def send(message):
                if message["type"] == "http.response.start":
                    answers[name] = message["status"]

            return server.client.app(_scope(head), receive, send)

        slow = asyncio.ensure_future(talk("slow", [body[:-50], body[-50:]], held))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(talk("other", [body], None), 10)
        held.set()
        await asyncio.wait_for(slow, 10)
        assert answers == {"other": 429, "slow": 400}

    asyncio.run(run())
    assert "gpen_upload_bytes 0" in server.client.get("/metrics").text


def test_the_server_answers_others_while_the_device_is_busy(serve):
    net = HeldNet()
    server = serve(net)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(server.enhance)
        assert net.begun.wait(10)
        begin = time.monotonic()
        assert server.client.get("/models").status_code == 200
        assert server.client.post("/detect", files={"image": ("a.png", png())}).status_code == 200
        problem(server.enhance(b"no picture"), 400, "not-a-picture")
        assert time.monotonic() - begin < 5
        net.gate.set()
        assert working.result().status_code == 200


def test_one_face_does_not_wait_behind_a_crowd(serve):
    order: list[str] = []
    lock = threading.Lock()

    class Noting(HeldNet):
        def run(self, crops):
            output = super().run(crops)
            with lock:
                order.append("one" if int(crops[0, 128, 128, 0]) > 128 else "crowd")
            return output

    net = Noting()
    server = serve(net)
    with ThreadPoolExecutor(2) as pool:
        crowd = pool.submit(server.enhance, png((10, 20, 30), size=(256, 128)))
        _until(lambda: net.begun.is_set() and server.studio.batcher.waiting == 1)
        one = pool.submit(server.enhance, png((200, 20, 30)))
        _until(lambda: server.studio.batcher.waiting == 2)
        net.gate.set()
        assert {crowd.result().status_code, one.result().status_code} == {200}
    assert order.index("one") <= 2
    assert FACE.score > 0.9


def _multipart(data: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    body = (
        b'--xyz\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n'
        b"Content-Type: image/png\r\n\r\n" + data + b"\r\n--xyz--\r\n"
    )
    head = [(b"host", BASE.removeprefix("http://").encode()), (b"content-type", b"multipart/form-data; boundary=xyz")]
    return body, head


def _scope(head: list[tuple[bytes, bytes]]) -> dict:
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/enhance", "raw_path": b"/enhance", "query_string": b"", "root_path": "", "headers": head,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 7860),
    }  # fmt: skip


def _until(true, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.01)
