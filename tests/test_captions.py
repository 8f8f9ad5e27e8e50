"""What a photo says in IPTC records, text chunks and comments is in its result's XMP, whatever the format."""

from __future__ import annotations

import io
import re
import struct
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gpen_cli.options import ReadOptions
from gpen_cli.photos.captions import caption_description, captions_of
from gpen_cli.photos.metadata import xmp_for_output
from gpen_cli.photos.read import read_photo
from gpen_cli.photos.write import encode_photo

PIXELS = np.full((24, 32, 3), 120, np.uint8)
WORDS = {
    5: "Hochzeit",
    25: "Tante Käthe",
    80: "A. Fotograf",
    90: "Köln",
    116: "© 1931",
    120: "Vor der Kirche <links> & rechts",
}


def iim(words: dict[int, str] = WORDS, *, encoding: str = "utf-8", more: bytes = b"") -> bytes:
    head = b"\x1c\x01\x5a\x00\x03\x1b%G" if encoding == "utf-8" else b""
    raw = {number: text.encode(encoding) for number, text in words.items()}
    return (
        head + b"".join(struct.pack(">BBBH", 0x1C, 2, number, len(text)) + text for number, text in raw.items()) + more
    )


def jpeg(records: bytes, **more: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, "JPEG", quality=95, **more)
    data = stream.getvalue()
    block = (
        b"Photoshop 3.0\0"
        + b"8BIM\x04\x04\0\0"
        + struct.pack(">I", len(records))
        + records
        + b"\0" * (len(records) % 2)
    )
    return data[:2] + b"\xff\xed" + struct.pack(">H", len(block) + 2) + block + data[2:]


def tiff(records: bytes) -> bytes:
    stream = io.BytesIO()
    tags = {33723: records}
    Image.fromarray(PIXELS).save(stream, "TIFF", tiffinfo=tags)
    return stream.getvalue()


def png(texts: dict[str, str]) -> bytes:
    stream, info = io.BytesIO(), PngInfo()
    for key, text in texts.items():
        info.add_itxt(key, text)
    Image.fromarray(PIXELS).save(stream, "PNG", pnginfo=info)
    return stream.getvalue()


def said_by(data: bytes, format_name: str, **how: bool) -> dict[str, list[str]]:
    """XMP property -> its texts, of the result of a photo; parsed, so that it has to be XML."""
    photo = read_photo(data, "x", ReadOptions())
    result = encode_photo(photo, photo.pixels, None, format_name=format_name, quality=None, **how).data
    packet = xmp_of(result)
    found: dict[str, list[str]] = {}
    for element in ElementTree.fromstring(packet).iter():
        space, _, name = element.tag.rpartition("}")
        if "elements/1.1" in space or "photoshop" in space or name == "UserComment":
            found[name] = [text.strip() for text in element.itertext() if text.strip()]
    return found


def xmp_of(result: bytes) -> bytes:
    packet = Image.open(io.BytesIO(result)).info.get("xmp") or b""
    return re.sub(rb"<\?xpacket.*?\?>", b"", packet if isinstance(packet, bytes) else packet.encode())


@pytest.mark.parametrize("format_name", ["png", "jpg", "webp", "tiff"])
@pytest.mark.parametrize("make", [jpeg, tiff])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_iptc_records_are_carried_into_every_format(make, format_name, encoding):
    said = said_by(make(iim(encoding=encoding)), format_name)
    assert said["title"] == ["Hochzeit"]
    assert said["subject"] == ["Tante Käthe"]
    assert said["creator"] == ["A. Fotograf"]
    assert said["City"] == ["Köln"]
    assert said["rights"] == ["© 1931"]
    assert said["description"] == ["Vor der Kirche <links> & rechts"]


def test_keywords_and_date():
    records = iim({55: "19310614"}, more=iim({25: "eins"}) + iim({25: "zwei"}))
    said = said_by(jpeg(records), "png")
    assert said["subject"] == ["eins", "zwei"]
    assert said["DateCreated"] == ["1931-06-14"]


def test_texts_of_a_png_and_the_comment_of_a_jpeg():
    said = said_by(png({"Title": "Hochzeit", "Author": "Ä", "Comment": "selten", "Software": "x"}), "jpg")
    assert said == {"title": ["Hochzeit"], "creator": ["Ä"], "UserComment": ["selten"]}
    assert said_by(jpeg(b"", comment=b"from the attic"), "png") == {"UserComment": ["from the attic"]}


def test_the_photos_own_xmp_has_the_last_word():
    own = xmp_for_output(None, size=(1, 1), captions={"dc:title": ("own title",)})
    data = jpeg(iim(), xmp=own)
    said = said_by(data, "png")
    assert said["title"] == ["own title"]
    assert said["City"] == ["Köln"]


def test_nothing_is_said_twice_by_a_second_run():
    photo = read_photo(jpeg(iim()), "x", ReadOptions())
    first = encode_photo(photo, photo.pixels, None, format_name="jpg", quality=None).data
    assert said_by(first, "png") == said_by(jpeg(iim()), "png")


def test_strip_metadata_takes_captions_too():
    photo = read_photo(jpeg(iim()), "x", ReadOptions())
    data = encode_photo(photo, photo.pixels, None, format_name="png", quality=None, strip_metadata=True).data
    assert b"Hochzeit" not in data
    assert "xmp" not in Image.open(io.BytesIO(data)).info


@given(st.binary(max_size=80))
def test_damaged_records_never_stop_a_photo(junk):
    for make in (jpeg, tiff):
        data = make(iim() + junk)
        assert read_photo(data, "x", ReadOptions()).pixels.shape == PIXELS.shape
        said_by(data, "png")


@given(st.dictionaries(st.sampled_from(["dc:title", "dc:subject", "photoshop:City"]), st.tuples(st.text()), min_size=1))
def test_any_text_is_xml(captions):
    packet = caption_description(captions, b"")
    assert packet == b"" or ElementTree.fromstring(packet) is not None


def test_a_flood_of_text_is_no_caption():
    picture = Image.open(io.BytesIO(png({"Comment": "x" * 40_000})))
    assert captions_of(picture, "PNG") == {}
