"""Whether `gpen serve` goes on answering under abuse, on loopback and bounded: python benchmarks/serve_siege.py [--parallel 1000]

An honest client sends the example photo again and again while, one after another, come: clients killed in mid-upload, slow
connections, a zip bomb, a 10,000 × 10,000 px PNG, a body cut off, and many requests at once. Prints for each what it was
answered, and what the honest client saw meanwhile. Ends with 1 when the honest client ever waited for more than --patience.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import io
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from PIL import Image
from serve import KIND, ROOT, form_of, memory_of, serving

PHOTO = (ROOT / "examples" / "astronaut.jpg").read_bytes()
TIMEOUT = 120


def ask(port: int, data: bytes) -> str:
    """The status of one request, or how it broke off."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        line.request("POST", "/enhance?upscale=1", form_of(data), KIND)
        answer = line.getresponse()
        answer.read()
        return str(answer.status)
    except OSError as error:
        return type(error).__name__
    finally:
        line.close()


def raw(port: int, sent: bytes) -> socket.socket:
    """A connection on which so much was sent, and nothing is read."""
    line = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    line.sendall(sent)
    return line


BODY = form_of(PHOTO)
REQUEST = (
    f"POST /enhance HTTP/1.1\r\nHost: localhost\r\nContent-Type: {KIND['Content-Type']}\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n"
).encode() + BODY


def nobody(port: int) -> str:
    time.sleep(2)
    return ""


def killed(port: int) -> str:
    for _ in range(50):
        line = raw(port, REQUEST[:2000])
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, as by a kill
        line.close()
    return "50 gone"


def slow(port: int) -> str:
    lines = [raw(port, REQUEST[:1000]) for _ in range(200)]
    for at in range(1000, 1005):
        time.sleep(1)
        for line in lines:
            with contextlib.suppress(OSError):  # answered and closed already
                line.sendall(REQUEST[at : at + 1])
    for line in lines:
        line.close()
    return "200 held for 5 s"


def bomb(port: int) -> str:
    """A PNG of 30,000 × 30,000 px in a megabyte or less."""
    rows = zlib.compress(bytes(30_000 // 8 + 1) * 30_000, 9)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    ]
    return ask(port, b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def huge(port: int) -> str:
    stream = io.BytesIO()
    Image.new("RGB", (10_000, 10_000)).save(stream, "PNG")
    return ask(port, stream.getvalue())


def cut(port: int) -> str:
    return ", ".join([ask(port, PHOTO[: len(PHOTO) // 2]), ask(port, PHOTO[:20]), ask(port, b"")])


def crowd(port: int, count: int) -> str:
    with ThreadPoolExecutor(count) as pool:
        found = collections.Counter(pool.map(lambda _: ask(port, PHOTO), range(count)))
    return ", ".join(f"{times} × {status}" for status, times in sorted(found.items()))


def honest(port: int, end: threading.Event, seen: list[tuple[str, float]]) -> None:
    while not end.is_set():
        begin = time.perf_counter()
        seen.append((ask(port, PHOTO), time.perf_counter() - begin))


def under(port: int, name: str, attack: Callable[[int], str]) -> float:
    """Runs one attack beside the honest client; returns the longest the client waited, seconds."""
    end, seen = threading.Event(), list[tuple[str, float]]()
    client = threading.Thread(target=honest, args=(port, end, seen))
    client.start()
    answered = attack(port)
    time.sleep(0.5)
    end.set()
    client.join()
    statuses = collections.Counter(status for status, _ in seen)
    longest = max(seconds for _, seconds in seen)
    told = ", ".join(f"{times} × {status}" for status, times in sorted(statuses.items()))
    print(f"{name:28} {answered:44} honest client: {told}, {longest:.2f} s at most", flush=True)
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", type=int, default=1000, help="requests at once")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds that the honest client may wait")
    given = parser.parse_args()
    attacks: list[tuple[str, Callable[[int], str]]] = [
        ("nobody else", nobody),
        ("killed in mid-upload", killed),
        ("slow connections", slow),
        ("a zip bomb", bomb),
        ("10,000 × 10,000 px", huge),
        ("cut off: half, 20 bytes, none", cut),
        (f"{given.parallel} requests at once", lambda port: crowd(port, given.parallel)),
        ("nobody else, afterwards", nobody),
    ]
    with serving() as (process, port):
        ask(port, PHOTO)
        print(f"memory before: {memory_of(process):.0f} MB")
        longest = max(under(port, name, attack) for name, attack in attacks)
        print(f"memory after: {memory_of(process):.0f} MB")
    raise SystemExit(longest > given.patience)


if __name__ == "__main__":
    main()
