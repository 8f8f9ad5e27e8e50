"""What travels with a picture besides its pixels: EXIF and XMP made true for the output, and our own mark in them.

Kept: date, place, camera, lens, authors, MakerNotes, everything unknown. Made true: orientation (1: pixels are
upright), dimensions. Dropped: thumbnails of the old picture, pointers to gain maps and videos that are not there.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator

from gpen_cli import __version__
from gpen_cli.photos.captions import Captions, caption_description
from gpen_cli.photos.formats import HEAD_BYTES, sniff
from gpen_cli.photos.ifd import (
    ASCII,
    EMPTY_BLOCK,
    EXIF_DIRECTORY,
    LONG,
    ORIENTATION,
    SHORT,
    SOFTWARE,
    UNDEFINED,
    Block,
    Entry,
)

PROVENANCE = f"gpen {__version__}"
"""Our mark: EXIF Software, XMP CreatorTool and PNG text of every output that can hold one."""

EXIF_PREFIX = b"Exif\0\0"
XMP_KEYWORD = b"XML:com.adobe.xmp"
_JPEG_XMP_PREFIX = b"http://ns.adobe.com/xap/1.0/\0"

_IMAGE_WIDTH, _IMAGE_LENGTH = 0x0100, 0x0101
_EXIF_VERSION, _PIXEL_X, _PIXEL_Y = 0x9000, 0xA002, 0xA003
_PADDING = 0xEA1C  # Windows Explorer's room for edits: kilobytes of zeros, useless in a new block
_STRIP_OFFSETS, _STRIP_COUNTS, _THUMB_OFFSET, _THUMB_BYTES = 0x0111, 0x0117, 0x0201, 0x0202

# IPTC's term for a photo partly made by a trained model (NewsCodes, digitalsourcetype, 2024).
_SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/compositeWithTrainedAlgorithmicMedia"


def read_orientation(exif: bytes | None) -> int:
    """EXIF orientation, 1 to 8; 1 when there is none or it makes no sense."""
    try:
        block = Block(exif or EMPTY_BLOCK)
        entries, _ = block.read_directory(block.first)
        values = block.numbers(entries[ORIENTATION]) if ORIENTATION in entries else ()
    except ValueError:
        return 1
    return values[0] if values and 1 <= values[0] <= 8 else 1


def exif_for_output(exif: bytes | None, *, size: tuple[int, int]) -> tuple[bytes, tuple[str, ...]]:
    """The EXIF block of an output of ``size`` (width, height), and warnings. A broken block is replaced by our own."""
    if exif:
        try:
            return _patched(exif, size), ()
        except ValueError:
            warning = "the EXIF data (date, camera, place) is damaged and was left out."
            return _patched(EMPTY_BLOCK, size), (warning,)
    return _patched(EMPTY_BLOCK, size), ()


def _patched(exif: bytes, size: tuple[int, int]) -> bytes:
    block = Block(exif)
    main, thumbnail = block.read_directory(block.first)
    _erase_thumbnail(block, thumbnail)
    details: dict[int, Entry] = {}
    if EXIF_DIRECTORY in main:
        details, _ = block.read_directory(block.numbers(main[EXIF_DIRECTORY])[0])
    details.setdefault(_EXIF_VERSION, block.entry(_EXIF_VERSION, UNDEFINED, b"0232"))
    details[_PIXEL_X] = block.entry(_PIXEL_X, LONG, [size[0]])
    details[_PIXEL_Y] = block.entry(_PIXEL_Y, LONG, [size[1]])
    software = block.value(main[SOFTWARE]) if SOFTWARE in main else b""
    main[ORIENTATION] = block.entry(ORIENTATION, SHORT, [1])
    main[SOFTWARE] = block.entry(SOFTWARE, ASCII, _marked(software.rstrip(b"\0 ")) + b"\0")
    for tag, length in ((_IMAGE_WIDTH, size[0]), (_IMAGE_LENGTH, size[1])):
        if tag in main:
            main[tag] = block.entry(tag, LONG, [length])
    for entries in (main, details):
        entries.pop(_PADDING, None)
    main[EXIF_DIRECTORY] = block.entry(EXIF_DIRECTORY, LONG, [block.append_directory(details)])
    block.link_first(block.append_directory(main))
    return block.tobytes()


def _marked(before: bytes) -> bytes:
    """Our mark followed by what made the picture before us; a second run does not mark twice."""
    ours = PROVENANCE.encode()
    if _is_ours(before):
        _, found, earlier = before.partition(b" (after ")
        return ours + (found + earlier if found else b"")
    return ours + b" (after " + before + b")" if before else ours


def _is_ours(software: bytes) -> bool:
    return re.match(rb"gpen \d", software) is not None


def _erase_thumbnail(block: Block, offset: int) -> None:
    """Removes the bytes of the old picture's thumbnail; its directory is no longer linked by the new one."""
    try:
        entries, _ = block.read_directory(offset) if offset else ({}, 0)
        for where, length in ((_THUMB_OFFSET, _THUMB_BYTES), (_STRIP_OFFSETS, _STRIP_COUNTS)):
            if where in entries and length in entries:
                starts, lengths = block.numbers(entries[where]), block.numbers(entries[length])
                for start, count in zip(starts, lengths, strict=False):  # a broken pair of lists erases what it names
                    block.erase(start, count)
    except ValueError:
        return  # a broken thumbnail directory: unlinked, so nobody will follow it


_STALE_XMP = re.compile(
    rb"\s(?:hdrgm|HDRGainMap|GCamera|xmpNote):\w+\s*=\s*(?:\"[^\"]*\"|'[^']*')"
    rb"|<Container:Directory\b.*?</Container:Directory>"
    rb"|<(?:xmp|xap):Thumbnails\b.*?</(?:xmp|xap):Thumbnails>",
    re.DOTALL,
)


def _xmp_property(name: bytes) -> re.Pattern[bytes]:
    """Matches ``name="value"`` and ``<name>value</name>``; groups: what stands before the value, the value."""
    return re.compile(rb"(\b" + name + rb"\s*=\s*[\"']|<" + name + rb"(?:\s[^>]*[^/>])?>)([^<\"']*)")


_TOOL = _xmp_property(rb"(?:xmp|xap):CreatorTool")


def xmp_for_output(
    xmp: bytes | None, *, size: tuple[int, int], made_from: str | None = None, captions: Captions | None = None
) -> bytes:
    """The XMP packet of an output of ``size`` (width, height): a new one, or the old one made true and marked.

    made_from: digest of the photo's file (``digest_of``), by which a later run tells results of this photo from those of another.
    captions: what the photo says in other forms than XMP.
    """
    origin = b"" if made_from is None else _ORIGIN % made_from.encode()
    origin += caption_description(captions or {}, xmp or b"")
    if xmp is None or b"</rdf:RDF>" not in xmp:  # nothing there, or nothing we could mark (UTF-16, cut off)
        return _NEW_PACKET % (_description(tool=True, source=True) + origin)
    packet = _OLD_ORIGIN.sub(b"", _STALE_XMP.sub(b"", xmp))
    truths = (
        (rb"tiff:Orientation", 1),
        (rb"tiff:ImageWidth", size[0]),
        (rb"tiff:ImageLength", size[1]),
        (rb"exif:PixelXDimension", size[0]),
        (rb"exif:PixelYDimension", size[1]),
    )
    for name, value in truths:
        packet = _xmp_property(name).sub(rb"\g<1>%d" % value, packet)
    missing = _description(tool=_TOOL.search(packet) is None, source=b"DigitalSourceType" not in packet)
    packet = _TOOL.sub(lambda match: match[1] + _marked(match[2]), packet)
    head, tail = packet.rsplit(b"</rdf:RDF>", 1)
    return head + missing + origin + b"</rdf:RDF>" + tail


def _description(*, tool: bool, source: bool) -> bytes:
    parts = ["<rdf:Description rdf:about=''"]
    if tool:
        parts.append(f"xmlns:xmp='http://ns.adobe.com/xap/1.0/' xmp:CreatorTool='{PROVENANCE}'")
    if source:
        parts.append("xmlns:Iptc4xmpExt='http://iptc.org/std/Iptc4xmpExt/2008-02-29/'")
        parts.append(f"Iptc4xmpExt:DigitalSourceType='{_SOURCE_TYPE}'")
    return (" ".join(parts) + "/>").encode() if tool or source else b""


_NEW_PACKET = (
    b'<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
    b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">%b</rdf:RDF></x:xmpmeta><?xpacket end="w"?>'
)


_ORIGIN = b"<rdf:Description rdf:about='' xmlns:gpen='urn:gpen-cli:1' gpen:MadeFrom='%b'/>"
_OLD_ORIGIN = re.compile(_ORIGIN.replace(b"%b", b"([0-9a-f]+)"))


def digest_of(data: bytes) -> str:
    """32 hex digits that stand for a photo's file in its results."""
    return hashlib.sha256(data).hexdigest()[:32]


def made_from(data: bytes) -> str | None:
    """The digest of the photo that a result of ours was made from; None where it does not say (older ones, BMP)."""
    found = _OLD_ORIGIN.search(data)
    return found[1].decode() if found is not None else None


def is_our_output(data: bytes) -> bool:
    """Whether an encoded picture carries our mark. Never raises; BMP cannot carry it and is never recognised."""
    try:
        return any(_is_ours(tool) for tool in _makers(data, sniff(data[:HEAD_BYTES])))
    except (ValueError, struct.error):  # a damaged file is nobody's
        return False


def _makers(data: bytes, kind: str | None) -> Iterator[bytes]:
    """What a file says made it: EXIF Software, XMP CreatorTool, PNG text. Walks the containers, decodes nothing."""
    if kind == "TIFF":
        yield _exif_software(data)
    elif kind == "PNG":
        for name, content in _chunks(data, 8, big_endian=True):
            if name == b"eXIf":
                yield _exif_software(content)
            elif name == b"tEXt" and content.startswith(b"Software\0"):
                yield content[len(b"Software\0") :]
            elif name == b"iTXt" and content.startswith(XMP_KEYWORD):
                yield _xmp_tool(content)
    elif kind == "WEBP":
        for name, content in _chunks(data, 12, big_endian=False):
            if name == b"EXIF":
                yield _exif_software(content.removeprefix(EXIF_PREFIX))
            elif name == b"XMP ":
                yield _xmp_tool(content)
    elif kind == "JPEG":
        for segment in _jpeg_application_segments(data):
            if segment.startswith(EXIF_PREFIX):
                yield _exif_software(segment[len(EXIF_PREFIX) :])
            elif segment.startswith(_JPEG_XMP_PREFIX):
                yield _xmp_tool(segment)


def _exif_software(exif: bytes) -> bytes:
    block = Block(exif)
    entries, _ = block.read_directory(block.first)
    return block.value(entries[SOFTWARE]) if SOFTWARE in entries else b""


def _xmp_tool(xmp: bytes) -> bytes:
    tool = _TOOL.search(xmp)
    return tool[2] if tool is not None else b""


def _chunks(data: bytes, start: int, *, big_endian: bool) -> Iterator[tuple[bytes, bytes]]:
    """(name, content) of the chunks of a PNG (big-endian, name second, checksum) or RIFF file (name first, padded)."""
    at = start
    while at + 8 <= len(data):
        length = (
            int.from_bytes(data[at : at + 4], "big") if big_endian else int.from_bytes(data[at + 4 : at + 8], "little")
        )
        name = data[at + 4 : at + 8] if big_endian else data[at : at + 4]
        yield name, data[at + 8 : at + 8 + length]
        at += 8 + length + (4 if big_endian else length % 2)


def _jpeg_application_segments(data: bytes) -> Iterator[bytes]:
    """Contents of the APP1 segments before the picture data."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        (length,) = struct.unpack_from(">H", data, at + 2)
        if data[at + 1] == 0xE1:
            yield data[at + 4 : at + 2 + length]
        at += 2 + max(length, 2)
