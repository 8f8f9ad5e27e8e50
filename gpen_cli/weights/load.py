"""From a weight file to a net: read safely, unwrap, read the architecture off the shapes, load every tensor or none."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpen_cli.errors import WeightsError
from gpen_cli.models.gpen import BASE_CHANNELS, SMALLEST, Gpen, GpenConfig

State = dict[str, Tensor]

_DAMAGE = (
    RuntimeError,
    EOFError,
    zipfile.BadZipFile,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    struct.error,
)
"""What torch's readers have been seen to raise on damaged bytes."""

_NO_WEIGHTS = (
    (re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE), "a web page (a download that went wrong?)"),
    (re.compile(rb"version https://git-lfs"), "a Git LFS pointer, not the file it stands for"),
)
"""How files begin that often lie under a weight file's name."""

_WRAPPERS = ("g_ema", "params_ema", "params", "state_dict", "model", "generator", "g")
"""Keys under which training frameworks put the weights; averaged ones first. All only as nested dicts."""

_ANCHOR = "ecd0.0.0.weight"
"""A name only a full GPEN generator has; what stands before it is the wrapper's prefix (``module.``, ``_orig_mod.`` …)."""

_PREFERRED_PREFIXES = ("g_ema", "ema")

_FOREIGN = (
    ("ecd1.0.", "only a part of one"),
    ("stylegan_decoder.", "GFPGAN"),
    ("conv_body_first.", "GFPGAN"),
    ("position_emb", "CodeFormer"),
    ("quantize.embedding.", "a RestoreFormer or VQGAN net"),
    ("BboxHead.", "a RetinaFace detector"),
    ("out_mask_conv.", "ParseNet, a face parser"),
    ("body.0.rdb1.", "Real-ESRGAN (an enlargement net)"),
    ("layers.0.residual_group.", "SwinIR"),
    ("to_rgbs.", "a StyleGAN2 generator without GPEN's encoder"),
    ("final_conv.0.", "a GPEN or StyleGAN2 discriminator"),
)


def read_state(path: Path) -> Mapping[str, Any]:
    """What the file holds, without running any code from it. Raises WeightsError with one sentence."""
    if path.suffix.lower() == ".onnx":
        raise WeightsError(f"{path} is an ONNX file, which PyTorch cannot run; name a .pth, .pt or .safetensors file.")
    try:
        _refuse_other_kinds(path)
        if path.suffix.lower() == ".safetensors":
            from safetensors import SafetensorError
            from safetensors.torch import load_file

            try:
                return load_file(path)
            except SafetensorError as error:
                raise WeightsError(f"{path} is damaged ({error}); get it again.") from error
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} is not a plain weight file: it holds other Python objects, or text. "
            f"Nothing in it was run; save its state dict alone, or get the file again."
        ) from error
    except _DAMAGE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(f"{path} is cut off or damaged ({reason}); get it again.") from error
    except OSError as error:
        raise WeightsError(
            f"{path} cannot be read: {error.strerror or error}; check the path and its permissions."
        ) from error
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path} holds a {type(content).__name__}, no state dict; name a GPEN weight file.")
    return content


def _refuse_other_kinds(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise WeightsError(f"{path} is empty; get it again.")
    for beginning, kind in _NO_WEIGHTS:
        if beginning.match(head):
            raise WeightsError(f"{path} is {kind}; get the weight file again.")


def unwrap(content: Mapping[str, Any], path: Path) -> State:
    """The generator's own state dict, without wrappers and prefixes, as float32."""
    nested = [content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)]
    for candidate in (*nested, content):
        prefixes = [name[: -len(_ANCHOR)] for name in candidate if isinstance(name, str) and name.endswith(_ANCHOR)]
        if prefixes:
            prefix = min(prefixes, key=lambda p: (not any(word in p for word in _PREFERRED_PREFIXES), len(p)))
            return {
                name[len(prefix) :]: value.float()
                for name, value in candidate.items()
                if name.startswith(prefix) and isinstance(value, Tensor)
            }
    raise WeightsError(f"{path} is no GPEN generator: it looks like {_describe(content)}.")


def _describe(content: Mapping[str, Any]) -> str:
    names = []
    for key, value in content.items():
        names += [f"{key}.{name}" for name in value] if isinstance(value, Mapping) else [str(key)]
    for part, description in _FOREIGN:
        if any(part in name for name in names):
            return description
    shown = ", ".join(names[:3]) if names else "nothing"
    return f"another net (it holds {shown}…)"


def infer_config(state: State, path: Path) -> GpenConfig:
    """The architecture, from tensor shapes alone. Raises WeightsError when they fit no GPEN."""
    try:
        stages = sum(1 for name in state if name.startswith("ecd") and name.endswith(".0.0.kernel")) + 1
        size = 1 << (stages + 1)
        if size not in BASE_CHANNELS:
            raise WeightsError(f"{path} is no GPEN generator we know: its {stages} stages would make {size} px.")
        narrow = state["generator.conv1.conv.weight"].shape[1] / BASE_CHANNELS[SMALLEST]
        outer = state[_ANCHOR].shape[0]
        return GpenConfig(
            size=size,
            style_width=state["generator.style.1.weight"].shape[1],
            mapping_depth=sum(n.startswith("generator.style.") and n.endswith(".weight") for n in state),
            channel_multiplier=max(1, round(outer / (BASE_CHANNELS[size] * narrow))),
            narrow=narrow,
        )
    except KeyError as error:
        raise WeightsError(
            f"{path} is only part of a GPEN generator: {error} is missing; get the whole file."
        ) from error
    except (IndexError, ZeroDivisionError) as error:
        raise WeightsError(f"{path} has GPEN's names, but tensors of another shape; get the whole file.") from error


def load_gpen(path: Path) -> Gpen:
    """The net in ``path``, float32 on the CPU, in inference mode. Raises WeightsError with one sentence."""
    state = unwrap(read_state(path), path)
    config = infer_config(state, path)
    net = Gpen(config)
    _check_names(state, net.state_dict(), config, path)
    _check_filters(state, net.state_dict(), path)
    net.load_state_dict(state, strict=True, assign=True)
    return net.eval().requires_grad_(False)


def _check_filters(state: State, expected: State, path: Path) -> None:
    """The FIR filters are part of the code; a file trained with others would run, and give another picture."""
    for name, own in expected.items():
        if name.endswith(".kernel") and not torch.allclose(state[name], own, atol=1e-3):
            raise WeightsError(
                f"{path} was trained with another low-pass filter ({name}) than GPEN's; gpen cannot run it."
            )


def _check_names(state: State, expected: State, config: GpenConfig, path: Path) -> None:
    missing = sorted(set(expected) - set(state))
    foreign = sorted(set(state) - set(expected))
    wrong = sorted(name for name in set(state) & set(expected) if state[name].shape != expected[name].shape)
    problems = [
        f"{len(names)} tensors {what} (first: {', '.join(names[:3])})"
        for names, what in ((missing, "are missing"), (foreign, "do not belong"), (wrong, "have another shape"))
        if names
    ]
    if problems:
        raise WeightsError(
            f"{path} does not fit: by its shapes it would be a GPEN of {config.size} px, but "
            f"{'; '.join(problems)}. Get the whole, unchanged file."
        )
