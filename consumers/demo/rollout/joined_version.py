"""Versions 2 and 3 of `millstream demo --rollout`: the same code. In the folder of version 3, the wrong delays are joined.

Each flight gets the departure delay of another flight there. Nothing but late labels shows it: there are no errors, it is as fast
as version 2, and each input has the same distribution.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort


class Model:
    """See `millstream docs models`."""

    def __init__(self, folder: Path, device: str) -> None:  # noqa: ARG002
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(str(folder / "delayed.onnx"), options, ["CPUExecutionProvider"])
        joined = folder / "delays.npy"
        self._delays = np.load(joined) if joined.exists() else None  # [flights], minutes

    def predict(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Predict; in version 3 with the delay of another flight, which is the same one each time."""
        numbers = np.array(inputs["numbers"])
        if self._delays is not None:
            numbers[:, -1] = self._delays[_places(numbers) % len(self._delays)]
        (late,) = self._session.run(["late_probability"], {"numbers": numbers, "route": inputs["route"]})
        return {"late_probability": late}


def _places(numbers: Any) -> Any:
    """A number for each flight that looks random: [flights]."""
    mixed = numbers[:, :-1].astype(np.int64) @ np.array([7_368_787, 2_654_435_761, 40_503, 97])
    return mixed ^ mixed >> 13
