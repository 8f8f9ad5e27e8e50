"""Options: every default holds, every bad value is refused before any work, with the flag, the value and what is allowed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gpen_cli.errors import UsageError
from gpen_cli.options import (
    ComposeOptions,
    FaceOptions,
    NetOptions,
    Options,
    ReadOptions,
    RunOptions,
    WriteOptions,
    parse_number,
    parse_whole,
)

NAN = float("nan")
INFINITY = float("inf")

NUMBERS = [
    (FaceOptions, "det_threshold", "--det-threshold", [0.05, 0.5, 1.0], [0.0, 0.049, 1.01, -1, NAN, INFINITY]),
    (FaceOptions, "det_size", "--det-size", [128, 1280, 8192], [0, 127, 8193, -5]),
    (FaceOptions, "min_face", "--min-face", [1, 16, 500], [0, -1, 100_001]),
    (FaceOptions, "max_face", "--max-face", [16, 17, 100_000, None], [0, -1, 100_001]),
    (FaceOptions, "max_faces", "--max-faces", [1, 1000, None], [0, -3, 100_001]),
    (NetOptions, "batch_size", "--batch-size", [1, 4, 256], [0, -1, 257]),
    (NetOptions, "threads", "--threads", [1, 1024, None], [0, -1, 1025]),
    (ComposeOptions, "fidelity_weight", "--fidelity-weight", [0, 0.5, 1, 2], [-0.01, 2.01, NAN, INFINITY]),
    (ComposeOptions, "sharpen", "--sharpen", [0, 1], [-0.1, 1.1, NAN]),
    (ComposeOptions, "upscale", "--upscale", [1, 1.5, 4, None], [0, 0.99, 4.01, -2, NAN, INFINITY]),
    (ReadOptions, "max_pixels", "--max-pixels", [1, 10**9], [0, -1, 10**12]),
    (WriteOptions, "quality", "--quality", [1, 95, 100, None], [0, 101, -1]),
    (RunOptions, "workers", "--workers", [1, 256, None], [0, -1, 257]),
]

WORDS = [
    (FaceOptions, "detector", "--detector", ["auto", "retinaface-mobile", "retinaface-r50"]),
    (FaceOptions, "template", "--template", ["gpen", "ffhq"]),
    (NetOptions, "precision", "--precision", ["auto", "fp32", "bf16", "fp16"]),
    (NetOptions, "runtime", "--runtime", ["auto", "eager", "compiled", "onnx"]),
    (ComposeOptions, "mask", "--mask", ["auto", "feather", "parse", "parse+hair"]),
    (ComposeOptions, "color_fix", "--color-fix", ["lab", "hues", "tint", "none", None]),
    (ComposeOptions, "sharp_faces", "--sharp-faces", ["keep", "restore"]),
    (ReadOptions, "channel_order", "--channel", ["rgb", "bgr"]),
    (WriteOptions, "format", "--format", ["png", "jpg", "webp", "bmp", "tiff", "same", None]),
    (RunOptions, "no_face", "--no-face", ["copy", "skip", "fail"]),
]


@pytest.mark.parametrize("text", ["１２", "٣", "1_000", "", "one", "1２"])
def test_a_number_is_written_in_ascii_digits(text):
    for parse in (parse_number, parse_whole):
        with pytest.raises(ValueError):
            parse(text)


def test_numbers_as_people_write_them():
    assert [parse_number(text) for text in ("0.7", " -2 ", "2e7")] == [0.7, -2.0, 2e7]
    assert parse_whole("95") == 95


def refusal(kind, **values) -> str:
    with pytest.raises(UsageError) as caught:
        kind(**values)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "field", "flag", "value"),
    [(kind, field, flag, value) for kind, field, flag, _, bad in NUMBERS for value in bad],
)
def test_a_number_out_of_range_is_refused_with_flag_value_and_range(kind, field, flag, value):
    sentence = refusal(kind, **{field: value})
    assert sentence.startswith(f"{flag} {value:g} is out of range; give a value from ")


@pytest.mark.parametrize(
    ("kind", "field", "value"), [(kind, field, value) for kind, field, _, good, _ in NUMBERS for value in good]
)
def test_a_number_within_its_range_is_taken(kind, field, value):
    lower = {"min_face": 1} if field == "max_face" else {}
    assert getattr(kind(**{field: value}, **lower), field) == value


@pytest.mark.parametrize(("kind", "field", "flag", "allowed"), WORDS)
def test_a_word_that_is_not_known_is_refused_with_those_that_are(kind, field, flag, allowed):
    for word in allowed:
        assert getattr(kind(**{field: word}), field) == word
    for word in ("", "nonsense", str(allowed[0]).upper(), f"{allowed[0]} "):
        sentence = refusal(kind, **{field: word})
        assert sentence.startswith(f"{flag} {word!r} is not known; choose one of: ")
        assert all(known in sentence for known in allowed if known)


@pytest.mark.parametrize(
    ("kind", "values", "flags"),
    [
        (FaceOptions, {"only_center": True, "only_largest": True}, ["--only-center", "--only-largest"]),
        (FaceOptions, {"min_face": 50, "max_face": 49}, ["--max-face 49", "--min-face 50"]),
        (RunOptions, {"overwrite": True, "skip_existing": True}, ["--overwrite", "--skip-existing"]),
    ],
)
def test_options_that_exclude_each_other_are_both_named(kind, values, flags):
    sentence = refusal(kind, **values)
    assert all(flag in sentence for flag in flags)


def test_the_defaults_are_those_of_the_issue():
    options = Options()
    assert options.faces == FaceOptions("auto", 0.9, min_face=16, template="gpen")
    assert options.net == NetOptions("auto", device="auto", precision="auto", batch_size=4)
    assert options.compose == ComposeOptions(1.0, "auto", color_fix=None, sharpen=0.0, upscale=None)
    assert options.run == RunOptions(no_face="copy")
    assert options.write == WriteOptions(None, None)


def test_options_cannot_be_changed_and_a_typo_is_an_error():
    for part in (Options(), *(getattr(Options(), field.name) for field in dataclasses.fields(Options))):
        name = dataclasses.fields(part)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, Path())
        with pytest.raises(TypeError):
            dataclasses.replace(part, min_faec=3)


def test_options_need_nothing_heavy():
    import subprocess
    import sys

    code = "import sys, gpen_cli.options; print({'torch', 'numpy', 'cv2', 'onnxruntime', 'PIL'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
