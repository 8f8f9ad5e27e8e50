"""Load on `gpen serve`, on loopback and bounded: python benchmarks/serve.py [--clients 8] [--requests 50] [--real] [--memory]

Every answer is checked against its request's own colour. Without --real the device is a stand-in whose pass costs a + b·n
seconds (--cost A B), once with the batch size given and once with 1, so that what batching gains is seen apart from any net.
--memory: sends requests until --requests × --clients are done and prints the process's memory on the way.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
BOUNDARY = "gpenload"
KIND = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
STAND_IN = """
import sys, time
sys.path[:0] = [{tests!r}]
from dataclasses import replace
from serve.kit import SeeingDetector, negative
from stand_ins import StandInNet, engine_of
from gpen_cli import engine
from gpen_cli.__main__ import run

class Device(StandInNet):
    def run(self, crops):
        time.sleep({a} + {b} * len(crops))
        return super().run(crops)

def build(options, **_):
    made = engine_of(Device(negative, micro_batch={batch}), detector=SeeingDetector())
    made.setup = replace(made.setup, micro_batch={batch})
    return made

engine.build_engine = build
run()
"""
AS_DRAWN = ["--guard", "off", "--color-fix", "none", "--sharp-faces", "restore"]


@contextlib.contextmanager
def serving(code: str | None = None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The server, by itself or by a stand-in's code, and its port; ended on leaving."""
    program = [sys.executable, "-c", code] if code else [sys.executable, "-m", "gpen_cli"]
    flags = ["serve", "--port", "0", "--quiet", *(AS_DRAWN if code else [])]
    process = subprocess.Popen([*program, *flags], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline().strip().rstrip("/").rsplit(":", 1)[1])
    finally:
        process.terminate()
        process.wait(60)


def form_of(data: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    return head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()


def colour_of(client: int, index: int) -> tuple[int, int, int]:
    return (client * 29 + 3) % 251, (index * 5 + 11) % 251, (client * 7 + index) % 250 + 1


def one_client(port: int, client: int, count: int, photo: bytes | None) -> list[float]:
    """Seconds of each request. Raises AssertionError when an answer is another's, or none."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    seconds = []
    for index in range(count):
        colour = colour_of(client, index)
        data = photo
        if data is None:
            stream = io.BytesIO()
            Image.new("RGB", (128, 128), colour).save(stream, "PNG")
            data = stream.getvalue()
        begin = time.perf_counter()
        line.request("POST", "/enhance?upscale=1", form_of(data), KIND)
        answer = line.getresponse()
        body = answer.read()
        seconds.append(time.perf_counter() - begin)
        assert answer.status == 200, (answer.status, body[:300])
        if photo is None:
            pixels = np.asarray(Image.open(io.BytesIO(body)))
            assert pixels[64, 64].tolist() == [255 - value for value in colour], "another request's answer"
    line.close()
    return seconds


def load(port: int, clients: int, count: int, photo: bytes | None) -> float:
    """Requests a second; prints the percentiles."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        each = list(pool.map(lambda client: one_client(port, client, count, photo), range(clients)))
    total = time.perf_counter() - begin
    seconds = np.array([value for one in each for value in one])
    rate = len(seconds) / total
    p50, p99 = np.percentile(seconds, [50, 99])
    print(f"  {len(seconds)} requests, none lost or mixed up: {rate:.2f} a second, p50 {p50:.3f} s, p99 {p99:.3f} s")
    return rate


def memory_of(process: subprocess.Popen[str]) -> float:
    """MB that the process holds."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) / 1000


def measured(code: str | None, flags: argparse.Namespace, photo: bytes | None) -> float:
    with serving(code) as (process, port):
        load(port, 1, 2, photo)
        if not flags.memory:
            return load(port, flags.clients, flags.requests, photo)
        rate = 0.0
        for part in range(5):
            rate = load(port, flags.clients, max(1, flags.requests // 5), photo)
            print(f"  memory after part {part + 1} of 5: {memory_of(process):.0f} MB")
        return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=50, help="of each client")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--cost", type=float, nargs=2, default=(0.03, 0.005), metavar=("A", "B"))
    parser.add_argument("--real", action="store_true", help="the real engine on examples/astronaut.jpg")
    parser.add_argument("--memory", action="store_true")
    flags = parser.parse_args()
    if flags.real:
        print("real engine")
        measured(None, flags, (ROOT / "examples" / "astronaut.jpg").read_bytes())
        return
    rates = []
    for batch in (1, flags.batch):
        a, b = flags.cost
        print(f"stand-in device, {a:g} + {b:g}·n s a pass, {batch} face(s) a pass")
        rates.append(measured(STAND_IN.format(tests=str(ROOT / "tests"), a=a, b=b, batch=batch), flags, None))
    print(f"batching gives {rates[1] / rates[0]:.2f} times the requests a second")


if __name__ == "__main__":
    main()
