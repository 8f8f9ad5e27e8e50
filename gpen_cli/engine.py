"""What stays loaded for a run: the detector, the nets, the parser; and which net a face goes to."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpen_cli import __version__
from gpen_cli.cache import cache_dir, read_json, write_json
from gpen_cli.data import Face
from gpen_cli.detect import make_detector
from gpen_cli.detect.protocol import Detector
from gpen_cli.device import Setup, has_package
from gpen_cli.errors import DeviceError, UsageError, WeightsError
from gpen_cli.geometry import crop_from_photo, scale_of
from gpen_cli.onnx_nets import known_onnx, named_onnx, settle, suits_short_run, with_own_precision
from gpen_cli.options import NetOptions, Options
from gpen_cli.runtime import make_net, settle_thread
from gpen_cli.runtime.choice import choose_runtime, gains_by_lanes, is_compiled, is_light
from gpen_cli.runtime.known_answer import doubt
from gpen_cli.runtime.protocol import CropNet
from gpen_cli.weights.find import (
    FoundWeights,
    content_sha256,
    find_model,
    from_path,
    missing_sentence,
    require_model,
    restorer_names,
)
from gpen_cli.weights.table import MODELS

log = logging.getLogger(__name__)

PARSER = "parsenet"
NET_BORDER = 1.25
"""A face goes to the smallest net whose crop, times this, covers its crop in the photo: up to there a smaller crop loses
nothing the larger one would keep (``benchmarks/net_border.py``, docs/models.md)."""


@dataclass(frozen=True)
class NetChoice:
    """A net that can be used, not yet loaded. crop_size in pixels."""

    name: str
    crop_size: int
    weights: FoundWeights


class Engine:
    """Detector, nets and parser of a run. Nets are loaded when first asked for, on the thread that asks (the batcher's)."""

    def __init__(
        self, *, detector: Detector | None, choices: list[NetChoice], parser: FoundWeights | None, setup: Setup
    ) -> None:
        self.setup = setup
        self.choices = sorted(choices, key=lambda choice: choice.crop_size)
        self.parser = parser
        self._detector = detector
        self._nets: dict[tuple[str, int], CropNet] = {}
        """By name and lane."""
        self._settled: set[int] = set()
        """Threads that were told how many a pass may take."""
        self._lock = threading.Lock()

    @property
    def detector(self) -> Detector:
        """Raises RuntimeError for an engine built for aligned crops, which has none."""
        if self._detector is None:
            raise RuntimeError("this engine was built for aligned crops")
        return self._detector

    @property
    def detector_name(self) -> str | None:
        return self._detector.name if self._detector else None

    @property
    def preload(self) -> tuple[str, ...]:
        """The nets to load before it is known which faces come: the only one, or those that cost little."""
        only = len(self.choices) == 1
        return tuple(choice.name for choice in self.choices if only or is_light(choice.weights))

    def choose(self, side: float) -> NetChoice:
        """The net for a face whose crop is ``side`` photo pixels wide."""
        for choice in self.choices:
            if side <= choice.crop_size * NET_BORDER:
                return choice
        return self.choices[-1]

    @property
    def lanes(self) -> tuple[Callable[[str], CropNet], ...]:
        """For the batcher: the nets of each pass that runs at a time (on a device of its own, or beside others on the CPU)."""
        return tuple(
            functools.partial(self._on_lane, lane=lane) for lane in range(len(self.setup.devices) * self.setup.lanes)
        )

    def _on_lane(self, name: str, *, lane: int) -> CropNet:
        net = self.net(name, lane=lane)
        if self.setup.lanes > 1 and threading.get_ident() not in self._settled:
            settle_thread(self.setup)  # the net may have been loaded on another thread
            self._settled.add(threading.get_ident())
        return net

    def net(self, name: str, *, lane: int = 0) -> CropNet:
        """The loaded net of one lane. Raises WeightsError, DeviceError."""
        with self._lock:
            if (name, lane) not in self._nets:
                setup = self.setup.on(self.setup.devices[lane // self.setup.lanes])
                if name == PARSER and self.parser is not None:
                    net = make_net(self.parser, setup, parser=True)
                else:
                    choice = next(item for item in self.choices if item.name == name)
                    net = make_net(choice.weights, setup)
                self._nets[name, lane] = net
            return self._nets[name, lane]

    def add_net(self, net: CropNet, weights: FoundWeights) -> None:
        """Puts in a net that is loaded already (its size was not known otherwise), or a stand-in of a test."""
        self.choices = sorted(
            [*self.choices, NetChoice(net.name, net.crop_size, weights)], key=lambda choice: choice.crop_size
        )
        self._nets[net.name, 0] = net


def crop_side(face: Face, template: str) -> float:
    """Side of the face's aligned crop, in photo pixels."""
    unit = 256
    return unit / scale_of(crop_from_photo(face.landmarks, template, unit))


def build_engine(
    options: Options, *, earlier: Setup | None = None, photos: int | None = 1, start_counts: bool = False
) -> Engine:
    """Everything a run needs, found and settled; what is missing is said here, before any photo is read.

    earlier: the setup of the run that is resumed; it holds wherever the options leave the choice to gpen. photos: how many are to
    be done (None: nobody knows), which decides whether compiling pays. start_counts: the process ends with these photos, so that
    the time to start is part of their time. Raises UsageError, WeightsError, DeviceError.
    """
    parser = None if options.run.aligned and options.compose.mask == "auto" else _find_parser(options.compose.mask)
    r50 = None if options.run.aligned else _find_r50(options.faces.detector)
    needs_torch = parser is not None or r50 is not None
    short = start_counts and not needs_torch and suits_short_run(options.net, photos)
    setup = settle(options.net, earlier, short=short)
    if short and setup.runtime == "onnx" and earlier is None:
        setup = replace(
            setup, precision_reason=f"{setup.precision_reason}; a short run, for which PyTorch starts too slowly"
        )
    detector = None
    if not options.run.aligned:
        detector = make_detector(options.faces, r50_weights=r50, device=setup.torch_device, threads=1)
    onnx = setup.runtime == "onnx"
    named = None
    if options.net.weights is not None:
        named = named_onnx(options.net) if onnx else from_path(options.net.weights)
    choices = [] if named else _choices(options.net, onnx=onnx)
    files = [named] if named else [choice.weights for choice in choices]
    if onnx:
        setup = with_own_precision(setup, files, options.net.precision)
    else:
        if start_counts and earlier is None and gains_by_lanes(setup, files, photos):
            setup = setup.in_lanes()
        setup = choose_runtime(options.net, setup, files, photos, resumed=earlier is not None)
    engine = Engine(detector=detector, choices=choices, parser=parser, setup=setup)
    if named:
        _add_named(engine, named)
    elif setup.compiled:
        _compile_first(engine, options.net)
    return engine


def _compile_first(engine: Engine, options: NetOptions) -> None:
    """Compiles the first net that is not compiled yet before anything is written down: where that fails unasked, the run is an
    eager one. What lies ready is loaded while the first photos are read."""
    missing = next((choice for choice in engine.choices if not is_compiled(choice.weights, engine.setup)), None)
    if missing is None:
        return
    from gpen_cli.runtime.torch_compiled import CompileError

    try:
        engine.net(missing.name)
    except CompileError as error:
        if options.runtime != "auto" or options.compile == "always":
            raise
        log.warning("%s The run goes on without compiling.", error)
        runtime = "eager" if engine.setup.runtime == "compiled" else engine.setup.runtime
        engine.setup = replace(engine.setup, runtime=runtime, compiled=False)


def _add_named(engine: Engine, weights: FoundWeights) -> None:
    """Loads the net of ``--weights`` at once: only so is its crop size known; and looks at its answer to a drawn face."""
    net = make_net(weights, engine.setup)
    known, digest = cache_dir() / "known_answers.json", content_sha256(weights)
    answered = read_json(known)
    trouble = None if digest in answered else doubt(net)
    if trouble is None and digest not in answered:
        write_json(known, {**answered, digest: __version__})  # the next run need not ask again
    if trouble is not None:
        log.warning(
            "%s answers a test face strangely: %s. Is it a GPEN net for values in [-1, 1]? Look at a result before a long run.",
            weights.path,
            trouble,
        )
    engine.add_net(net, weights)


def engine_mark(engine: Engine) -> str:
    """Names the detector, the nets and the parser by content: part of what decides a result's bytes."""
    found = [choice.weights for choice in engine.choices] + ([engine.parser] if engine.parser else [])
    nets = [f"{item.name}:{content_sha256(item)}" for item in found]
    return "+".join([engine.detector_name or "aligned", *nets])


def _find_r50(detector: str) -> Path | None:
    """The weights of the ResNet-50, where it is asked for or here."""
    if detector == "retinaface-r50":
        _require_torch("--detector retinaface-r50", "--detector retinaface-mobile")
        return require_model("retinaface-r50").path
    found = find_model(MODELS["retinaface-r50"]) if detector == "auto" and _has_torch() else None
    return found.path if found else None


def _has_torch() -> bool:
    """Whether the detector and the parser that are facexlib's can run."""
    return has_package("torch") and has_package("facexlib")


def _require_torch(what: str, instead: str) -> None:
    if not _has_torch():
        raise DeviceError(
            f"{what} needs PyTorch and facexlib, which are not installed; install them, or give {instead}."
        )


def _find_parser(mask: str) -> FoundWeights | None:
    if mask == "feather" or (mask == "auto" and not _has_torch()):
        return None
    _require_torch(f"--mask {mask}", "--mask feather")
    found = find_model(MODELS[PARSER])
    if found is None and mask != "auto":
        raise WeightsError(f"--mask {mask} needs ParseNet. {missing_sentence(MODELS[PARSER])}")
    return found


def _choices(options: NetOptions, *, onnx: bool) -> list[NetChoice]:
    """The nets a run may use: the one asked for, or every one that is here and that the user put here."""
    model = options.model
    if model != "auto":
        if model not in restorer_names():
            raise UsageError(f"--model {model!r} is not known; choose auto, {', '.join(restorer_names())}.")
        if onnx:
            return [_choice(item) for item in known_onnx([MODELS[model]], options, in_caches=True)]
        return [_choice(require_model(model))]
    rows = [MODELS[name] for name in restorer_names()]
    if onnx:
        present = known_onnx(rows, options, in_caches=False)
    else:
        found = [find_model(row, in_caches=False) for row in rows]
        present = [item for item in found if item is not None]
    if not present:
        raise WeightsError(missing_sentence(MODELS["gpen-open-256"]))
    by_size: dict[int, NetChoice] = {}
    for item in present:
        choice = _choice(item)
        # Of two nets of one size, the one the user went to fetch is meant; the embedded one comes first in the table.
        by_size[choice.crop_size] = choice
    return list(by_size.values())


def _choice(weights: FoundWeights) -> NetChoice:
    assert weights.model is not None
    assert weights.model.crop_size is not None
    return NetChoice(weights.model.name, weights.model.crop_size, weights)


def describe_choice(choice: NetChoice, engine: Engine) -> str:
    """The log's line about a net: name, path, why, licence, device, precision."""
    setup = engine.setup
    threads = f"{setup.lanes} passes at a time, {setup.threads}" if setup.lanes > 1 else f"{setup.threads}"
    runtime = f"{setup.runtime} on {setup.provider}" if setup.provider else setup.runtime
    if setup.compiled and setup.runtime == "cuda-graph":
        runtime += " (compiled)"
    if len(engine.choices) == 1:
        why = "named with --weights or --model" if choice.weights.model is None else "the net for every face"
    else:
        why = f"for faces whose crop is up to {choice.crop_size * NET_BORDER:.0f} px in the photo"
        if choice is engine.choices[-1]:
            why = "for all larger faces"
    return (
        f"net: {choice.name} ({choice.crop_size} px, {why}), weights {choice.weights.path}, "
        f"licence: {choice.weights.licence}; device {setup.device_names}, {setup.precision} ({setup.precision_reason}), "
        f"runtime {runtime}, {setup.micro_batch} face(s) a pass, {threads} thread(s)"
    )
