"""The ResNet-50 through facexlib's module, on random weights: the real ones cannot be had here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpen_cli.data import UInt8Image
from gpen_cli.detect import make_detector
from gpen_cli.errors import DeviceError, WeightsError
from gpen_cli.options import FaceOptions

torch = pytest.importorskip("torch")
pytest.importorskip("facexlib.detection.retinaface")

from gpen_cli.detect.facexlib_r50 import R50Detector, _build  # noqa: E402  (torch first)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights as nn.DataParallel stores them, heads scaled so that offsets and logits spread as a net's do."""
    torch.manual_seed(0)
    net = _build("cpu")
    net.phase = "train"  # logits, no softmax
    with torch.inference_mode():
        spreads = [answer.std().item() for answer in net(torch.randn(1, 3, 96, 96) * 60)]
    gains = dict(zip(("BboxHead", "ClassHead", "LandmarkHead"), (1 / spread for spread in spreads), strict=True))
    state = {f"module.{key}": value * gains.get(key.split(".")[0], 1) for key, value in net.state_dict().items()}
    path = tmp_path_factory.mktemp("r50") / "detection_Resnet50_Final.pth"
    torch.save(state, path)
    return path


def test_boxes_and_landmarks_are_those_of_facexlib(weights: Path, astronaut: UInt8Image):
    photo = np.ascontiguousarray(astronaut[50:178, 150:310])
    detector = make_detector(FaceOptions(), r50_weights=weights, device="cpu", threads=1)
    assert detector.name.startswith("retinaface-r50")
    ours = detector.detect(photo, 0.6)
    assert len(ours) > 20
    with torch.inference_mode():  # 2: nothing suppressed, since facexlib's overlap counts a pixel more on each side
        theirs = detector._net.detect_faces(photo[:, :, ::-1].copy(), conf_threshold=0.6, nms_threshold=2)
    for one in ours:
        same = theirs[np.abs(theirs[:, 4] - one.score).argmin()]
        assert one.score == pytest.approx(same[4], abs=1e-6)
        # half a pixel: facexlib counts from the picture's edge
        np.testing.assert_allclose(one.box + 0.5, same[:4], atol=0.02)
        np.testing.assert_allclose(one.landmarks.ravel() + 0.5, same[5:], atol=0.02)


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(WeightsError, match="are not at"):
        R50Detector(tmp_path / "none.pth", "cpu")


def test_a_cut_file(weights: Path, tmp_path: Path):
    cut = tmp_path / "cut.pth"
    cut.write_bytes(weights.read_bytes()[:100_000])
    with pytest.raises(WeightsError, match="cannot be read"):
        R50Detector(cut, "cpu")


def test_a_pickle_that_would_run_code_does_not(tmp_path: Path):
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)

    path = tmp_path / "evil.pth"
    path.write_bytes(pickle.dumps({"w": Evil()}, protocol=2))
    with pytest.raises(WeightsError):
        R50Detector(path, "cpu")
    assert not (tmp_path / "ran").exists()


def test_half_the_weights_are_refused(weights: Path, tmp_path: Path):
    state = torch.load(weights, weights_only=True)
    half = tmp_path / "half.pth"
    torch.save(dict(list(state.items())[::2]), half)
    with pytest.raises(WeightsError, match="weights differ"):
        R50Detector(half, "cpu")


@pytest.mark.parametrize("content", [[1, 2], {"body": {"a": 1}}, {1: 2}])
def test_foreign_files_are_refused(content: object, tmp_path: Path):
    path = tmp_path / "other.pth"
    torch.save(content, path)
    with pytest.raises(WeightsError, match="retinaface-r50"):
        R50Detector(path, "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(weights: Path):
    with pytest.raises(DeviceError, match="cuda"):
        R50Detector(weights, "cuda")
