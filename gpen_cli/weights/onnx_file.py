"""What an .onnx file says of itself, read without onnx, onnxruntime or torch; its seal, by which damage is seen.

An ONNX file is a protobuf message of fields one after the other: a number, a length, and so many bytes. The graph is one such
field and is stepped over, so that even 300 MB are read in no time. ``gpen export`` ends its files with one more metadata field,
the SHA-256 of everything before it: a file with one bit turned over would still load, and would draw another face.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO

from gpen_cli.errors import OutputError, UsageError, WeightsError
from gpen_cli.paths import exists, is_dir
from gpen_cli.photos.temporary import remove_leftovers, temporary_beside

KEY_PREFIX = "gpen."
SEAL_KEY = "gpen.sha256"
"""Metadata key of the seal, always the file's last field."""

# Field numbers of onnx.proto3: ModelProto and StringStringEntryProto.
_GRAPH, _METADATA = 7, 14
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types
_HEX_DIGITS = 64
_OPTIONAL = ("calibration", "linked")
"""Fields of ``OnnxExport`` that need not be there."""
_HASH_BLOCK = 1 << 22


@dataclass(frozen=True)
class OnnxExport:
    """What ``gpen export`` wrote down. io: ``float`` | ``uint8``; precision: ``fp32`` | ``fp16`` | ``int8``; crop_size in pixels.

    calibration: for int8, the faces that ``gpen quantize`` took the ranges from. linked: the weight file that has to lie beside
    the file, in which the graph finds its numbers; empty: they are in the file itself.
    """

    model: str
    crop_size: int
    template: str
    licence: str
    version: str
    source_sha256: str
    io: str
    precision: str
    calibration: str = ""
    linked: str = ""

    def metadata(self) -> dict[str, str]:
        """Key and value as the file holds them."""
        return {KEY_PREFIX + name: str(value) for name, value in vars(self).items() if value != ""}


def read_export(path: Path) -> OnnxExport | None:
    """What ``gpen export`` wrote into ``path``, its seal checked; None for an ONNX file that others made.

    Raises WeightsError for a file that is cut off, damaged, changed, or no ONNX file.
    """
    try:
        with path.open("rb") as file:
            metadata = _metadata(file, path)
            if not any(key.startswith(KEY_PREFIX) for key in metadata):
                return None
            _check_seal(file, path)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}; check the path.") from error
    try:
        values = {
            item.name: metadata[KEY_PREFIX + item.name]
            for item in fields(OnnxExport)
            if item.name != "crop_size" and (item.name not in _OPTIONAL or KEY_PREFIX + item.name in metadata)
        }
        return OnnxExport(crop_size=int(metadata[KEY_PREFIX + "crop_size"]), **values)
    except (KeyError, ValueError) as error:
        raise WeightsError(
            f"{path} lacks what gpen export writes into its files ({error}); export it again."
        ) from error


def check_target(target: Path, *, overwrite: bool) -> None:
    """That an .onnx file may be written there; leftovers of killed runs beside it are removed. Raises UsageError, OutputError."""
    if is_dir(target):
        raise UsageError(f"-o {target} is a folder; name a file in it.")
    if target.suffix.lower() != ".onnx":
        raise UsageError(f"-o {target} has to end in .onnx; rename it.")
    if not is_dir(target.parent):
        raise OutputError(f"The folder {target.parent} does not exist; make it, or name another file.")
    if exists(target) and not overwrite:
        try:
            ours = read_export(target) is not None
        except WeightsError:
            ours = False
        if not ours:
            raise UsageError(f"{target} exists and was not made by gpen; give --overwrite, or name another file.")
    remove_leftovers([target.parent])


@contextlib.contextmanager
def replacing(target: Path, model: bytes) -> Iterator[Path]:
    """A new file beside ``target`` that holds ``model``; it takes the target's name when the block ends without an error, else
    it is gone and what was there before stays. Raises OutputError.
    """
    temporary = temporary_beside(target)
    try:
        temporary.write_bytes(model)
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}; name another file.") from error
    finally:
        temporary.unlink(missing_ok=True)


def sealed(model: bytes) -> bytes:
    """A serialized ONNX model with its seal: still a valid ONNX model."""
    return model + _seal_field(hashlib.sha256(model).hexdigest())


def _seal_field(digest: str) -> bytes:
    entry = _bytes_field(_KEY, SEAL_KEY.encode()) + _bytes_field(_VALUE, digest.encode())
    return _bytes_field(_METADATA, entry)


def _bytes_field(number: int, content: bytes) -> bytes:
    """One protobuf field of fewer than 128 bytes."""
    return bytes([number << 3 | _BYTES, len(content)]) + content


def _check_seal(file: BinaryIO, path: Path) -> None:
    length = len(_seal_field("0" * _HEX_DIGITS))
    left = file.seek(0, io.SEEK_END) - length
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0 and (block := file.read(min(left, _HASH_BLOCK))):
        digest.update(block)
        left -= len(block)
    if file.read() != _seal_field(digest.hexdigest()):
        raise WeightsError(f"{path} was damaged or changed after gpen export wrote it; export it again.")


def _metadata(file: BinaryIO, path: Path) -> dict[str, str]:
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    if end == 0:
        raise WeightsError(f"{path} is empty; get it again.")
    found: dict[str, str] = {}
    has_graph = False
    try:
        for number, content in _fields(file, end, wanted=_METADATA):
            has_graph = has_graph or number == _GRAPH
            if number == _METADATA:
                entry = dict(_fields(io.BytesIO(content), len(content), wanted=None))
                found[entry.get(_KEY, b"").decode()] = entry.get(_VALUE, b"").decode()
    except EOFError as error:
        raise WeightsError(f"{path} is cut off, or no ONNX file; get it again.") from error
    except ValueError as error:
        raise WeightsError(f"{path} is damaged, or no ONNX file; get it again.") from error
    if not has_graph:
        raise WeightsError(f"{path} holds no net: it is no ONNX file; name another one.")
    return found


def _fields(file: BinaryIO, end: int, *, wanted: int | None) -> Iterator[tuple[int, bytes]]:
    """(number, content) of each field up to ``end``; content is read where the number is ``wanted`` (None: all), else empty.

    Raises EOFError where a field goes beyond the end, ValueError for what is no field.
    """
    while file.tell() < end:
        tag = _varint(file)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("no field number")
        if wire == _VARINT:
            _varint(file)
            yield number, b""
            continue
        if wire not in (_BYTES, _FIXED64, _FIXED32):
            raise ValueError("no wire type")
        length = _varint(file) if wire == _BYTES else 8 if wire == _FIXED64 else 4
        if file.tell() + length > end:
            raise EOFError
        if wire == _BYTES and wanted in (None, number):
            yield number, file.read(length)
        else:
            file.seek(length, io.SEEK_CUR)
            yield number, b""


def _varint(file: BinaryIO) -> int:
    """Raises EOFError, ValueError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("no number")
