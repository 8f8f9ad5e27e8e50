"""``gpen train``: train a net."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpen_cli.cli.exits import exit_codes, text_may_go_unread
from gpen_cli.cli.help import Command, Group
from gpen_cli.cli.prepare import prepare
from gpen_cli.errors import INTERRUPTED, TERMINATED

if TYPE_CHECKING:
    from gpen_cli.train.config import TrainConfig

app = typer.Typer(
    cls=Group,
    help="Train a net on aligned faces; make such faces from photos.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def train(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE.toml|NAME", help="Settings; flags go before them. NAME: a shipped net's."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What the run and its weights are called.")] = None,
    data: Annotated[
        list[Path] | None, typer.Option("--data", metavar="DIR", help="Folder of aligned crops; may be repeated.")
    ] = None,
    hr_dir: Annotated[Path | None, typer.Option("--hr-dir", help="Sharp crops of pairs.")] = None,
    lr_dir: Annotated[Path | None, typer.Option("--lr-dir", help="Degraded crops of the same names.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME|DIR", help="A Hugging Face dataset, streamed.")
    ] = None,
    face_net: Annotated[
        Path | None,
        typer.Option("--face-net", metavar="FILE", help="Face recognition net of the losses (docs/training.md)."),
    ] = None,
    size: Annotated[int | None, typer.Option("--size", help="Side of the crop: 64, 128, … 1024.")] = None,
    narrow: Annotated[float | None, typer.Option("--narrow", help="Share of GPEN's channels.")] = None,
    channel_multiplier: Annotated[
        int | None, typer.Option("--channel-multiplier", help="Channels from 64 px on, times this.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option("--start", metavar="WEIGHTS", help="Go on from a net of the same shape.")
    ] = None,
    grow_from: Annotated[
        Path | None, typer.Option("--grow-from", metavar="WEIGHTS", help="Start from a net of half the size.")
    ] = None,
    start_judges: Annotated[
        Path | None,
        typer.Option(
            "--start-judges", metavar="FILE", help="Go on with an earlier training's NAME.judges.safetensors."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps in all.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Faces a step and process.")] = None,
    accumulate: Annotated[int | None, typer.Option("--accumulate", help="Batches a step.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of everything that is drawn.")] = None,
    validation: Annotated[
        Path | None, typer.Option("--validation", metavar="DIR", help="Crops that are never trained on, for the sheet.")
    ] = None,
    validate_every: Annotated[int | None, typer.Option("--validate-every", help="Steps between two sheets.")] = None,
    checkpoint_minutes: Annotated[
        float | None, typer.Option("--checkpoint-minutes", help="Between checkpoints.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Default: training/NAME in the cache folder.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", metavar="auto|cpu|cuda[:N]")] = None,
    precision: Annotated[str | None, typer.Option("--precision", metavar="auto|bf16|fp32")] = None,
    compile: Annotated[bool | None, typer.Option("--compile/--no-compile", help="Compile the steps (minutes).")] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="CPU threads.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes that make batches.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's checkpoint.")] = False,
    stop_after: Annotated[
        int | None,
        typer.Option("--stop-after", metavar="STEP", help="End early, saved; the schedule stays that of --steps."),
    ] = None,
) -> None:
    """Train a GPEN net. Ctrl-C saves and ends; --resume goes on as if nothing had been. With torchrun: one process a device."""
    if context.invoked_subcommand is not None:
        return
    flags: dict[str, dict[str, Any]] = {
        "": {"name": name, "device": device, "precision": precision, "compile": compile, "threads": threads},
        "net": {
            "size": size,
            "narrow": narrow,
            "channel_multiplier": channel_multiplier,
            "start": start,
            "grow_from": grow_from,
        },
        "data": {
            "folders": tuple(data) if data else None,
            "hr_dir": hr_dir,
            "lr_dir": lr_dir,
            "dataset": dataset,
            "workers": workers,
        },
        "loss": {"face_net": face_net},
        "discriminator": {"start": start_judges},
        "schedule": {"steps": steps, "batch": batch_size, "accumulate": accumulate, "rate": rate, "seed": seed},
        "output": {
            "folder": output,
            "validation": validation,
            "validate_every": validate_every,
            "checkpoint_minutes": checkpoint_minutes,
        },
    }
    with exit_codes():
        from gpen_cli import log

        log.set_up("info", None)
        _train(_settings(config, flags), resume=resume, until=stop_after)


def _settings(path: Path | None, flags: dict[str, dict[str, Any]]) -> TrainConfig:
    """The file's settings, with the flags that were given in their place."""
    from gpen_cli.train.config import TrainConfig
    from gpen_cli.train.config_file import read_config

    settings = TrainConfig() if path is None else read_config(path)
    for table, values in flags.items():
        given = {key: value for key, value in values.items() if value is not None}
        if table == "":
            settings = dataclasses.replace(settings, **given)
        else:
            settings = dataclasses.replace(settings, **{table: dataclasses.replace(getattr(settings, table), **given)})
    return settings


def _train(settings: TrainConfig, *, resume: bool, until: int | None) -> None:
    import logging

    from gpen_cli.device import has_package, settle_process
    from gpen_cli.errors import DeviceError

    if not has_package("torch"):
        raise DeviceError("gpen train needs PyTorch, which is not installed: python -m pip install torch torchvision")
    settle_process()
    from gpen_cli.train.processes import join
    from gpen_cli.train.setup import prepare_device
    from gpen_cli.train.trainer import Trainer

    device = prepare_device(settings)
    processes = join(device)
    try:
        with _signals() as caught:
            trainer = Trainer(settings, device, processes, resume=resume)
            log = logging.getLogger(__name__)
            log.info(
                "%d photos, step %d of %d, %s, %s",
                len(trainer.samples),
                trainer.step,
                settings.schedule.steps,
                trainer.config.precision,
                trainer.folder,
            )
            done = trainer.run(lambda: bool(caught), until=until)
            speed = done.images / max(done.seconds, 1e-9)
            log.info(
                "step %d: %.2f images a second, %.0f %% of the time waiting for data",
                done.step,
                speed,
                100 * done.waiting,
            )
            if processes.writes:
                with text_may_go_unread():
                    print(done.weights)
        if caught:
            raise typer.Exit(INTERRUPTED if caught[0] == signal.SIGINT else TERMINATED)
    finally:
        processes.close()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM instead of dying of them; a second one has its usual effect."""
    caught: list[int] = []

    def note(number: int, _: object) -> None:
        caught.append(number)
        signal.signal(number, previous[number])
        os.write(2, b"stopping: this step is finished and saved\n")

    previous = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, note)
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


app.command("prepare", cls=Command)(prepare)
