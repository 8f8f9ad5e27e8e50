"""Titles, captions and keywords in forms that results cannot all hold, as XMP properties, which they can.

IPTC-IIM records (JPEG, TIFF) go where the IPTC's own mapping puts them ("IPTC Photo Metadata Standard", appendix "IIM mapping"),
PNG's text chunks and a JPEG's comment to their nearest kin. What the photo's own XMP says stays as it says it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from xml.sax.saxutils import escape

from PIL import IptcImagePlugin

Captions = Mapping[str, tuple[str, ...]]
"""XMP property -> its values."""

_NAMESPACES = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "exif": "http://ns.adobe.com/exif/1.0/",
}
# How a property holds its values: dc's as RDF containers, photoshop's plainly.
_CONTAINERS: Mapping[str, Literal["Alt", "Bag", "Seq"]] = {
    "dc:title": "Alt", "dc:description": "Alt", "dc:rights": "Alt", "exif:UserComment": "Alt",
    "dc:subject": "Bag", "dc:creator": "Seq",
}  # fmt: skip

_IIM = {
    5: "dc:title", 25: "dc:subject", 40: "photoshop:Instructions", 80: "dc:creator", 85: "photoshop:AuthorsPosition",
    90: "photoshop:City", 95: "photoshop:State", 101: "photoshop:Country", 103: "photoshop:TransmissionReference",
    105: "photoshop:Headline", 110: "photoshop:Credit", 115: "photoshop:Source", 116: "dc:rights", 120: "dc:description",
    122: "photoshop:CaptionWriter",
}  # fmt: skip
"""Dataset of record 2 -> property."""
_IIM_DATE, _IIM_CHARACTERS, _UTF8 = (2, 55), (1, 90), b"\x1b%G"

_PNG_TEXT = {
    "Title": "dc:title", "Author": "dc:creator", "Description": "dc:description", "Copyright": "dc:rights",
    "Comment": "exif:UserComment",
}  # fmt: skip

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST = 32_768
"""Characters of all captions: more is no caption."""


def captions_of(picture: Any, kind: str) -> Captions:
    """What a picture opened by Pillow says of itself outside of EXIF and XMP; empty where it says nothing, or it is damaged."""
    found: dict[str, tuple[str, ...]] = {}
    if kind in ("JPEG", "TIFF"):
        found.update(_from_iim(picture))
    if kind == "PNG":
        texts = getattr(picture, "text", {})
        found.update({name: (str(texts[key]),) for key, name in _PNG_TEXT.items() if texts.get(key)})
    comment = picture.info.get("comment") if kind == "JPEG" else None
    if isinstance(comment, bytes) and comment.strip(b"\0 "):
        found["exif:UserComment"] = (_text(comment),)
    if sum(len(value) for values in found.values() for value in values) > _MOST:
        return {}
    return found


def _from_iim(picture: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    try:
        records = IptcImagePlugin.getiptcinfo(picture) or {}
    except (SyntaxError, ValueError, LookupError, TypeError, AttributeError, OSError, struct.error):
        return  # damaged: what cannot be read cannot be carried on
    utf8 = records.get(_IIM_CHARACTERS) == _UTF8
    for (record, dataset), content in records.items():
        name = _IIM.get(dataset) if record == 2 else None
        values = content if isinstance(content, list) else [content]
        if name is not None:
            yield name, tuple(_text(value, utf8=utf8) for value in values)
    date = records.get(_IIM_DATE)
    if isinstance(date, bytes) and re.fullmatch(rb"\d{8}", date):
        day = date.decode()
        yield "photoshop:DateCreated", (f"{day[:4]}-{day[4:6]}-{day[6:]}",)


def _text(raw: bytes, *, utf8: bool = False) -> str:
    """UTF-8 where it is that, else Latin-1, which most that say nothing meant."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace") if utf8 else raw.decode("latin-1")
    return text.strip("\0 \r\n")


def caption_description(captions: Captions, packet: bytes) -> bytes:
    """An ``rdf:Description`` of the captions that ``packet`` has no property for; empty where there are none."""
    new = {name: values for name, values in captions.items() if any(values) and name.encode() not in packet}
    if not new:
        return b""
    prefixes = sorted({name.partition(":")[0] for name in new})
    spaces = " ".join(f"xmlns:{prefix}='{_NAMESPACES[prefix]}'" for prefix in prefixes)
    rdf = "xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'"
    body = "".join(_property(name, values) for name, values in new.items())
    return f"<rdf:Description {rdf} rdf:about='' {spaces}>{body}</rdf:Description>".encode()


def _property(name: str, values: tuple[str, ...]) -> str:
    texts = [escape(_NO_XML.sub("", value)) for value in values]
    container = _CONTAINERS.get(name)
    if container is None:
        return f"<{name}>{texts[0]}</{name}>"
    language = " xml:lang='x-default'" if container == "Alt" else ""
    items = "".join(f"<rdf:li{language}>{text}</rdf:li>" for text in texts)
    return f"<{name}><rdf:{container}>{items}</rdf:{container}></{name}>"
