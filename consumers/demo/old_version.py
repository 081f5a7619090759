"""The model that `millstream demo --reload` begins with: version 1 of the example, in the form of version 2.

A version can take the place of another one only if both have the same inputs. The example's version 2 has one number more: how
late the flight left. So this model takes all inputs of version 2, and doesn't look at that number.
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
        self._session = ort.InferenceSession(str(folder / "timetable.onnx"), options, ["CPUExecutionProvider"])

    def predict(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Predict without the last number, the delay at the departure."""
        numbers = np.ascontiguousarray(inputs["numbers"][:, :-1])
        (late,) = self._session.run(["late_probability"], {"numbers": numbers, "route": inputs["route"]})
        return {"late_probability": late}
