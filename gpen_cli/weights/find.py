"""Where weight files are looked for, whether they are whole, and what to say when they are missing. No torch here."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from gpen_cli import __version__
from gpen_cli.cache import cache_dir, read_json, sha256_of, write_json
from gpen_cli.errors import UsageError, WeightsError
from gpen_cli.paths import is_dir, is_file
from gpen_cli.weights.onnx_file import OnnxExport, read_export
from gpen_cli.weights.table import MODELS, Model

WEIGHTS_DIR_VARIABLE = "GPEN_WEIGHTS_DIR"
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class FoundWeights:
    """A weight file on this machine. model: its row when it is a known file, else None (a file of the user's own).

    placed_by_user: it lies where the user put weights for this tool (not merely in another program's cache).
    export: what ``gpen export`` wrote into an .onnx file.
    """

    path: Path
    model: Model | None
    placed_by_user: bool = True
    export: OnnxExport | None = None

    @property
    def is_onnx(self) -> bool:
        return self.path.suffix.lower() == ".onnx"

    @property
    def name(self) -> str:
        """What log and report call the net."""
        return self.model.name if self.model else self.export.model if self.export else self.path.stem

    @property
    def licence(self) -> str:
        known = self.model or self.export
        return known.licence if known else "licence not known to gpen"


def user_folders() -> list[Path]:
    """Folders where users put weights, in the order they are searched."""
    own = os.environ.get(WEIGHTS_DIR_VARIABLE)
    folders = [Path(own)] if own else []
    folders.append(Path.cwd() / "pretrained_models")
    folders.append(_PACKAGE.parent / "pretrained_models")  # a checkout
    folders.append(_PACKAGE / "pretrained_models")  # a wheel
    return list(dict.fromkeys(folders))  # one works in the checkout itself


def all_folders() -> list[Path]:
    """Every folder of gpen's own that is searched, in order: the user's, then the one downloads go to."""
    return [*user_folders(), cache_dir() / "weights"]


def modelscope_files(model: Model) -> list[Path]:
    """Where ModelScope's own cache would hold this net; the layout has changed between its versions."""
    if model.modelscope is None:
        return []
    repository, file = model.modelscope
    own = os.environ.get("MODELSCOPE_CACHE")
    root = Path(own) if own else Path.home() / ".cache" / "modelscope"
    return [root / layout / repository / file for layout in ("hub/models", "hub", "models", "")]


def find_model(model: Model, *, in_caches: bool = True) -> FoundWeights | None:
    """The first whole copy of ``model`` on this machine, or None. in_caches: look also where no user put it.

    Raises WeightsError for a file under a known name that is not the known file: a damaged copy must not go unnoticed.
    """
    for folder in all_folders():  # what lies in our own cache was asked for, and its licence agreed to
        for file in model.files:
            if _is_file(folder / file):
                return FoundWeights(check_known(folder / file, model), model)
    for path in modelscope_files(model) if in_caches else ():
        if _is_file(path):
            return FoundWeights(check_known(path, model), model, placed_by_user=False)
    return None


def find_onnx(model: Model) -> FoundWeights | None:
    """The first .onnx file of this net in the folders of weights, or None: an export (NAME.onnx), or the public file.

    Raises WeightsError for one that is damaged, or was exported from other weights.
    """
    for folder in all_folders():
        for file in (f"{model.name}.onnx", *((model.onnx.file,) if model.onnx else ())):
            if _is_file(folder / file):
                return _known_onnx(folder / file, model)
    return None


def _export_of(path: Path) -> OnnxExport | None:
    """``read_export``; of a linked graph, its weights are whole too. Raises WeightsError."""
    export = read_export(path)
    if export is not None and export.linked:
        weights = path.with_name(export.linked)
        if not _is_file(weights):
            raise WeightsError(
                f"{path} takes its numbers from {export.linked}, which does not lie beside it; put it there, or export "
                "without --linked."
            )
        if weights.resolve().parent != path.resolve().parent:
            raise WeightsError(
                f"{path} takes its numbers from {weights}, a link into another folder, which onnxruntime does not follow; link "
                "both files, or export without --linked."
            )
        if file_sha256(weights) != export.source_sha256:
            raise WeightsError(
                f"{weights} is damaged, or not the file that {path.name} was made for; get the weights again, or, if they are "
                f"others on purpose, export {path.name} again."
            )
    return export


def _known_onnx(path: Path, model: Model) -> FoundWeights:
    export = _export_of(path)
    if export is not None:
        if model.sha256 is not None and export.source_sha256 != model.sha256:
            raise WeightsError(f"{path} was exported from other weights than those of {model.name}; export it again.")
        return FoundWeights(path, model, export=export)
    if model.onnx is None or file_sha256(path) != model.onnx.sha256:
        raise WeightsError(
            f"{path} is neither an export of gpen nor the public file of that name; get it again, or name it with --weights."
        )
    return FoundWeights(path, model)


def content_sha256(found: FoundWeights) -> str:
    """Hex SHA-256 of the file, from the table where it was held against it."""
    known = found.model.sha256 if found.model and not found.is_onnx else None
    return known or file_sha256(found.path)


def cached_onnx_path(weights: FoundWeights, precision: str) -> Path:
    """Where the ONNX form of these weights is kept once it was made; the name holds all that it depends on."""
    return cache_dir() / "onnx" / f"{weights.name}-{content_sha256(weights)[:12]}-{precision}-{__version__}.onnx"


def find_cached_onnx(weights: FoundWeights, precision: str) -> FoundWeights | None:
    """The ONNX form made by an earlier run, or None; one that is damaged counts as none."""
    path = cached_onnx_path(weights, precision)
    try:
        return from_path(path) if _is_file(path) else None
    except WeightsError:
        return None


def _is_file(path: Path) -> bool:
    """Whether there is such a file, as far as we are let: a folder that is closed to us holds none."""
    try:
        return is_file(path)
    except OSError:
        return False


def require_model(name: str) -> FoundWeights:
    """Like ``find_model``, by name; a missing file is a WeightsError that says where to get it and where to put it."""
    model = MODELS.get(name)
    if model is None:
        raise UsageError(f"--model {name!r} is not known; choose one of: {', '.join(restorer_names())}.")
    found = find_model(model)
    if found is None:
        raise WeightsError(missing_sentence(model))
    return found


def restorer_names() -> list[str]:
    """Names of the nets that restore faces."""
    return [model.name for model in MODELS.values() if model.kind == "restorer"]


def missing_sentence(model: Model) -> str:
    """What to do about a missing file: URL, size, hash, licence, folder."""
    if not model.mirrors:
        return f"The weights of {model.name} ({model.files[0]}) are missing from this installation; install gpen again."
    size = f"{model.bytes:,} bytes" if model.bytes else "size not known"
    digest = f"SHA-256 {model.sha256}" if model.sha256 else "no known hash"
    return (
        f"The weights of {model.name} are not on this machine. Get {model.mirrors[0]} ({size}, {digest}; "
        f"licence: {model.licence}) and put it as {model.files[0]} into {user_folders()[0]}, "
        + (
            f"or run gpen models download {model.name}, or name another copy with --weights PATH."
            if model.kind == "restorer"
            else "then run again."
        )
    )


def from_path(path: Path) -> FoundWeights:
    """A file the user named with --weights: anything goes that is a file; known content is recognised by size and hash."""
    try:
        size = path.stat().st_size
        if is_dir(path):
            raise WeightsError(f"--weights {path} is a folder; name the weight file in it.")
        if path.suffix.lower() == ".onnx":
            return _named_onnx(path, size)
        for model in MODELS.values():
            if model.sha256 and model.bytes == size and file_sha256(path) == model.sha256:
                return FoundWeights(path, model)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WeightsError(f"--weights {path} does not exist; check the path.") from error
    except OSError as error:
        raise WeightsError(
            f"--weights {path} cannot be read: {error.strerror or error}; check its permissions."
        ) from error
    return FoundWeights(path, None)


def _named_onnx(path: Path, size: int) -> FoundWeights:
    for model in MODELS.values():
        if model.onnx is not None and model.onnx.bytes == size and file_sha256(path) == model.onnx.sha256:
            return FoundWeights(path, model)
    return FoundWeights(path, None, export=_export_of(path))


def check_known(path: Path, model: Model) -> Path:
    """``path`` when it is byte for byte the known file (or no hash is known); WeightsError when it is not."""
    advice = f"delete it and get it again from {model.mirrors[0]}" if model.mirrors else "install gpen again"
    try:
        size = path.stat().st_size
        if model.bytes is not None and size != model.bytes:
            kind = "cut off or damaged" if size < model.bytes else "not the known file"
            raise WeightsError(f"{path} is {kind}: {size:,} bytes instead of {model.bytes:,}; {advice}.")
        if model.sha256 is not None and (digest := file_sha256(path)) != model.sha256:
            raise WeightsError(
                f"{path} is damaged or another file: SHA-256 {digest} instead of {model.sha256}; {advice}."
            )
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}; check its permissions.") from error
    return path


def forget_hashes() -> None:
    """Every known file is read anew the next time it is checked."""
    with contextlib.suppress(OSError):
        (cache_dir() / "verified.json").unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of the file, remembered in the user's cache by path, size and mtime."""
    stat = path.stat()
    memory = cache_dir() / "verified.json"
    key = str(path.resolve())
    stamp = [stat.st_size, stat.st_mtime_ns]
    known = read_json(memory)
    entry = known.get(key)
    if isinstance(entry, dict) and entry.get("stamp") == stamp and isinstance(entry.get("sha256"), str):
        return entry["sha256"]
    digest = sha256_of(path)
    write_json(memory, {**known, key: {"stamp": stamp, "sha256": digest}})
    return digest
