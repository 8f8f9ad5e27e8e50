"""How waiting threads and the split of cores change a face's time: python benchmarks/threads.py [--weights FILE] [--repeats 20]

First table: OpenMP's waiting policy, alone and beside one busy thread (as a reader or writer is), each in a process of its own,
because the policy is read once. Second: one pass at a time on all cores against one pass a core at a time. Third: how long a
pass keeps another thread of Python's from running, through PyTorch's own loader of compiled nets and through gpen's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import cv2
import numpy as np

from gpen_cli.device import SPINS, Setup, cpu_count

EMBEDDED = Path(__file__).resolve().parent.parent / "pretrained_models" / "gpen-open-256.safetensors"
POLICIES = {
    "spin (libgomp's own)": {},
    "sleep at once": {"OMP_WAIT_POLICY": "PASSIVE"},
    f"spin {SPINS} turns (gpen's)": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": SPINS},
}


def seconds_a_face(run: object, repeats: int) -> float:
    times = []
    for _ in range(repeats + 3):
        begin = time.perf_counter()
        run()  # type: ignore[operator]
        times.append(time.perf_counter() - begin)
    return float(np.median(times[3:]))


class Busy:
    """A thread that computes without the interpreter's lock while it is open."""

    def __enter__(self) -> None:
        self._stop = False
        picture = np.random.RandomState(0).randint(0, 255, (2000, 2000, 3)).astype(np.uint8)
        cv2.setNumThreads(1)

        def work() -> None:
            while not self._stop:
                cv2.GaussianBlur(picture, (0, 0), 5)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def __exit__(self, *given: object) -> None:
        self._stop = True
        self._thread.join()


class Watch:
    """A thread of Python's that wakes every half millisecond while it is open; longest: seconds it was late at most."""

    def __enter__(self) -> Watch:
        self._stop, self.longest = False, 0.0

        def work() -> None:
            last = time.perf_counter()
            while not self._stop:
                time.sleep(0.0005)
                now = time.perf_counter()
                self.longest, last = max(self.longest, now - last), now

        self._thread = threading.Thread(target=work)
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._stop = True
        self._thread.join()


def pauses(weights: Path, repeats: int) -> None:
    """One process's part: prints the longest pause with the eager net, PyTorch's own loader, and gpen's, s."""
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    from gpen_cli.models.stylegan2 import fold_constants
    from gpen_cli.runtime.aoti import CompiledLibrary, library_in
    from gpen_cli.runtime.crops import UInt8Pass
    from gpen_cli.weights.load import load_gpen

    torch.set_num_threads(1)
    net = load_gpen(weights)
    fold_constants(net, torch.bfloat16)
    plain = UInt8Pass(net.eval().requires_grad_(False), torch.bfloat16)
    size = net.config.size
    crops = torch.randint(0, 255, (1, size, size, 3), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        package, library = Path(folder, "net.pt2"), Path(folder, "net.so")
        aoti_compile_and_package(torch.export.export(plain, (crops,)), package_path=str(package))
        library_in(package, library)
        runs = (plain, aoti_load_package(str(package)), CompiledLibrary(library, tuple(crops.shape)))
        for run in runs:
            for _ in range(3):
                run(crops)
            with Watch() as watch:
                for _ in range(repeats):
                    run(crops)
            print(watch.longest)


def child(weights: Path, runtime: str, threads: int, repeats: int, lanes: int) -> None:
    """One process's part: prints seconds a face."""
    import torch

    from gpen_cli.runtime.torch_gpen import TorchGpen
    from gpen_cli.weights.find import from_path

    torch.set_num_threads(threads)
    setup = Setup("cpu", "bf16", 1, threads, runtime=runtime, compiled=runtime == "compiled")
    nets = [TorchGpen(from_path(weights), setup) for _ in range(lanes)]
    crops = np.random.RandomState(0).randint(0, 255, (1, nets[0].crop_size, nets[0].crop_size, 3)).astype(np.uint8)
    if lanes == 1:
        alone = seconds_a_face(lambda: nets[0].run(crops), repeats)
        with Busy():
            busy = seconds_a_face(lambda: nets[0].run(crops), repeats)
        print(f"{alone} {busy}")
        return

    def work(net: TorchGpen, count: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(count):
            net.run(crops)

    for count in (3, repeats):
        begin = time.perf_counter()
        workers = [threading.Thread(target=work, args=(net, count)) for net in nets]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    print((time.perf_counter() - begin) / (repeats * lanes))


def ask(
    given: argparse.Namespace, environment: dict[str, str], *, runtime: str, threads: int, lanes: int
) -> list[float]:
    """Runs ``child`` in a process with these variables."""
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [sys.executable, __file__, "--weights", str(given.weights), "--repeats", str(given.repeats)]
    command += ["--child", runtime, str(threads), str(lanes)]
    done = subprocess.run(command, env={**clean, **environment}, check=True, capture_output=True, text=True)
    return [float(value) for value in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=EMBEDDED)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--child", nargs=3, metavar=("RUNTIME", "THREADS", "LANES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        runtime, threads, lanes = given.child
        if runtime == "pauses":
            pauses(given.weights, given.repeats)
            return
        child(given.weights, runtime, int(threads), given.repeats, int(lanes))
        return
    cores = cpu_count()
    print(f"{given.weights.name}, bf16, {cores} cores, s a face (median of {given.repeats})\n")
    print("| waiting threads | eager, alone | beside a busy thread | compiled, alone | beside a busy thread |")
    print("|---" * 5 + "|")
    for name, environment in POLICIES.items():
        cells = [
            value
            for runtime in ("eager", "compiled")
            for value in ask(given, environment, runtime=runtime, threads=cores, lanes=1)
        ]
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in cells) + " |", flush=True)
    print("\n| passes at a time | eager | compiled |\n" + "|---" * 3 + "|")
    own = POLICIES[f"spin {SPINS} turns (gpen's)"]
    splits = ((f"1, on {cores} threads", cores, 1), (f"{cores}, on 1 thread each", 1, cores), ("1, on 1 thread", 1, 1))
    for name, threads, lanes in splits:
        cells = [ask(given, own, runtime=runtime, threads=threads, lanes=lanes)[0] for runtime in ("eager", "compiled")]
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in cells) + " |", flush=True)
    print("\n| the net | longest pause of another thread, ms |\n" + "|---" * 2 + "|")
    names = ("eager", "compiled, PyTorch's loader", "compiled, gpen's")
    for name, pause in zip(names, ask(given, own, runtime="pauses", threads=1, lanes=1), strict=True):
        print(f"| {name} | {1e3 * pause:.0f} |")


if __name__ == "__main__":
    main()
