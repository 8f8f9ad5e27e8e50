"""Weights: found where users put them, checked, read without running anything, and loaded whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from drawn_weights import drawn_gpen
from safetensors.torch import save_file

from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.models.gpen import Gpen, GpenConfig
from gpen_cli.weights import find, load
from gpen_cli.weights.find import (
    check_known,
    file_sha256,
    find_model,
    from_path,
    missing_sentence,
    require_model,
    restorer_names,
    user_folders,
)
from gpen_cli.weights.load import infer_config, load_gpen, read_state, unwrap
from gpen_cli.weights.table import MODELS

SHAPES = json.loads((Path(__file__).parent / "data" / "state_dict_shapes.json").read_text())
TINY = GpenConfig(64, style_width=32, mapping_depth=2, channel_multiplier=1, narrow=0.0625)
NOWHERE = Path("net.pth")


@pytest.fixture(scope="module")
def tiny() -> dict[str, torch.Tensor]:
    """The weights of a small GPEN, drawn."""
    return drawn_gpen(TINY, 7).state_dict()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def prefixed(prefix: str, state: dict) -> dict:
    return {prefix + name: value for name, value in state.items()}


def other(state: dict) -> dict:
    """Weights of the same net that must not be taken."""
    return {name: value + 1 for name, value in state.items()}


def saved(content, path: Path) -> Path:
    torch.save(content, path)
    return path


def same(net: Gpen, state: dict) -> bool:
    return all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


def refusal(path: Path) -> str:
    """The sentence; it begins with the file's path, so that the user knows which."""
    with pytest.raises(WeightsError) as caught:
        load_gpen(path)
    sentence = str(caught.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    return sentence


# -- wrappers and formats ----------------------------------------------------------------------------------------------

WRAPPERS = {
    "bare": lambda s: s,
    "g_ema": lambda s: {"g_ema": s},
    "GPEN's own training": lambda s: {
        "g": other(s),
        "d": {"final_conv.0.weight": torch.ones(1)},
        "g_ema": s,
        "g_optim": {},
    },
    "g alone": lambda s: {"g": s, "d": {"final_conv.0.weight": torch.ones(1)}},
    "params_ema": lambda s: {"params_ema": s},
    "params": lambda s: {"params": s},
    "params beside params_ema": lambda s: {"params": other(s), "params_ema": s},
    "state_dict": lambda s: {"state_dict": s, "epoch": 3},
    "model": lambda s: {"model": s},
    "generator": lambda s: {"generator": s, "discriminator": {"final_conv.0.weight": torch.ones(1)}},
    "module.": lambda s: prefixed("module.", s),
    "_orig_mod.": lambda s: prefixed("_orig_mod.", s),
    "module._orig_mod.": lambda s: prefixed("module._orig_mod.", s),
    "params with module.": lambda s: {"params": prefixed("module.", s)},
    "generator_ema. beside others": lambda s: {
        "state_dict": {
            **prefixed("generator.", other(s)),
            **prefixed("generator_ema.", s),
            **prefixed("discriminator.", {"final_conv.0.weight": torch.ones(1)}),
        }
    },
    "an averaged model": lambda s: {"n_averaged": torch.tensor(3), **prefixed("module.", s)},
    "a step count beside": lambda s: {**s, "step": 1000},
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_wrapper_is_taken_off_and_averaged_weights_are_preferred(tiny, tmp_path, wrapper):
    net = load_gpen(saved(WRAPPERS[wrapper](tiny), tmp_path / "net.pth"))
    assert same(net, tiny)
    assert net.config == TINY


@pytest.mark.parametrize(
    "name", ["net.pth", "net.pt", "NET.PTH", "net", "net.bin", "net.safetensors", "NET.SAFETENSORS"]
)
def test_every_suffix_is_read(tiny, tmp_path, name):
    path = tmp_path / name
    if name.lower().endswith("safetensors"):
        save_file(tiny, path)
    else:
        saved(tiny, path)
    assert same(load_gpen(path), tiny)


def test_files_of_old_torch_are_read(tiny, tmp_path):
    torch.save(tiny, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert same(load_gpen(tmp_path / "old.pth"), tiny)


def test_wrapped_safetensors_are_unwrapped(tiny, tmp_path):
    save_file(prefixed("params_ema.", tiny), tmp_path / "net.safetensors")
    assert same(load_gpen(tmp_path / "net.safetensors"), tiny)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_stored_in_another_precision_become_float32(tiny, tmp_path, dtype):
    stored = {name: value.to(dtype) for name, value in tiny.items()}
    net = load_gpen(saved(stored, tmp_path / "net.pth"))
    assert {value.dtype for value in net.state_dict().values()} == {torch.float32}
    assert same(net, {name: value.float() for name, value in stored.items()})


def test_a_loaded_net_is_ready_to_infer(tiny, tmp_path):
    net = load_gpen(saved(tiny, tmp_path / "net.pth"))
    assert not net.training
    assert not any(parameter.requires_grad for parameter in net.parameters())


# -- the configuration is read off the shapes --------------------------------------------------------------------------


def shapes_of(config: GpenConfig) -> dict[str, torch.Tensor]:
    """Tensors without storage: only shapes."""
    with torch.device("meta"):
        return Gpen(config).state_dict()


@pytest.mark.parametrize(
    "config",
    [
        GpenConfig(64, narrow=0.0625),
        GpenConfig(64, style_width=64, mapping_depth=4, channel_multiplier=1, narrow=0.25),
        GpenConfig(128, channel_multiplier=1, narrow=0.125),
        GpenConfig(128, channel_multiplier=2, narrow=0.125),
        GpenConfig(256, channel_multiplier=1, narrow=0.25),
        GpenConfig(256, channel_multiplier=4, narrow=0.5),
        GpenConfig(512, mapping_depth=1, channel_multiplier=1, narrow=0.5),
        GpenConfig(2048, channel_multiplier=2, narrow=0.125),
    ],
    ids=str,
)
def test_the_configuration_is_read_off_the_shapes(config):
    assert infer_config(shapes_of(config), NOWHERE) == config


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("GPEN-BFR-256", GpenConfig(256, channel_multiplier=1, narrow=0.5)),
        ("GPEN-BFR-512", GpenConfig(512)),
        ("GPEN-BFR-1024", GpenConfig(1024)),
        ("GPEN-BFR-2048", GpenConfig(2048)),
    ],
)
def test_the_public_files_are_recognised(name, config):
    state = {key: torch.empty(shape, device="meta") for key, shape in SHAPES[name].items()}
    assert infer_config(unwrap({"g_ema": state}, NOWHERE), NOWHERE) == config


# -- refusals ----------------------------------------------------------------------------------------------------------


def pretend(shapes: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    """Tensors of these shapes that take no room on disk."""
    return {name: torch.zeros(()).expand(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("name", [name for name in SHAPES if name.endswith("-D")])
@pytest.mark.parametrize("key", [None, "d", "params"])
def test_a_discriminator_is_named(tmp_path, name, key):
    state = pretend(SHAPES[name])
    sentence = refusal(saved({key: state} if key else state, tmp_path / f"{name}.pth"))
    assert "looks like a GPEN or StyleGAN2 discriminator" in sentence


@pytest.mark.parametrize(
    ("names", "described"),
    [
        (["stylegan_decoder.style_mlp.1.weight", "conv_body_first.weight", "to_rgbs.0.weight"], "GFPGAN"),
        (["BboxHead.0.conv1x1.weight", "body.stage1.0.0.weight"], "RetinaFace"),
        (["encoder.0.conv2d.weight", "out_mask_conv.conv2d.weight", "out_img_conv.conv2d.weight"], "ParseNet"),
        (["position_emb", "quantize.embedding.weight"], "CodeFormer"),
        (["body.0.rdb1.conv1.weight", "conv_first.weight"], "Real-ESRGAN"),
        (["style.1.weight", "convs.0.conv.weight", "to_rgbs.0.conv.weight"], "a StyleGAN2 generator"),
        (["ecd1.0.0.kernel", "generator.to_rgbs.0.bias"], "only a part of one"),
        (["layer1.0.weight", "fc.bias"], "another net (it holds params_ema.layer1.0.weight, params_ema.fc.bias…)"),
        ([], "another net (it holds nothing"),
    ],
)
def test_another_net_is_named(tmp_path, names, described):
    path = saved({"params_ema": {name: torch.ones(1) for name in names}}, tmp_path / "net.pth")
    assert "is no GPEN generator" in refusal(path)
    assert described in refusal(path)


@pytest.mark.parametrize("seed", range(8))
def test_a_file_with_half_of_the_tensors_is_refused_whichever_half(tiny, tmp_path, seed):
    kept = random.Random(seed).sample(sorted(tiny), len(tiny) // 2)
    sentence = refusal(saved({name: tiny[name] for name in kept}, tmp_path / "half.pth"))
    assert any(words in sentence for words in ("are missing", "is missing", "is no GPEN generator"))


def test_every_single_missing_tensor_is_noticed(tiny, monkeypatch):
    for name in tiny:
        monkeypatch.setattr(load, "read_state", lambda path, n=name: {k: v for k, v in tiny.items() if k != n})
        sentence = refusal(NOWHERE)
        assert any(word in sentence for word in ("missing", "only a part", "do not belong")), sentence


def test_every_single_tensor_of_another_shape_is_noticed(tiny, monkeypatch):
    for number, (name, value) in enumerate(tiny.items()):
        wrong = (torch.zeros(3, *value.shape), torch.zeros(()), torch.zeros(0, 2))[number % 3]
        monkeypatch.setattr(load, "read_state", lambda path, n=name, w=wrong: {**tiny, n: w})
        refusal(NOWHERE)


def test_one_wrong_shape_is_named(tiny, tmp_path):
    sentence = refusal(saved({**tiny, "final_linear.0.bias": torch.zeros(5)}, tmp_path / "net.pth"))
    assert "by its shapes it would be a GPEN of 64 px" in sentence
    assert "1 tensors have another shape (first: final_linear.0.bias)" in sentence


def test_a_tensor_too_many_is_named(tiny, tmp_path):
    sentence = refusal(saved({**tiny, "latent_avg": torch.zeros(5)}, tmp_path / "net.pth"))
    assert "1 tensors do not belong (first: latent_avg)" in sentence


def test_more_stages_than_any_gpen_has_are_refused(tiny, tmp_path):
    many = {**tiny, **{f"ecd{stage}.0.0.kernel": torch.zeros(4, 4) for stage in range(1, 30)}}
    assert "is no GPEN generator we know" in refusal(saved(many, tmp_path / "net.pth"))


class Malicious:
    """What an attacker puts into a pickle: unpickling it would make a file."""

    def __init__(self, made: Path) -> None:
        self.made = str(made)

    def __reduce__(self):
        return os.mkdir, (self.made,)


@pytest.mark.parametrize("kind", ["zip", "legacy", "plain pickle"])
@pytest.mark.parametrize("suffix", [".pth", ".pt", ""])
def test_nothing_in_a_file_is_ever_run(tiny, tmp_path, kind, suffix):
    made, path = tmp_path / "made", tmp_path / f"evil{suffix}"
    content = {"g_ema": tiny, "args": Malicious(made)}
    if kind == "plain pickle":
        path.write_bytes(pickle.dumps({"a": Malicious(made)}, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")
    assert "Nothing in it was run" in refusal(path)
    assert not made.exists()


def test_a_training_file_with_its_arguments_is_explained(tiny, tmp_path):
    import argparse

    path = saved({"g_ema": tiny, "args": argparse.Namespace(size=64)}, tmp_path / "net.pth")
    assert "holds other Python objects" in refusal(path)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_a_truncated_file_is_damaged(tiny, tmp_path, share, kind):
    path = tmp_path / ("net.safetensors" if kind == "safetensors" else "net.pth")
    if kind == "safetensors":
        save_file(tiny, path)
    else:
        torch.save(tiny, path, _use_new_zipfile_serialization=kind == "zip")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "damaged" in refusal(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_damage_anywhere_is_one_sentence_never_a_traceback(tmp_path, kind):
    path = tmp_path / ("net.safetensors" if kind == "safetensors" else "net.pth")
    small = {"a": torch.ones(40, 4), "b": torch.ones(3)}
    if kind == "safetensors":
        save_file(small, path)
    else:
        torch.save({"x": small}, path, _use_new_zipfile_serialization=kind == "zip")
    whole, rng = path.read_bytes(), random.Random(11)
    for _ in range(250):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 2, 5, 20))):
            damaged[rng.randrange(min(len(damaged), 600))] = rng.randrange(256)
        path.write_bytes(damaged)
        refusal(path)  # even where it reads, it is no GPEN


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("net.pth", b"", "is empty"),
        ("net.safetensors", b"", "is empty"),
        ("net.pth", b"<!DOCTYPE html><html>404</html>", "is a web page"),
        ("net.safetensors", b"\n<html><body>sign in</body></html>", "is a web page"),
        ("net.pth", b'<?xml version="1.0"?><Error>NoSuchKey</Error>', "is a web page"),
        ("net.pth", b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "Git LFS pointer"),
        ("net.pth", b"just a note", "not a plain weight file|damaged"),
        ("net.onnx", b"\x08\x07", "is an ONNX file, which PyTorch cannot run"),
        ("net.ONNX", b"\x08\x07", "is an ONNX file"),
        ("net.pth", b"\x89PNG\r\n\x1a\n" + bytes(100), "not a plain weight file|damaged"),
    ],
)
def test_a_file_of_another_kind_is_told(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    sentence = refusal(tmp_path / name)
    assert any(word in sentence for word in words.split("|")), sentence


def test_a_header_that_begins_like_a_tag_is_no_web_page(tmp_path):
    """A safetensors file begins with its header's length: its first byte may be that of '<' or a blank."""
    for length in (0x3C, 0x213C, 0x3C20, 0x0A3C):
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).ljust(length).encode()
        if len(header) == length:
            (tmp_path / "net.safetensors").write_bytes(length.to_bytes(8, "little") + header + bytes(4))
            assert list(read_state(tmp_path / "net.safetensors")) == ["a"]


def test_a_zip_that_is_no_weight_file_is_damaged(tmp_path):
    with zipfile.ZipFile(tmp_path / "net.pth", "w") as archive:
        archive.writestr("photo.jpg", b"x")
    assert "damaged" in refusal(tmp_path / "net.pth")


@pytest.mark.parametrize("content", [[1, 2], 3, "text", None, torch.ones(3)])
def test_a_file_without_a_state_dict_is_told(tmp_path, content):
    assert "no state dict" in refusal(saved(content, tmp_path / "net.pth"))


def test_names_that_are_no_text_do_no_harm(tmp_path):
    assert "is no GPEN generator" in refusal(saved({1: torch.ones(1), ("a",): 2}, tmp_path / "net.pth"))


@pytest.mark.parametrize("name", ["", "gone.pth", "gone.safetensors"])
def test_a_folder_or_a_missing_file_cannot_be_read(tmp_path, name):
    assert "cannot be read" in refusal(tmp_path / name if name else tmp_path)


# -- finding -----------------------------------------------------------------------------------------------------------

CONTENT = b"the known file"
ROW = dataclasses.replace(
    MODELS["gpen-bfr-512"],
    bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    files=("First.pth", "Second.pth"),
)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Every place that is searched, in order, each empty; and only these."""
    installed = tmp_path / "checkout" / "gpen_cli"
    monkeypatch.setattr(find, "_PACKAGE", installed)
    monkeypatch.setenv("GPEN_WEIGHTS_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("GPEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    repository, file = ROW.modelscope
    return [
        tmp_path / "own" / "First.pth",
        tmp_path / "own" / "Second.pth",
        tmp_path / "work" / "pretrained_models" / "First.pth",
        tmp_path / "checkout" / "pretrained_models" / "First.pth",
        installed / "pretrained_models" / "Second.pth",
        tmp_path / "cache" / "weights" / "First.pth",
        tmp_path / "modelscope" / "hub" / "models" / repository / file,
        tmp_path / "modelscope" / "hub" / repository / file,
        tmp_path / "modelscope" / "models" / repository / file,
        tmp_path / "modelscope" / repository / file,
    ]


PLACED_BY_USER = 6
"""How many of ``places`` are the user's own; gpen's own cache holds what they asked for; the others are caches of others."""


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_nothing_is_found_where_nothing_is(places):
    assert find_model(ROW) is None


def test_every_place_is_searched_and_the_first_wins(places):
    for path in reversed(places):
        put(path)
        found = find_model(ROW)
        assert found.path == path
        assert found.model is ROW


def test_a_cache_is_no_place_where_a_user_put_it(places):
    for number, path in reversed(list(enumerate(places))):
        put(path)
        assert find_model(ROW).placed_by_user == (number < PLACED_BY_USER)


def test_caches_can_be_left_out_so_that_damage_there_harms_nobody(places):
    put(places[PLACED_BY_USER], b"damaged")
    assert find_model(ROW, in_caches=False) is None
    with pytest.raises(WeightsError):
        find_model(ROW)


def test_without_the_variables_the_usual_places_are_searched(places, tmp_path, monkeypatch):
    monkeypatch.delenv("GPEN_WEIGHTS_DIR")
    monkeypatch.delenv("MODELSCOPE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_folders()[0] == tmp_path / "work" / "pretrained_models"
    path = put(tmp_path / "home" / ".cache" / "modelscope" / "hub" / ROW.modelscope[0] / ROW.modelscope[1])
    assert find_model(ROW).path == path


def test_a_folder_under_a_weight_files_name_is_no_file(places):
    places[0].mkdir(parents=True)
    put(places[3])
    assert find_model(ROW).path == places[3]


def test_a_place_that_cannot_be_searched_holds_nothing(places, monkeypatch):
    def denied(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", denied)
    assert find_model(ROW) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (CONTENT[:-1], "is cut off or damaged: 13 bytes instead of 14"),
        (CONTENT + b"!", "is not the known file: 15 bytes instead of 14"),
        (b"x" * len(CONTENT), "is damaged or another file: SHA-256"),
        (b"", "is cut off or damaged"),
    ],
)
@pytest.mark.parametrize("place", [0, 5])
def test_a_file_under_a_known_name_that_is_not_the_known_file_is_refused(places, content, words, place):
    put(places[place], content)
    put(places[-1])  # a good copy further on does not hide the damage
    with pytest.raises(WeightsError, match=words) as caught:
        find_model(ROW)
    assert str(places[place]) in str(caught.value)
    assert ROW.mirrors[0] in str(caught.value)


def test_a_known_file_that_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(WeightsError, match=r"gone\.pth cannot be read: No such file or directory"):
        check_known(tmp_path / "gone.pth", ROW)


def test_a_file_without_a_known_hash_is_taken_by_its_name(places):
    unknown = dataclasses.replace(ROW, bytes=None, sha256=None)
    put(places[0], b"whatever")
    assert find_model(unknown).path == places[0]


# -- the hash is remembered --------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """Weight files opened for hashing, in order."""
    opened: list[Path] = []
    real = Path.open

    def counted(self, mode="r", *args, **kwargs):
        if mode == "rb":
            opened.append(self)
        return real(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", counted)
    return opened


def test_a_file_is_hashed_once(tmp_path, reads):
    path = put(tmp_path / "net.pth")
    assert [file_sha256(path) for _ in range(3)] == [ROW.sha256] * 3
    assert reads == [path]


def test_a_changed_file_is_hashed_again(tmp_path, reads):
    path = put(tmp_path / "net.pth")
    file_sha256(path)
    put(path, b"THE KNOWN FILE")  # the same size
    os.utime(path, ns=(1, 1))
    assert file_sha256(path) == hashlib.sha256(b"THE KNOWN FILE").hexdigest()
    assert len(reads) == 2


def test_two_files_are_remembered_apart(tmp_path, reads):
    first, second = put(tmp_path / "a"), put(tmp_path / "b", b"other content!")
    assert file_sha256(first) != file_sha256(second)
    assert file_sha256(first) == ROW.sha256
    assert reads == [first, second]


@pytest.mark.parametrize("memory", [b"", b"{", b"[]", b'{"x": 1}', b"\xff\xfe"])
def test_a_damaged_memory_is_made_anew(tmp_path, reads, memory):
    path = put(tmp_path / "net.pth")
    put(Path(os.environ["GPEN_CACHE_DIR"]) / "verified.json", memory)
    assert [file_sha256(path) for _ in range(2)] == [ROW.sha256] * 2
    assert len(reads) == 1


@pytest.mark.parametrize("entry", [3, {}, {"stamp": None}, {"stamp": [14, 0], "sha256": "0" * 64}, {"sha256": 5}])
def test_a_memory_of_something_else_is_not_believed(tmp_path, entry):
    path = put(tmp_path / "net.pth")
    put(Path(os.environ["GPEN_CACHE_DIR"]) / "verified.json", json.dumps({str(path): entry}).encode())
    assert file_sha256(path) == ROW.sha256


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch, reads):
    path = put(tmp_path / "net.pth")
    monkeypatch.setenv("GPEN_CACHE_DIR", str(put(tmp_path / "a-file") / "cache"))
    assert [file_sha256(path) for _ in range(2)] == [ROW.sha256] * 2
    assert len(reads) == 2


# -- what users are told -----------------------------------------------------------------------------------------------


def test_a_missing_file_is_told_with_all_that_is_needed_to_get_it(places):
    sentence = missing_sentence(MODELS["gpen-bfr-512"])
    for part in (
        MODELS["gpen-bfr-512"].mirrors[0],
        "284,085,738 bytes",
        MODELS["gpen-bfr-512"].sha256,
        "GPEN-BFR-512.pth",
    ):
        assert part in sentence
    assert "non-commercial" in sentence
    assert f"into {user_folders()[0]}" in sentence
    assert "--weights PATH" in sentence


def test_a_missing_file_without_a_known_hash_says_so(places):
    assert "size not known, no known hash" in missing_sentence(MODELS["gpen-bfr-2048"])


def test_missing_embedded_weights_mean_a_broken_installation(places):
    assert "install gpen again" in missing_sentence(MODELS["gpen-open-256"])


def test_asking_by_name(places, monkeypatch):
    with pytest.raises(UsageError, match=r"--model 'gpen-9' is not known; choose one of: gpen-open-256"):
        require_model("gpen-9")
    with pytest.raises(WeightsError, match="are not on this machine"):
        require_model("gpen-bfr-512")
    monkeypatch.setitem(MODELS, "gpen-bfr-512", ROW)
    put(places[0])
    assert require_model("gpen-bfr-512").path == places[0]


def test_a_file_of_ones_own_is_taken_and_called_by_its_name(tmp_path):
    path = put(tmp_path / "my net.pth", b"anything")
    found = from_path(path)
    assert (found.path, found.model, found.name) == (path, None, "my net")
    assert "not known" in found.licence


def test_a_known_file_under_another_name_is_recognised(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "gpen-bfr-512", ROW)
    found = from_path(put(tmp_path / "renamed.bin"))
    assert (found.name, found.licence) == ("gpen-bfr-512", ROW.licence)
    assert from_path(put(tmp_path / "renamed.bin", b"x" * len(CONTENT))).model is None


@pytest.mark.parametrize(
    ("name", "words"), [("", "is a folder"), ("gone.pth", "does not exist"), ("file/x.pth", "does not exist")]
)
def test_a_path_that_is_no_file_is_one_sentence(tmp_path, name, words):
    put(tmp_path / "file")
    with pytest.raises(WeightsError, match=words) as caught:
        from_path(tmp_path / name)
    assert str(caught.value).startswith(f"--weights {tmp_path / name}")


def test_a_path_without_permission_is_one_sentence(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setitem(MODELS, "gpen-bfr-512", ROW)
    monkeypatch.setattr(find, "file_sha256", denied)
    with pytest.raises(WeightsError, match="cannot be read: Permission denied"):
        from_path(put(tmp_path / "net.pth"))


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_names_every_net_of_the_issue_with_what_is_known_of_it():
    assert restorer_names() == ["gpen-open-256", *(f"gpen-bfr-{size}" for size in (256, 512, 1024, 2048))]
    assert {"retinaface-mobile", "retinaface-r50", "parsenet"} <= set(MODELS)
    for name, model in MODELS.items():
        assert name == model.name
        assert model.licence
        assert model.paper
        assert model.package or model.files
        assert model.embedded or all(url.startswith("https://") for url in model.mirrors)
        assert model.embedded or model.mirrors
        assert (model.bytes is None) == (model.sha256 is None)
        assert model.sha256 is None or len(bytes.fromhex(model.sha256)) == 32


def test_the_embedded_net_is_whole_and_loads(monkeypatch):
    monkeypatch.delenv("GPEN_WEIGHTS_DIR", raising=False)
    found = require_model("gpen-open-256")
    assert load_gpen(found.path).config.size == found.model.crop_size


def test_finding_weights_needs_no_torch():
    code = (
        "import sys, gpen_cli.weights.table, gpen_cli.weights.find; print({'torch', 'cv2', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
