"""TensorRT through onnxruntime: engines take minutes to build, so they are kept, and used only where they were built.

One folder an engine in the user's cache, named by everything that decides it: the model's content, shape, precision, GPU, and
versions. ``built.json`` in it is written last and lists the files with their hashes: what does not match is built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from gpen_cli.cache import cache_dir, read_json, sha256_of, write_json
from gpen_cli.errors import DeviceError
from gpen_cli.runtime.providers import failures, first_line, import_onnxruntime, open_session, provider_options

if TYPE_CHECKING:
    import onnxruntime

log = logging.getLogger(__name__)

_BUILT = "built.json"
_TIMING = ".timing"
"""TensorRT's notes on how fast its kernels are: they may grow, and decide nothing but how long a build takes."""
_KEY_DIGITS = 20
_SMI_SECONDS = 20.0
_DISTRIBUTIONS = ("tensorrt", "tensorrt-cu12", "tensorrt-cu13")


@dataclass(frozen=True)
class EngineKey:
    """Everything that decides an engine. shape: of the model's input, batch first; precision: ``fp16`` | ``fp32``, with ``int8+``
    before it for a file whose graph says what is int8.
    """

    model_sha256: str
    input_name: str
    shape: tuple[int, ...]
    precision: str
    gpu: str
    onnxruntime: str
    tensorrt: str

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:_KEY_DIGITS]


def describe_gpu(device_id: int) -> str:
    """Name, compute capability and driver of the GPU, as the driver's own tool says; ``unknown`` where it is not there."""
    fields = "name,compute_cap,driver_version"
    command = ["nvidia-smi", f"--id={device_id}", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip() or "unknown"


def tensorrt_version() -> str:
    """Of the installed Python package; ``system`` for a TensorRT that came another way."""
    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "system"


class EngineCache:
    """The folder of one engine."""

    def __init__(self, key: EngineKey) -> None:
        self.key = key
        self.folder = cache_dir() / "tensorrt" / key.digest()

    def options(self, *, device_id: int) -> dict[str, str]:
        """What the provider is told, besides its device."""
        shape = f"{self.key.input_name}:" + "x".join(str(side) for side in self.key.shape)
        folder = str(self.folder)
        return {
            **provider_options("tensorrt", device_id=device_id),
            "trt_fp16_enable": "1" if "fp16" in self.key.precision.split("+") else "0",
            "trt_int8_enable": "1" if "int8" in self.key.precision.split("+") else "0",
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": folder,
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": folder,
            # One shape, the only one a net is ever given; without it a free batch would be built at the first face.
            "trt_profile_min_shapes": shape,
            "trt_profile_opt_shapes": shape,
            "trt_profile_max_shapes": shape,
        }

    def prepare(self) -> bool:
        """Makes the folder; True when it holds a whole engine that was built here. What is not whole is thrown away."""
        built = read_json(self.folder / _BUILT)
        if built:
            if built.get("key") != json.loads(json.dumps(asdict(self.key))):
                log.warning(
                    "The TensorRT engine in %s was built on another machine or by other versions (%s); it is refused, and "
                    "built anew.", self.folder, _origin(built),
                )  # fmt: skip
            elif self._is_whole(built.get("files")):
                return True
            else:
                log.warning("The TensorRT engine in %s is damaged; it is built anew.", self.folder)
        self.discard()
        self.make_folder()
        return False

    def keep(self) -> None:
        """Writes down what was built, so that the next run can trust it. A cache that cannot be written costs only time."""
        kept = [path for path in sorted(self.folder.iterdir()) if path.name != _BUILT and path.suffix != _TIMING]
        files = {path.name: sha256_of(path) for path in kept}
        write_json(self.folder / _BUILT, {"key": asdict(self.key), "files": files})

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeviceError(
                f"--provider tensorrt keeps its engines in {self.folder}, which cannot be made: {error.strerror or error}; "
                "set GPEN_CACHE_DIR to a folder that can be written."
            ) from error

    def _is_whole(self, files: object) -> bool:
        if not isinstance(files, dict) or not files:
            return False
        try:
            return all(sha256_of(self.folder / str(name)) == digest for name, digest in files.items())
        except OSError:
            return False


def _origin(built: dict[str, object]) -> str:
    key = built.get("key")
    return (
        ", ".join(f"{name} {key.get(name)}" for name in ("gpu", "onnxruntime", "tensorrt"))
        if isinstance(key, dict)
        else "?"
    )


def open_tensorrt(
    model: Path,
    key: EngineKey,
    *,
    device_id: int,
    threads: int,
    warm_up: Callable[[onnxruntime.InferenceSession], None],
) -> onnxruntime.InferenceSession:
    """A session whose engine is built, or taken from the cache, and has run once. Raises DeviceError."""
    cache = EngineCache(key)
    errors = failures(import_onnxruntime())
    if cache.prepare():
        try:
            session = _open(model, cache, device_id=device_id, threads=threads, warm_up=warm_up)
        except errors as error:
            log.warning(
                "TensorRT does not take its engine from %s (%s); it is built anew.", cache.folder, first_line(error)
            )
            cache.discard()
            cache.make_folder()
        else:
            log.info("TensorRT: engine taken from %s", cache.folder)
            return session
    log.info("TensorRT builds an engine for this GPU; that takes minutes, and is done once.")
    begin = time.monotonic()
    try:
        session = _open(model, cache, device_id=device_id, threads=threads, warm_up=warm_up)
    except errors as error:
        cache.discard()
        raise DeviceError(
            f"--provider tensorrt: the engine could not be built ({first_line(error)}); give --provider cuda."
        ) from error
    log.info("TensorRT built its engine in %.0f s.", time.monotonic() - begin)
    cache.keep()
    return session


def _open(
    model: Path,
    cache: EngineCache,
    *,
    device_id: int,
    threads: int,
    warm_up: Callable[[onnxruntime.InferenceSession], None],
) -> onnxruntime.InferenceSession:
    told = [
        ("tensorrt", cache.options(device_id=device_id)),
        ("cuda", provider_options("cuda", device_id=device_id)),  # for what TensorRT does not take
    ]
    session = open_session(model, told, threads=threads)
    warm_up(session)
    return session
