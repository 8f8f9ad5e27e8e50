"""ParseNet: which pixel of a restored face is skin, hair, hat, cloth. Needs facexlib and its weight file."""

from __future__ import annotations

import cv2
import numpy as np
import torch

from gpen_cli.data import UInt8Image
from gpen_cli.device import Setup
from gpen_cli.errors import WeightsError
from gpen_cli.runtime.crops import to_tensor
from gpen_cli.weights.find import FoundWeights
from gpen_cli.weights.load import read_state

PARSE_SIZE = 512


class FaceParser:
    """A ``CropNet`` that answers labels. Classes as in CelebAMask-HQ's 19 (``compose.PARSE_CLASSES``)."""

    name = "parsenet"
    crop_size = PARSE_SIZE
    micro_batch = 1

    def __init__(self, weights: FoundWeights, setup: Setup) -> None:
        from facexlib.parsing.parsenet import ParseNet

        self._device = torch.device(setup.torch_device)
        net = ParseNet(in_size=PARSE_SIZE, out_size=PARSE_SIZE, parsing_ch=19)
        state = {str(name).removeprefix("module."): value for name, value in read_state(weights.path).items()}
        try:
            net.load_state_dict(state, strict=True)
        except RuntimeError as error:
            raise WeightsError(f"{weights.path} is not ParseNet's weight file; get it again.") from error
        self._net = net.eval().requires_grad_(False).to(self._device)

    @torch.inference_mode()
    def run(self, crops: UInt8Image) -> np.ndarray:
        """(N, S, S, 3) uint8 restored crops of any S -> (N, 512, 512) uint8 class numbers."""
        sized = np.stack(
            [
                crop
                if crop.shape[0] == PARSE_SIZE
                else cv2.resize(crop, (PARSE_SIZE, PARSE_SIZE), interpolation=cv2.INTER_CUBIC)
                for crop in crops
            ]
        )
        logits, _ = self._net(to_tensor(sized, self._device, torch.float32))
        return logits.argmax(dim=1).to(torch.uint8).cpu().numpy()

    def halve(self) -> bool:
        """One face a pass is all it ever takes."""
        return False
