"""From choosing a photo on the page to its shown result, in a real browser: python benchmarks/serve_page.py

A photo of 2 megapixels with one face (the example, enlarged), the embedded net, size "double" as by default. Needs Chromium.
"""

from __future__ import annotations

import argparse
import io
import shutil
import time

from PIL import Image
from playwright.sync_api import sync_playwright
from serve import ROOT, serving


def photo() -> dict:
    enlarged = Image.open(ROOT / "examples" / "astronaut.jpg").convert("RGB").resize((1732, 2020))
    stream = io.BytesIO()
    enlarged.crop((0, 0, 1732, 1160)).save(stream, "JPEG", quality=90)
    return {"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": stream.getvalue()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="measured so often, each on a new page")
    flags = parser.parse_args()
    with serving() as (_, port), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(flags.times):
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.goto(f"http://127.0.0.1:{port}/")
            begin = time.perf_counter()
            page.set_input_files("#file", [photo()])
            page.click("#go")
            page.wait_for_selector("#save:visible")
            while not page.evaluate("document.querySelector('#after img').naturalWidth > 0"):
                page.wait_for_timeout(10)
            print(f"{time.perf_counter() - begin:.2f} s from choosing the file to the shown result")
            page.context.close()
        browser.close()


if __name__ == "__main__":
    main()
