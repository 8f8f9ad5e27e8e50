"""A stand-in for onnxruntime that records what sessions are told, and plays machines this one is not."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
ERRORS = (
    "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile",
    "NotImplemented", "RuntimeException",
)  # fmt: skip


class Fail(Exception):  # noqa: N818  onnxruntime's spelling
    """onnxruntime's own errors are no RuntimeErrors in every version."""


class StubOnnxruntime(ModuleType):
    """available: what the build lists; broken: providers whose libraries do not load; builds: how engine builds end, in order."""

    __version__ = "1.99.0"

    def __init__(self, *available: str, broken: tuple[str, ...] = (), side: int = 64) -> None:
        super().__init__("onnxruntime")
        self.available = [*available, CPU]
        self.broken = broken
        self.side = side
        self.builds: list[str] = []
        self.sessions: list[Session] = []
        self.capi = SimpleNamespace(onnxruntime_pybind11_state=SimpleNamespace(**dict.fromkeys(ERRORS, Fail)))
        self.SessionOptions = SessionOptions
        self.taken: list[tuple[str, int, tuple[int, ...]]] = []
        self.OrtValue = SimpleNamespace(
            ortvalue_from_numpy=lambda array, device, number: OrtValue(self, array.copy(), device, number),
            ortvalue_from_shape_and_type=lambda shape, dtype, device, number: OrtValue(
                self, np.zeros(shape, dtype), device, number
            ),
        )

    def get_available_providers(self) -> list[str]:
        return list(self.available)

    def get_all_providers(self) -> list[str]:
        return [TENSORRT, CUDA, "CoreMLExecutionProvider", "OpenVINOExecutionProvider", CPU]

    def InferenceSession(self, source, options, *, providers, enable_fallback):  # noqa: N802  onnxruntime's spelling
        assert enable_fallback == 0, "onnxruntime would go on with the CPU by itself"
        session = Session(self, source, options, providers)
        self.sessions.append(session)
        return session

    def on(self, provider: str) -> list[Session]:
        """The sessions of nets (not of probes) whose first provider it was."""
        return [item for item in self.sessions if item.providers[0][0] == provider and isinstance(item.source, str)]


class OrtValue:
    """Memory of a device; taking it is recorded."""

    def __init__(self, stub: StubOnnxruntime, array: np.ndarray, device: str, number: int) -> None:
        self.array = array
        stub.taken.append((device, number, array.shape))

    def update_inplace(self, array: np.ndarray) -> None:
        assert array.shape == self.array.shape
        self.array = array.copy()

    def numpy(self) -> np.ndarray:
        return self.array.copy()


class Binding:
    def __init__(self) -> None:
        self.inputs: dict[str, OrtValue] = {}
        self.outputs: dict[str, OrtValue] = {}

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        self.inputs[name] = value

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        self.outputs[name] = value


class SessionOptions:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value


class Session:
    """Hands its input through."""

    def __init__(self, stub: StubOnnxruntime, source, options, providers) -> None:
        self.source, self.options, self.providers = source, options, providers
        self._stub = stub
        self.fallback = True
        if isinstance(source, str) and providers[0][0] == TENSORRT:
            self._build(Path(providers[0][1]["trt_engine_cache_path"]))

    def _build(self, folder: Path) -> None:
        engine = folder / "TensorrtExecutionProvider_1_sm90.engine"
        assert folder.is_dir(), "TensorRT makes no folders"
        if engine.exists():
            if engine.read_bytes() == b"refused":
                raise Fail("TensorRT EP failed to deserialize the engine\nwith a stack")
            return
        play = self._stub.builds.pop(0) if self._stub.builds else "build"
        if play == "fail":
            engine.write_bytes(b"half")
            raise Fail("TensorRT EP could not build the engine\nwith a stack")
        engine.write_bytes(b"refused" if play == "build one it will refuse" else b"engine")
        (folder / "TensorrtExecutionProvider_cache_sm90.timing").write_bytes(b"times")

    def get_providers(self) -> list[str]:
        return [name for name, _ in self.providers if name not in self._stub.broken] + [CPU]

    def disable_fallback(self) -> None:
        self.fallback = False

    def get_inputs(self):
        side = self._stub.side
        return [SimpleNamespace(name="input", type="tensor(float)", shape=["batch", 3, side, side])]

    def get_outputs(self):
        side = self._stub.side
        return [SimpleNamespace(name="output", type="tensor(float)", shape=["batch", 3, side, side])]

    def run(self, names, feed) -> list[np.ndarray]:
        assert self.providers[0][0] not in (CUDA, TENSORRT), "a GPU's input and output are bound"
        return [feed["input"]]

    def io_binding(self) -> Binding:
        return Binding()

    def run_with_iobinding(self, binding: Binding) -> None:
        binding.outputs["output"].array = binding.inputs["input"].array
