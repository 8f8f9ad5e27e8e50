"""Crops made small enough to travel: python -m gpen_cli.train.pack FACES OUT [--size 256] [--format webp] [--quality 92]

Every crop that FACES/index.csv lists under train/ is averaged down to --size and saved as JPEG or WebP, with an index whose
padding is that of the smaller crop. Smaller crops than --size are left out. For machines that take 64 MiB (configs/gpu_run.sh).
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import cv2

from gpen_cli.errors import GpenError, UsageError
from gpen_cli.paths import is_file
from gpen_cli.train.crops import read_rgb

PADS = ("pad_l", "pad_t", "pad_r", "pad_b")
FORMATS = {"jpg": cv2.IMWRITE_JPEG_QUALITY, "webp": cv2.IMWRITE_WEBP_QUALITY}


def pack(faces: Path, out: Path, *, size: int, quality: int, format: str = "jpg") -> int:
    """Writes OUT/train/… and OUT/index.csv; returns the number of crops. Raises UsageError, PhotoError, OSError."""
    index = faces / "index.csv"
    if not is_file(index):
        raise UsageError(f"There is no {index}; gpen train prepare makes one.")
    with index.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["file"].startswith("train/")]
    packed = []
    for row in rows:
        crop = read_rgb(faces / row["file"])
        side = crop.shape[0]
        if side < size:
            continue
        if side > size:
            crop = cv2.resize(crop, (size, size), interpolation=cv2.INTER_AREA)
        target = out / "train" / f"{Path(row['file']).stem}.{format}"
        target.parent.mkdir(parents=True, exist_ok=True)
        stored = cv2.imencode(target.suffix, cv2.cvtColor(crop, cv2.COLOR_RGB2BGR), [FORMATS[format], quality])[1]
        target.write_bytes(stored.tobytes())
        # rounded up: a pixel that is partly padding is padding
        pads = {pad: -(-int(row[pad] or 0) * size // side) for pad in PADS}
        named = {"file": f"train/{target.name}", "source": row["source"], "confidence": row.get("confidence", "")}
        packed.append({**named, **pads})
    with (out / "index.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ("file", "source", "confidence", *PADS))
        writer.writeheader()
        writer.writerows(packed)
    return len(packed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faces", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--format", choices=list(FORMATS), default="jpg")
    parser.add_argument("--quality", type=int, default=92)
    arguments = parser.parse_args()
    try:
        count = pack(
            arguments.faces,
            arguments.out,
            size=arguments.size,
            quality=arguments.quality,
            format=arguments.format,
        )
    except GpenError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stderr.write(f"{count} crops of {arguments.size} px in {arguments.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
