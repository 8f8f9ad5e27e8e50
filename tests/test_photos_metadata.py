"""What travels with a picture: dates and places stay, orientation and sizes become true, our mark is found again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import saved
from PIL import Image

from gpen_cli import __version__
from gpen_cli.photos.ifd import EMPTY_BLOCK, Block
from gpen_cli.photos.metadata import (
    EXIF_PREFIX,
    PROVENANCE,
    exif_for_output,
    is_our_output,
    read_orientation,
    xmp_for_output,
)

GPS = {1: "N", 2: (48.0, 51.0, 29.6), 3: "E", 4: (2.0, 17.0, 40.2)}
MAKER_NOTE = b"ACME\0\x01\x02\x03" * 40


def camera_exif(*, order: str = "<", thumbnail: bytes = b"\xff\xd8thumbnail\xff\xd9" * 50) -> bytes:
    """A block as cameras write it: camera, date, GPS, MakerNote, and the stored picture's thumbnail at the end."""
    exif = Image.Exif()
    exif.endian = order
    exif.update({271: "ACME", 272: "Box 1", 274: 6, 305: "ACME firmware 2.1", 306: "1999:12:31 23:59:59"})
    exif[34665] = {0x9003: "1999:12:31 23:59:58", 0x927C: MAKER_NOTE, 0xA002: 4000, 0xA003: 3000}
    exif[34853] = GPS
    block = Block(exif.tobytes().removeprefix(EXIF_PREFIX))
    main, _ = block.read_directory(block.first)
    start = block.append(thumbnail)
    small = {tag: block.entry(tag, 4, [value]) for tag, value in ((0x201, start), (0x202, len(thumbnail)))}
    block.link_first(block.append_directory(main, follower=block.append_directory(small)))
    return block.tobytes()


def parsed(block: bytes) -> Image.Exif:
    exif = Image.Exif()
    exif.load(EXIF_PREFIX + block)
    return exif


@pytest.mark.parametrize("order", ["<", ">"])
def test_what_describes_the_photo_stays_and_what_describes_its_pixels_becomes_true(order):
    block, warnings = exif_for_output(camera_exif(order=order), size=(640, 480))
    exif = parsed(block)
    assert not warnings
    assert (exif[271], exif[272], exif[306]) == ("ACME", "Box 1", "1999:12:31 23:59:59")
    assert exif[274] == 1
    details = exif.get_ifd(34665)
    assert details[0x9003] == "1999:12:31 23:59:58"
    assert (details[0xA002], details[0xA003]) == (640, 480)
    assert details[0x927C] == MAKER_NOTE
    gps = exif.get_ifd(34853)
    assert (gps[1], gps[3]) == ("N", "E")
    assert [float(v) for v in gps[2]] == pytest.approx(GPS[2])


def test_makernotes_stay_where_their_own_offsets_expect_them():
    before = camera_exif()
    after, _ = exif_for_output(before, size=(10, 10))
    assert after.index(MAKER_NOTE) == before.index(MAKER_NOTE)


def test_the_thumbnail_of_the_old_picture_is_gone():
    before = camera_exif()
    assert b"thumbnail" in before
    after, _ = exif_for_output(before, size=(10, 10))
    assert b"thumbnail" not in after
    assert not parsed(after).get_ifd(1)


def test_what_made_the_photo_is_remembered_behind_our_mark_once():
    once, _ = exif_for_output(camera_exif(), size=(10, 10))
    twice, _ = exif_for_output(once, size=(10, 10))
    assert parsed(once)[305] == f"{PROVENANCE} (after ACME firmware 2.1)"
    assert parsed(twice)[305] == parsed(once)[305]
    assert f"gpen {__version__}" == PROVENANCE


def test_a_photo_without_exif_gets_a_small_true_block():
    block, warnings = exif_for_output(None, size=(7, 5))
    exif = parsed(block)
    assert (exif[274], exif[305]) == (1, PROVENANCE)
    assert exif.get_ifd(34665)[0xA002] == 7
    assert not warnings
    assert len(block) < 200


@pytest.mark.parametrize(
    "broken", [b"junk", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff" + bytes(20), b"MM\0*"]
)
def test_a_broken_block_is_replaced_with_a_warning(broken):
    block, warnings = exif_for_output(broken, size=(7, 5))
    assert len(warnings) == 1
    assert parsed(block)[305] == PROVENANCE
    assert read_orientation(broken) == 1


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_damage_to_exif_ever_raises(data):
    block = bytearray(camera_exif())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(block) - 5))
        block[at : at + 4] = data.draw(st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0", b"\0\0\1\0"]))
    damaged = bytes(block[: data.draw(st.integers(0, len(block)))])
    assert 1 <= read_orientation(damaged) <= 8
    result, _ = exif_for_output(damaged, size=(20, 10))
    made = Block(result)
    entries, follower = made.read_directory(made.first)
    assert made.numbers(entries[274]) == (1,)
    assert follower == 0


def test_offsets_beyond_the_block_are_refused():
    with pytest.raises(ValueError, match="outside"):
        Block(EMPTY_BLOCK).read_directory(5000)


# -- XMP --

PACKET = (
    b'<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
    b'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="" '
    b'xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:tiff="http://ns.adobe.com/tiff/1.0/" '
    b'xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0" xmp:CreatorTool="ACME &amp; Sons" '
    b'xmp:Rating="5" tiff:Orientation="6" tiff:ImageWidth="4000">'
    b"<exif:PixelXDimension xmlns:exif='http://ns.adobe.com/exif/1.0/'>4000</exif:PixelXDimension>"
    b"<xmp:Thumbnails><rdf:Alt><rdf:li>AAAA</rdf:li></rdf:Alt></xmp:Thumbnails></rdf:Description></rdf:RDF></x:xmpmeta>"
    b'<?xpacket end="w"?>'
)


def test_xmp_is_kept_made_true_and_marked():
    from xml.etree import ElementTree

    packet = xmp_for_output(PACKET, size=(640, 480))
    ElementTree.fromstring(packet)
    assert b'tiff:Orientation="1"' in packet
    assert b'tiff:ImageWidth="640"' in packet
    assert b">640</exif:PixelXDimension>" in packet
    assert b'xmp:Rating="5"' in packet
    assert f'xmp:CreatorTool="{PROVENANCE} (after ACME &amp; Sons)"'.encode() in packet
    assert b"compositeWithTrainedAlgorithmicMedia" in packet
    assert b"Thumbnails" not in packet
    assert b"hdrgm:Version" not in packet
    assert xmp_for_output(packet, size=(640, 480)) == packet


@pytest.mark.parametrize("packet", [None, b"", b"not xml", PACKET[:300]])
def test_without_usable_xmp_there_is_a_small_packet_of_ours(packet):
    from xml.etree import ElementTree

    made = xmp_for_output(packet, size=(7, 5))
    ElementTree.fromstring(made)
    assert PROVENANCE.encode() in made
    assert b"digitalsourcetype" in made


# -- the mark --


def black(kind: str, **options) -> bytes:
    return saved(Image.new("RGB", (8, 8)), kind, **options)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_the_mark_is_found_in_exif_whoever_wrote_the_file(kind):
    exif, other = Image.Exif(), Image.Exif()
    exif[305], other[305] = PROVENANCE, "gpencil 3"
    assert is_our_output(black(kind, exif=exif))
    assert not is_our_output(black(kind, exif=other))
    assert not is_our_output(black(kind))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_the_mark_is_found_in_xmp_alone(kind):
    assert is_our_output(black(kind, xmp=xmp_for_output(None, size=(8, 8))))
    assert not is_our_output(black(kind, xmp=PACKET))


def test_the_mark_is_found_in_png_text_alone():
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("Software", PROVENANCE)
    assert is_our_output(black("PNG", pnginfo=text))


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff\xe1", b"\x89PNG\r\n\x1a\n", b"II*\0", b"RIFF....WEBP"]),
)
@settings(max_examples=200, deadline=None)
def test_looking_for_the_mark_never_raises(tail, head):
    assert is_our_output(head + tail) in (True, False)


def test_a_cut_off_output_is_nobodys_or_ours_but_never_an_error():
    data = black("JPEG", xmp=xmp_for_output(None, size=(8, 8)))
    assert {is_our_output(data[:n]) for n in range(0, len(data), 7)} == {True, False}
    assert not is_our_output(struct.pack(">I", 0))
