"""TIFF directories, the form EXIF blocks and TIFF files share: read in place, changed by appending.

A changed directory is written anew at the end and linked; nothing that was there moves. So values we do not understand
stay as they are, and MakerNotes keep their offsets, which cameras count from the start of the block.
Layout: TIFF 6.0, section 2 (Adobe, 1992); EXIF 2.32 (CIPA DC-008).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

BYTE, ASCII, SHORT, LONG, UNDEFINED = 1, 2, 3, 4, 7
_VALUE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}

ORIENTATION, SOFTWARE, EXIF_DIRECTORY = 0x0112, 0x0131, 0x8769

EMPTY_BLOCK = b"II*\0\x08\0\0\0\0\0\0\0\0\0"
"""A block with one directory that holds nothing."""


@dataclass(frozen=True)
class Entry:
    """One tag of a directory. field: the four bytes as stored: the value itself when it fits, else its offset."""

    tag: int
    kind: int
    count: int
    field: bytes

    @property
    def value_bytes(self) -> int:
        """Length of the whole value in bytes."""
        return _VALUE_BYTES[self.kind] * self.count


class Block:
    """An EXIF block or a (classic) TIFF file.

    Raises ``ValueError`` on anything that does not hold together; never reads outside its bytes.
    """

    def __init__(self, data: bytes) -> None:
        order = {b"II*\0": "<", b"MM\0*": ">"}.get(bytes(data[:4]))
        if order is None or len(data) < 8:
            raise ValueError("no TIFF header")
        self._order = order
        self._data = bytearray(data)

    def __len__(self) -> int:
        return len(self._data)

    def tobytes(self) -> bytes:
        """The block as it stands."""
        return bytes(self._data)

    @property
    def byte_order(self) -> str:
        """``<`` or ``>``, as in ``struct``."""
        return self._order

    @property
    def first(self) -> int:
        """Offset of the first directory."""
        return int(self._unpack("I", 4)[0])

    def link_first(self, offset: int) -> None:
        """Makes the directory at ``offset`` the first one."""
        struct.pack_into(self._order + "I", self._data, 4, offset)

    def read_directory(self, offset: int) -> tuple[dict[int, Entry], int]:
        """Entries by tag, and the offset of the next directory (0: none). Entries that point outside are left out."""
        (count,) = self._unpack("H", offset)
        entries: dict[int, Entry] = {}
        for at in range(offset + 2, offset + 2 + 12 * count, 12):
            tag, kind, length = self._unpack("HHI", at)
            entry = Entry(tag, kind, length, bytes(self._data[at + 8 : at + 12]))
            if kind in _VALUE_BYTES and len(entry.field) == 4 and self._holds(entry):
                entries[tag] = entry
        end = offset + 2 + 12 * count
        follower = int(self._unpack("I", end)[0]) if end + 4 <= len(self._data) else 0
        return entries, follower

    def value(self, entry: Entry) -> bytes:
        """The value's bytes, in the block's byte order."""
        if entry.value_bytes <= 4:
            return entry.field[: entry.value_bytes]
        start = self._offset(entry)
        return bytes(self._data[start : start + entry.value_bytes])

    def numbers(self, entry: Entry) -> tuple[int, ...]:
        """The values of a BYTE, SHORT or LONG tag."""
        code = {BYTE: "B", SHORT: "H", LONG: "I"}.get(entry.kind)
        if code is None:
            raise ValueError(f"tag {entry.tag} holds no whole numbers")
        return struct.unpack(f"{self._order}{entry.count}{code}", self.value(entry))

    def entry(self, tag: int, kind: int, value: bytes | Iterable[int]) -> Entry:
        """A new entry; a value longer than four bytes is appended to the block."""
        if not isinstance(value, bytes):
            code = {BYTE: "B", SHORT: "H", LONG: "I"}[kind]
            numbers = tuple(value)
            value = struct.pack(f"{self._order}{len(numbers)}{code}", *numbers)
        count = len(value) // _VALUE_BYTES[kind]
        if len(value) <= 4:
            return Entry(tag, kind, count, value.ljust(4, b"\0"))
        return Entry(tag, kind, count, struct.pack(self._order + "I", self.append(value)))

    def append(self, value: bytes) -> int:
        """Puts bytes at the end (on an even offset, as TIFF asks) and returns where they begin."""
        self._data += b"\0" * (len(self._data) % 2)
        start = len(self._data)
        if start + len(value) >= 2**32:
            raise ValueError("too large for a TIFF file")
        self._data += value
        return start

    def append_directory(self, entries: dict[int, Entry], *, follower: int = 0) -> int:
        """Writes a directory, its tags in order, and returns its offset."""
        rows = [
            struct.pack(self._order + "HHI", entry.tag, entry.kind, entry.count) + entry.field
            for _, entry in sorted(entries.items())
        ]
        head, tail = struct.pack(self._order + "H", len(rows)), struct.pack(self._order + "I", follower)
        return self.append(head + b"".join(rows) + tail)

    def erase(self, start: int, length: int) -> None:
        """Overwrites bytes with zeros, or cuts them off where they are the last of the block."""
        if start < 8 or length <= 0 or start + length > len(self._data):
            return
        if start + length == len(self._data):
            del self._data[start:]
        else:
            self._data[start : start + length] = bytes(length)

    def _unpack(self, codes: str, offset: int) -> tuple[int, ...]:
        codes = self._order + codes
        if offset < 0 or offset + struct.calcsize(codes) > len(self._data):
            raise ValueError("a directory lies outside the block")
        return struct.unpack_from(codes, self._data, offset)

    def _offset(self, entry: Entry) -> int:
        return int(struct.unpack(self._order + "I", entry.field)[0])

    def _holds(self, entry: Entry) -> bool:
        return entry.value_bytes <= 4 or self._offset(entry) + entry.value_bytes <= len(self._data)
