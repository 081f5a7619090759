"""A perceptron large enough for a GPU, made here from a seed: nothing has to be fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.load import WIDE, write_vector_model
from millstream.inference.executors.torch_library import torch as installed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HIDDEN = (2048, 2048, 2048)  # 9.4 million parameters, 19 MFLOP an event
SEED = 13


def write_model(folder: Path, executor: str, hidden: Sequence[int] | None = None) -> Path:
    """Write schema and model; as an exported program where the executor is torch. Returns the model repository.

    `hidden`: sizes of the hidden layers, `HIDDEN` by default.

    Raises ModelConfigError where torch is not installed.
    """
    sizes = HIDDEN if hidden is None else hidden
    write_vector_model(folder, SEED, WIDE, sizes)
    if executor == "torch":
        file = folder / "models" / WIDE.name / "1" / "model.onnx"
        _export(onnx.load(str(file)), file.with_name("model.pt2"), len(sizes) + 1)
        file.unlink()
    return folder / "models"


def _export(model: onnx.ModelProto, file: Path, count: int) -> None:
    installed()  # or it says how to
    import torch  # noqa: PLC0415  (only where it is asked for)

    weights = {entry.name: np.array(numpy_helper.to_array(entry)) for entry in model.graph.initializer}
    layers = []
    for number in range(1, count + 1):
        matrix, bias = weights[f"w{number}"], weights[f"b{number}"]
        layer = torch.nn.Linear(*matrix.shape)
        layer.weight = torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(matrix.T)))
        layer.bias = torch.nn.Parameter(torch.from_numpy(bias))
        layers.append(layer)

    class Perceptron(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(layers)

        def forward(self, x: Any) -> Any:
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x))
            return torch.sigmoid(self.layers[-1](x))

    batch = torch.export.Dim("batch", min=2, max=1 << 16)
    program = torch.export.export(Perceptron().eval(), (torch.zeros(4, WIDE.length),), dynamic_shapes=({0: batch},))
    torch.export.save(program, str(file))
