"""A pass that AOTInductor compiled, called through the C interface of its library (``aoti_runtime/interface.h`` of PyTorch).

Not through PyTorch's own loader, because that keeps Python's lock for the whole pass: no other thread reads, writes or answers
a request meanwhile (measured: 75 ms gaps, and 3 ms this way). It also spares the import of the compiler and a copy of the library
in the system's temporary folder. ctypes lets go of the lock while it is inside.
"""

from __future__ import annotations

import ctypes
import sys
import zipfile
from pathlib import Path

import torch
from torch import Tensor

_Handle = ctypes.c_void_p
_OUTPUTS = 2
"""Pixels, and whether every number was finite (``crops.UInt8Pass``)."""


class CompiledLibrary:
    """A ``Pass`` of one shape on the CPU. path: the library, as ``library_in`` took it out of a package; shape: (N, S, S, 3).

    Any number of them may run at once, each on one thread. They stay loaded until the process ends. Raises OSError or
    AttributeError for a file that is no such library, RuntimeError when it cannot be set up.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._torch = ctypes.CDLL(str(_libtorch()))
        self._library = ctypes.CDLL(str(path))
        try:
            self._set_up()
        except Exception:
            _close(self._library)  # else the next file of that name would be taken for this one
            raise

    def _set_up(self) -> None:
        self._run = self._library.AOTInductorModelContainerRun
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._run.argtypes = (_Handle, pointer, size, pointer, size, pointer, pointer)
        self._container = _Handle()
        create = self._library.AOTInductorModelContainerCreateWithDevice
        create.argtypes = (pointer, size, ctypes.c_char_p, ctypes.c_char_p)
        self._check(create(ctypes.byref(self._container), 1, b"cpu", None))
        count = size()
        self._check(self._library.AOTInductorModelContainerGetNumOutputs(self._container, ctypes.byref(count)))
        if count.value != _OUTPUTS:
            raise RuntimeError(f"the compiled net gives {count.value} outputs")

    def __call__(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        """Raises ValueError for another shape or type than that it was compiled for, RuntimeError when the pass fails."""
        if tuple(crops.shape) != self._shape or crops.dtype != torch.uint8:
            raise ValueError(f"crops are {tuple(crops.shape)} {crops.dtype}; compiled for {self._shape} uint8")
        crops = crops.contiguous()
        inputs, outputs = (_Handle * 1)(self._tensor(crops)), (_Handle * _OUTPUTS)()
        self._check(self._run(self._container, inputs, 1, outputs, _OUTPUTS, None, None))  # takes the inputs over
        pixels, finite = torch.empty_like(crops), torch.empty((), dtype=torch.bool)
        for handle, into in zip(outputs, (pixels, finite), strict=True):
            self._copy(handle, into)
        return pixels, finite

    def _tensor(self, crops: Tensor) -> int | None:
        """A handle of a tensor over the same memory."""
        whole = ctypes.c_int64 * crops.ndim
        handle, torch_ = _Handle(), self._torch
        code = torch_.aoti_torch_create_tensor_from_blob(
            ctypes.c_void_p(crops.data_ptr()), ctypes.c_int64(crops.ndim), whole(*crops.shape), whole(*crops.stride()),
            ctypes.c_int64(0), torch_.aoti_torch_dtype_uint8(), torch_.aoti_torch_device_type_cpu(), 0, ctypes.byref(handle),
        )  # fmt: skip
        self._check(code)
        return handle.value

    def _copy(self, handle: int | None, into: Tensor) -> None:
        """Takes what the tensor of ``handle`` holds, contiguous and of one byte a number, and frees it."""
        there, count = ctypes.c_void_p(), ctypes.c_int64()
        try:
            self._check(self._torch.aoti_torch_get_numel(_Handle(handle), ctypes.byref(count)))
            if count.value != into.numel():
                raise RuntimeError(f"the compiled net gave {count.value} numbers instead of {into.numel()}")
            self._check(self._torch.aoti_torch_get_data_ptr(_Handle(handle), ctypes.byref(there)))
            ctypes.memmove(into.data_ptr(), there.value or 0, into.numel())
        finally:
            self._torch.aoti_torch_delete_tensor_object(_Handle(handle))

    def _check(self, code: int) -> None:
        if code != 0:
            told = getattr(self._library, "AOTInductorGetLastError", None)  # not before torch 2.9 or so
            if told is not None:
                told.restype = ctypes.c_char_p
            text = told() if told is not None else None
            raise RuntimeError((text or b"the compiled net failed").decode(errors="replace"))


def library_in(package: Path, into: Path) -> None:
    """Takes the one library out of an AOTInductor package (a zip file). Raises OSError, RuntimeError."""
    with zipfile.ZipFile(package) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        if len(libraries) != 1:
            raise RuntimeError(f"the package holds {len(libraries)} libraries")
        into.write_bytes(archive.read(libraries[0]))


def _close(library: ctypes.CDLL) -> None:
    close = getattr(ctypes.CDLL(None), "dlclose", None) if sys.platform != "win32" else None
    if close is not None:
        close.argtypes = (ctypes.c_void_p,)
        close(library._handle)


def _libtorch() -> Path:
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    return Path(torch.__file__).parent / "lib" / name
