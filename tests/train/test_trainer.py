"""A training is a pure function of settings, faces and steps: resumed, or on two processes, it ends with the same net."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from gpen_cli.cli.main import app
from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.train import checkpoint
from gpen_cli.train.config import (
    DataConfig,
    DiscriminatorConfig,
    LossConfig,
    NetConfig,
    OutputConfig,
    ScheduleConfig,
    TrainConfig,
)
from gpen_cli.train.config_file import as_mapping, from_mapping, read_config
from gpen_cli.train.nets import start_judges
from gpen_cli.train.processes import Processes
from gpen_cli.train.schedule import judge_strength, keep_factor, rate_factor
from gpen_cli.train.trainer import Trainer
from gpen_cli.weights.load import load_gpen

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, astronaut: np.ndarray, hopper: np.ndarray) -> tuple[Path, Path]:
    """(hr, lr): six faces of 64 px, and the same blurred."""
    root = tmp_path_factory.mktemp("pairs")
    for number, photo in enumerate((astronaut[:256, 96:352], hopper[40:340, 120:420], astronaut[40:220, 140:320])):
        face = cv2.resize(np.ascontiguousarray(photo), (64, 64), interpolation=cv2.INTER_AREA)
        for mirrored in (0, 1):
            sharp = np.ascontiguousarray(face[:, ::-1] if mirrored else face)
            for folder, pixels in (("hr", sharp), ("lr", cv2.GaussianBlur(sharp, (0, 0), 1.5))):
                (root / folder).mkdir(exist_ok=True)
                Image.fromarray(pixels).save(root / folder / f"{number}{mirrored}.png")
    return root / "hr", root / "lr"


@pytest.fixture
def config(pairs: tuple[Path, Path], tmp_path: Path) -> TrainConfig:
    """A 64 px net of 0.4 million parameters, with judges and the estimated R1."""
    hr, lr = pairs
    return TrainConfig(
        name="tiny",
        precision="fp32",
        compile=False,
        net=NetConfig(size=64, narrow=0.0625, style_width=64, mapping_depth=2),
        data=DataConfig(hr_dir=hr, lr_dir=lr, workers=0),
        loss=LossConfig(perceptual=0.0, adversarial=0.1, r1_form="difference"),
        discriminator=DiscriminatorConfig(views=("random", "whole"), size=32, narrow=0.03125),
        schedule=ScheduleConfig(steps=6, batch=2, warm_up=2, ramp=2),
        output=OutputConfig(folder=tmp_path / "run", validate_every=3, log_every=2),
    )


def never() -> bool:
    return False


def train(config: TrainConfig, *, resume: bool = False, until: int | None = None) -> dict[str, torch.Tensor]:
    """The average's weights after a training."""
    trainer = Trainer(config, CPU, Processes(), resume=resume)
    trainer.run(never, until=until)
    return trainer.nets.average.state_dict()


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("r1_form", ["difference", "exact"])
def test_stopped_and_resumed_it_ends_with_the_weights_of_one_go(
    config: TrainConfig, tmp_path: Path, r1_form: str
) -> None:
    config = dataclasses.replace(config, loss=dataclasses.replace(config.loss, r1_form=r1_form, r1_every=2))
    whole = train(dataclasses.replace(config, output=dataclasses.replace(config.output, folder=tmp_path / "whole")))
    half = train(config, until=3)
    assert not torch.equal(whole["ecd0.0.0.weight"], half["ecd0.0.0.weight"])
    assert_same(train(config, resume=True), whole)
    left = {path.name: path.stat().st_mode for path in config.output.folder.iterdir() if path.is_file()}
    assert left["tiny.safetensors"] == left["log.jsonl"]  # for all who may read what the user writes


@pytest.mark.parametrize(("has_bf16", "precision"), [(True, "bf16"), (False, "fp32")])
def test_without_a_word_it_computes_in_what_the_cpu_is_fast_in(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, has_bf16: bool, precision: str
) -> None:
    monkeypatch.setattr("gpen_cli.device.cpu_has_bf16", lambda: has_bf16)
    trainer = Trainer(dataclasses.replace(config, precision="auto"), CPU, Processes(), resume=False)
    trainer.run(never, until=1)
    assert checkpoint.read(trainer.folder)["config"]["precision"] == precision
    assert trainer.steps.dtype == {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]


@pytest.mark.parametrize("has_bf16", [True, False])
def test_slow_bf16_that_was_asked_for_is_named(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_bf16: bool
) -> None:
    monkeypatch.setattr("gpen_cli.train.setup.cpu_has_bf16", lambda: has_bf16)
    trainer = Trainer(dataclasses.replace(config, precision="bf16"), CPU, Processes(), resume=False)
    assert trainer.config.precision == "bf16"
    assert ("no bf16 instructions" in caplog.text) is not has_bf16


def test_judges_go_on_from_those_of_an_earlier_training(
    config: TrainConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = Trainer(config, CPU, Processes(), resume=False)
    trainer.run(never, until=2)
    left = trainer.folder / "tiny.judges.safetensors"

    def start(path: Path, **changes: object) -> dict[str, torch.Tensor]:
        judges = dataclasses.replace(config.discriminator, start=path, **changes)
        return start_judges(dataclasses.replace(config, discriminator=judges)).state_dict()

    expected = {name: value.half().float() for name, value in trainer.nets.judges.state_dict().items()}
    assert_same(start(left), expected)
    assert "no judge of the view" not in caplog.text
    more = start(left, views=("random", "inner"))
    assert torch.equal(more["random.convs.0.0.weight"], expected["random.convs.0.0.weight"])
    assert "no judge of the view inner" in caplog.text
    with pytest.raises(UsageError, match="another shape"):
        start(left, narrow=0.0625)
    with pytest.raises(UsageError, match="holds no judges of random, whole"):
        start(trainer.folder / "tiny.safetensors")
    with pytest.raises(WeightsError, match="nowhere"):
        start(tmp_path / "nowhere.safetensors")
    with pytest.raises(UsageError, match="leave it out"):
        start_judges(
            dataclasses.replace(
                config,
                loss=dataclasses.replace(config.loss, adversarial=0.0),
                discriminator=dataclasses.replace(config.discriminator, start=left),
            )
        )


def test_every_term_reaches_its_net(config: TrainConfig) -> None:
    trainer = Trainer(config, CPU, Processes(), resume=False)
    before = {name: value.clone() for name, value in trainer.nets.judges.state_dict().items()}
    start = {name: value.clone() for name, value in trainer.nets.generator.state_dict().items()}
    trainer.run(never)
    after, end = trainer.nets.judges.state_dict(), trainer.nets.generator.state_dict()
    assert all(not torch.equal(before[n], after[n]) for n in before if n.endswith("weight"))
    assert all(not torch.equal(start[n], end[n]) for n in start if n.endswith("weight"))
    lines = [json.loads(line) for line in (trainer.folder / "log.jsonl").read_text().splitlines()]
    assert {"l1", "adversarial", "matching", "judge random", "judge whole", "r1 whole", "rate"} <= set(lines[-1])


def test_gradients_add_up_over_the_parts_of_a_step(config: TrainConfig, tmp_path: Path) -> None:
    # Without judges, whose random views are drawn for each part, four faces at once are twice two.
    plain = dataclasses.replace(
        config, loss=LossConfig(perceptual=0.0), data=dataclasses.replace(config.data, mirror=False)
    )
    still = dataclasses.replace(plain.data, max_rotation=0.0, max_shift=0.0, max_scale=0.0)
    results = []
    for batch, accumulate in ((4, 1), (2, 2)):
        schedule = dataclasses.replace(plain.schedule, steps=1, batch=batch, accumulate=accumulate)
        output = OutputConfig(folder=tmp_path / f"{batch}")
        results.append(train(dataclasses.replace(plain, data=still, schedule=schedule, output=output)))
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], atol=1e-5, rtol=1e-3)


def test_the_weights_are_what_gpen_enhance_takes(config: TrainConfig) -> None:
    average = train(config, until=2)
    assert config.output.folder is not None
    net = load_gpen(config.output.folder / "tiny.safetensors")
    assert net.config.size == 64
    torch.testing.assert_close(net.state_dict()["ecd0.0.0.weight"], average["ecd0.0.0.weight"], atol=2e-3, rtol=2e-3)


def test_it_learns_and_the_sheet_shows_it(config: TrainConfig, pairs: tuple[Path, Path]) -> None:
    output = dataclasses.replace(config.output, validation=pairs[0], validation_degraded=pairs[1], validate_every=20)
    config = dataclasses.replace(
        config,
        output=dataclasses.replace(output, log_every=5),
        loss=LossConfig(perceptual=0.0),
        schedule=dataclasses.replace(config.schedule, steps=40, warm_up=5, average=0.5),
    )
    train(config)
    folder = config.output.folder
    assert folder is not None
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    losses = [line["l1"] for line in lines if "l1" in line]
    psnr = [line["validation PSNR"] for line in lines if "validation PSNR" in line]
    assert losses[-1] < 0.6 * losses[0]
    assert psnr[-1] > psnr[0] + 1
    sheet = np.asarray(Image.open(folder / "sheets" / "step_000040.png"))
    assert sheet.shape == (3 * 192, 6 * 192, 3)


def test_stop_is_heard_at_the_next_step_and_saved(config: TrainConfig) -> None:
    trainer = Trainer(config, CPU, Processes(), resume=False)
    heard = iter([False, False, True])
    done = trainer.run(lambda: next(heard))
    assert (done.step, done.finished) == (2, False)
    assert checkpoint.read(trainer.folder)["step"] == 2


def test_a_checkpoint_is_replaced_in_one_step(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(config, until=1)
    folder = config.output.folder
    assert folder is not None
    before = (folder / checkpoint.NAME).read_bytes()

    def full(content: object, file: object) -> None:
        file.write(b"half")
        raise RuntimeError("No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full)
    with pytest.raises(Exception, match=r"cannot be written .*No space"):
        checkpoint.save(folder, 9, {}, {})
    assert (folder / checkpoint.NAME).read_bytes() == before
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut off"])
def test_a_damaged_checkpoint_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / checkpoint.NAME).write_bytes(content)
    with pytest.raises(WeightsError, match="damaged"):
        checkpoint.read(tmp_path)


def test_no_checkpoint_and_a_foreign_one(config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no checkpoint"):
        Trainer(config, CPU, Processes(), resume=True)
    train(config, until=1)
    wider = dataclasses.replace(config, net=dataclasses.replace(config.net, narrow=0.125))
    with pytest.raises(WeightsError, match="another training"):
        Trainer(wider, CPU, Processes(), resume=True)


def test_two_processes_train_as_one_with_twice_the_batch(config: TrainConfig, tmp_path: Path) -> None:
    plain = dataclasses.replace(config, loss=LossConfig(perceptual=0.0))
    one = dataclasses.replace(plain, schedule=dataclasses.replace(config.schedule, steps=3, batch=4))
    alone = train(one)
    folder = tmp_path / "two"
    assert config.data.hr_dir is not None
    assert config.data.lr_dir is not None
    settings = tmp_path / "two.toml"
    settings.write_text(
        'name = "tiny"\nprecision = "fp32"\ncompile = false\nthreads = 1\n'
        "[net]\nsize = 64\nnarrow = 0.0625\nstyle_width = 64\nmapping_depth = 2\n"
        f'[data]\nhr_dir = "{config.data.hr_dir}"\nlr_dir = "{config.data.lr_dir}"\nworkers = 0\n'
        "[loss]\nperceptual = 0\n[schedule]\nsteps = 3\nbatch = 2\nwarm_up = 2\nramp = 2\n"
        f'[output]\nfolder = "{folder}"\n'
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "gpen_cli", "train", "--config", str(settings)]
    running = [
        subprocess.Popen(
            command, env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in ("0", "1")
    ]
    messages = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], messages
    together = load_gpen(folder / "tiny.safetensors").state_dict()
    for name, value in together.items():
        torch.testing.assert_close(value, alone[name], atol=5e-3, rtol=5e-3)


def test_schedules() -> None:
    schedule = ScheduleConfig(steps=100, warm_up=10, last_rate=0.1, ramp=20, average=0.99)
    factors = [rate_factor(schedule, step) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == pytest.approx(1.0)
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[-1] == pytest.approx(0.1, abs=0.01)
    assert keep_factor(schedule, 0) == pytest.approx(0.5)
    assert keep_factor(schedule, 10**6) == 0.99
    assert [judge_strength(schedule, step) for step in (0, 10, 20, 99)] == [0.0, 0.5, 1.0, 1.0]


def test_settings_survive_toml_and_back(config: TrainConfig, tmp_path: Path) -> None:
    assert from_mapping(as_mapping(config), "test") == config
    shipped = read_config(Path("gpen-open-256"))
    assert (shipped.net.size, shipped.net.narrow) == (256, 0.25)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[net]\nsise = 64", r"net\.sise is no setting"),
        ("[net]\nsize = 'big'", "must be a int"),
        ("[data]\nmirror = 1", "must be a bool"),
        ("[degradation]\nsigma = [1.0]", "list of 2"),
        ("net = 3", "must be a table"),
        ("[net", "no TOML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_config(path)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--steps", "1"], 2, "No faces"),
        (["--config", "nowhere.toml"], 2, "gpen-open-256"),
        (["--data", "nowhere", "--size", "100"], 2, "--size"),
        (["--data", "nowhere", "--rate", "0"], 2, "rate"),
        (["--data", "nowhere"], 2, "nowhere"),
        (["--data", ".", "--precision", "int3"], 2, "precision"),
    ],
)
def test_a_wrong_call_is_one_sentence(
    arguments: list[str], code: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = CliRunner().invoke(app, ["train", *arguments])
    assert result.exit_code == code
    said = result.output + capfd.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_the_example_learns_from_one_pair(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    for folder in pairs:
        (tmp_path / folder.name).mkdir()
        (tmp_path / folder.name / "face.png").write_bytes((folder / "00.png").read_bytes())
    command = [sys.executable, "examples/train_sample.py", "--steps", "20", "--output", str(tmp_path / "run")]
    command += ["--hr_dir", str(tmp_path / "hr"), "--lr_dir", str(tmp_path / "lr")]
    root = Path(__file__).parent.parent.parent
    result = subprocess.run(
        command, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    losses = [float(line.split()[-1]) for line in result.stdout.splitlines() if "loss" in line]
    assert losses[-1] < losses[0]
    assert len(list((tmp_path / "run" / "sheets").glob("*.png"))) == 4
    assert (tmp_path / "run" / "sample.safetensors").exists()
