"""The page in a real browser, on a real server around the stand-in engine. GPEN_SCREENSHOTS=DIR keeps what was seen."""

from __future__ import annotations

import base64
import io
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from serve.kit import FACE, pixels_of, png
from serve.test_process import gpen_serve

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]

BLUE = (40, 90, 160)
NEGATIVE = [215, 165, 95]
WIDE = (256, 128)
WAIT_MS = 10_000


@pytest.fixture(scope="module")
def link() -> Iterator[str]:
    with gpen_serve("--max-upload", "300k", seconds=120) as (_, link):
        yield link


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, link, request):
    """Opens the page; afterwards nothing may have gone wrong in it: no error, nothing that the policy forbids."""
    opened = []

    def open_one(**context):
        context = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **context}
        page = browser.new_context(**context).new_page()
        page.set_default_timeout(WAIT_MS)
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda line: troubles.append(line.text) if line.type == "error" else None)
        page.goto(link)
        page.evaluate("document.getElementById('colours').checked = false")  # the stand-in's colours are the proof
        opened.append((page, troubles))
        return page

    yield open_one
    for number, (page, troubles) in enumerate(opened):
        if folder := os.environ.get("GPEN_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / f"{request.node.name}-{number}.png", full_page=True)
        page.context.close()
        asked = ("status of 4", "net::ERR_FAILED")  # what the server refused, or a test stopped
        unexpected = [text for text in troubles if not any(words in text for words in asked)]
        assert unexpected == []


def file(name: str = "me.png", data: bytes | None = None) -> dict:
    return {"name": name, "mimeType": "image/png", "buffer": png(BLUE) if data is None else data}


def choose(page, *files: dict) -> None:
    page.set_input_files("#file", list(files) or [file()])


def until(page, expression: str) -> None:
    """Waits until JavaScript says so. (Playwright's own waiting evaluates strings in the page, which its policy forbids.)"""
    end = time.monotonic() + WAIT_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def restore(page) -> None:
    page.click("#go")
    page.wait_for_selector("#save:visible")
    until(page, "document.querySelector('#after img').naturalWidth > 0")


def shown(page, pane: str = "after"):
    """(H, W, 3) of a pane's picture, as the browser has it."""
    address = page.evaluate(
        """async (id) => {
            const image = document.querySelector(`#${id} img`);
            await image.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            canvas.getContext("2d").drawImage(image, 0, 0);
            return canvas.toDataURL();
        }""",
        pane,
    )
    return pixels_of(base64.b64decode(address.partition(",")[2]))


def saved(page, button: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.click(button)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_choose_restore_look_and_save(open_page):
    page = open_page()
    choose(page)
    page.wait_for_selector("#before rect")
    assert page.locator("#before rect").count() == 1
    restore(page)
    assert page.locator("#message").inner_text().startswith("Done: 1 face restored")
    assert shown(page)[64, 64].tolist() == NEGATIVE
    assert shown(page, "before")[64, 64].tolist() == list(BLUE)
    captions = [page.locator(f"#{pane} figcaption").inner_text() for pane in ("before", "after")]
    assert captions == ["Original", "Restored"]
    boxes = [page.locator(f"#{pane} img").bounding_box() for pane in ("before", "after")]
    assert boxes[0]["width"] == boxes[1]["width"], "the same scale"
    assert boxes[0]["y"] == boxes[1]["y"], "side by side"
    name, data = saved(page, "#save")
    assert name == "me_enhanced.png"
    assert Image.open(io.BytesIO(data)).format == "PNG"
    assert pixels_of(data).shape == (128, 128, 3), "as large as the photo"
    assert pixels_of(data)[64, 64].tolist() == NEGATIVE, "no label or box is in the file"


def test_boxes_are_red_and_green_and_can_be_switched_off(open_page):
    page = open_page()
    choose(page)
    restore(page)
    strokes = [
        page.evaluate(f"getComputedStyle(document.querySelector('#{pane} rect')).stroke")
        for pane in ("before", "after")
    ]
    assert strokes == ["rgb(214, 40, 40)", "rgb(24, 165, 88)"]
    page.uncheck("#boxes")
    assert not page.locator("#before rect").is_visible()
    assert not page.locator("#after rect").is_visible()


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_drop_and_paste(open_page, kind):
    page = open_page()
    page.evaluate(
        """([kind, text]) => {
            const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], "dropped.png", {type: "image/png"}));
            const event = kind === "drop" ? new DragEvent("drop", {dataTransfer: data, bubbles: true})
                                          : new ClipboardEvent("paste", {clipboardData: data, bubbles: true});
            document.body.dispatchEvent(event);
        }""",
        [kind, base64.b64encode(png(BLUE)).decode()],
    )
    restore(page)
    assert page.locator("#name").inner_text() == "dropped.png"
    assert shown(page)[64, 64].tolist() == NEGATIVE


def test_the_divider_is_dragged_and_moved_by_keys(open_page):
    page = open_page()
    choose(page)
    assert page.locator("#over").is_disabled(), "there is nothing to compare yet"
    restore(page)
    page.click("#over")
    boxes = [page.locator(f"#{pane} img").bounding_box() for pane in ("before", "after")]
    assert boxes[0] == boxes[1], "one lies on the other"
    clip = "document.querySelector('#after .picture').style.clipPath"
    assert page.evaluate(clip) == "inset(0px 0px 0px 50%)"
    handle, picture = page.locator("#handle").bounding_box(), boxes[0]
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + 30)
    page.mouse.down()
    page.mouse.move(picture["x"] + 0.25 * picture["width"], handle["y"] + 60, steps=4)
    page.mouse.up()
    assert float(page.input_value("#divider")) == pytest.approx(25, abs=1)
    page.focus("#divider")
    page.keyboard.press("End")
    assert page.evaluate(clip) == "inset(0px 0px 0px 100%)"
    page.click("#side")
    assert page.evaluate(clip) == ""


def test_the_magnifier_shows_the_same_place_in_both(open_page):
    page = open_page()
    choose(page)
    restore(page)
    box = page.locator("#before img").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#lens:visible")
    middle = """[...document.querySelectorAll('#lens canvas')].map(
        (canvas) => [...canvas.getContext('2d').getImageData(90, 90, 1, 1).data].slice(0, 3))"""
    assert page.evaluate(middle) == [list(BLUE), NEGATIVE]
    page.mouse.move(5, 5)
    assert not page.locator("#lens").is_visible()
    page.focus("#before .picture")
    page.keyboard.press("ArrowRight")
    assert page.locator("#lens").is_visible(), "by keys too"
    page.keyboard.press("Escape")
    page.uncheck("#lens-on")
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    assert not page.locator("#lens").is_visible()


@pytest.mark.parametrize("way", ["drag", "click", "button"])
def test_only_one_face_is_restored(open_page, way):
    page = open_page()
    choose(page, file("two.png", png(BLUE, size=WIDE)))
    page.wait_for_selector("#before rect >> nth=1")
    box = page.locator("#before img").bounding_box()
    scale = box["width"] / WIDE[0]
    left, top, right, bottom = (float(value) * scale for value in FACE.box)
    if way == "drag":
        page.mouse.move(box["x"] + left - 10, box["y"] + top - 10)
        page.mouse.down()
        page.mouse.move(box["x"] + right + 10, box["y"] + bottom + 10, steps=4)
        assert page.locator("#before rect.drawn").count() == 1
        page.mouse.up()
    elif way == "click":
        page.mouse.click(box["x"] + (left + right) / 2, box["y"] + (top + bottom) / 2)
    else:
        page.click("#faces button >> nth=0")
    page.wait_for_selector("#save:visible")
    assert shown(page)[64, 64].tolist() == NEGATIVE
    assert shown(page)[64, 190].tolist() == list(BLUE)
    assert page.locator("#after rect").count() == 1
    assert page.locator("#before rect.left-alone").count() == 1


def test_no_face_is_said_in_a_sentence(open_page):
    page = open_page()
    choose(page, file("black.png", png((0, 0, 0))))
    page.wait_for_selector("#message:visible")
    assert "No valid face was found" in page.locator("#message").inner_text()
    restore(page)
    assert "No valid face was found" in page.locator("#message").inner_text()


def test_a_wrong_file_and_one_that_is_too_large_are_said_in_a_sentence(open_page):
    page = open_page()
    until(page, "document.getElementById('kinds').textContent")
    choose(page, file("note.png", b"not a picture at all"))
    page.wait_for_selector("#message:visible")
    assert "note.png is" in page.locator("#message").inner_text()
    assert page.locator("#go").is_disabled()
    choose(page, file("large.png", png() + bytes(400_000)))
    until(page, "document.getElementById('message').textContent.includes('larger than 0.3 MB')")
    choose(page, file("good.png"))
    page.wait_for_selector("#before rect")
    restore(page)
    assert shown(page)[64, 64].tolist() == NEGATIVE, "the others are done all the same"


def test_several_files_become_a_zip(open_page):
    page = open_page()
    colours = [(10, 20, 230), (200, 30, 40), (90, 91, 92)]
    choose(page, *(file("same.png" if index < 2 else "名.png", png(colour)) for index, colour in enumerate(colours)))
    assert page.locator("#go").inner_text() == "Restore all 3"
    page.click("#go")
    until(page, "document.querySelectorAll('#files button').length === 3 && !document.getElementById('go').disabled")
    assert [text.split()[-1] for text in page.locator("#files button").all_inner_texts()] == ["done"] * 3
    name, data = saved(page, "#zip")
    assert name == "gpen.zip"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["same_enhanced.png", "same_enhanced (2).png", "名_enhanced.png"]
        pictures = [pixels_of(archive.read(entry)) for entry in archive.namelist()]
    for picture, colour in zip(pictures, colours, strict=True):
        assert picture[64, 64].tolist() == [255 - value for value in colour]


def test_strength_size_and_colours(open_page):
    page = open_page()
    choose(page)
    page.click("#more summary")
    page.click("#natural")
    assert "0.7 (natural)" in page.locator("#weight-value").inner_text()
    page.evaluate("const w = document.getElementById('weight'); w.value = 0; w.dispatchEvent(new Event('input'))")
    page.select_option("#size", "2")
    restore(page)
    assert shown(page).shape == (256, 256, 3)
    assert shown(page)[128, 128].tolist() == list(BLUE), "strength 0 is the photo's own face"


def scan(kind: str) -> bytes:
    """A file of 96x128 with a red corner at the top right: a TIFF that lies on its side and says so, or a HEIC."""
    picture = Image.new("RGB", (96, 128), BLUE)
    picture.paste((200, 30, 40), (48, 0, 96, 64))
    exif = Image.Exif()
    if kind == "TIFF":
        picture = picture.transpose(Image.Transpose.ROTATE_90)
        exif[0x0112] = 6  # to be turned clockwise
    stream = io.BytesIO()
    picture.save(stream, kind, exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize(("kind", "name"), [("TIFF", "scan.tif"), ("HEIF", "phone.heic")])
def test_what_the_browser_cannot_show_is_shown_by_the_server(open_page, kind, name):
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    page = open_page()
    choose(page, file(name, scan(kind)))
    page.wait_for_selector("#before rect")
    restore(page)
    original, restored = shown(page, "before"), shown(page)
    assert original.shape == restored.shape == (128, 96, 3), "both upright, at the same size"
    assert abs(original[20, 80].astype(int) - (200, 30, 40)).max() <= 12
    assert abs(original[110, 10].astype(int) - BLUE).max() <= 12
    assert abs(restored[64, 40].astype(int) - original[64, 40]).max() > 60, "the stand-in's negative"
    boxes = [page.locator(f"#{pane} img").bounding_box() for pane in ("before", "after")]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["width"] == boxes[1]["width"], "side by side at one scale"
    assert saved(page, "#save")[0] == f"{name.partition('.')[0]}_enhanced.png"


def test_an_original_that_nobody_can_show_is_said_and_restored_all_the_same(open_page):
    page = open_page()
    page.route("**/preview", lambda route: route.abort())
    choose(page, file("scan.tif", scan("TIFF")))
    until(page, "document.getElementById('faces').offsetParent !== null")
    assert "cannot show the original" in page.locator("#message").inner_text()
    restore(page)
    assert page.locator("#message").inner_text().startswith("Done")


def test_everything_by_keyboard(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "choose"
    choosers: list = []
    page.on("filechooser", lambda chooser: choosers.append(chooser))
    page.wait_for_timeout(300)  # until the browser knows that we listen
    page.keyboard.press("Enter")
    for _ in range(100):
        page.wait_for_timeout(50)
        if choosers:
            break
    choosers[0].set_files([file()])
    page.wait_for_selector("#before rect")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "go":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#save:visible")
    until(page, "document.activeElement.id === 'save'")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "me_enhanced.png"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_in_chinese(open_page, scheme):
    page = open_page(
        viewport={"width": 360, "height": 740}, locale="zh-CN", has_touch=True, is_mobile=True, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.lang") == "zh"
    choose(page, file(), file("two.png", png(BLUE, size=WIDE)))
    page.click("#go")
    page.wait_for_selector("#zip:visible")
    assert page.locator("#go").inner_text() == "修复全部 2 张"
    assert page.locator("#before figcaption").inner_text() == "原图"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    small = page.evaluate(
        """[...document.querySelectorAll("button")].filter((b) => b.offsetParent && b.id !== "natural" && b.offsetHeight < 36)
           .map((b) => b.id)"""
    )
    assert small == [], "fingers need room"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(open_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(color_scheme=scheme)
    faults = _faults(axe, page)
    choose(page, file(), file("black.png", png((0, 0, 0))))
    page.wait_for_selector("#before rect")
    page.click("#more summary")
    restore(page)
    faults += _faults(axe, page)
    page.click("#over")
    page.click("#files button >> nth=1")
    page.wait_for_selector("#message:visible")
    faults += _faults(axe, page)
    assert faults == []


def _faults(axe, page) -> list[str]:
    return [
        f"{fault['id']}: {node['html'][:120]}"
        for fault in axe.run(page).response["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]
