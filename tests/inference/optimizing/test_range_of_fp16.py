"""Whether a model's numbers fit into 16 bits, which a run on a CPU doesn't show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from millstream.inference.errors import NotOptimized
from millstream.inference.optimizing.conversion import convert
from millstream.inference.optimizing.range_of_fp16 import LARGEST, largest_activation, too_large_constants
from tests.inference.optimizing.networks import WIDTH, mlp

if TYPE_CHECKING:
    from pathlib import Path

BATCH = {"x": np.random.default_rng(2).normal(size=(8, WIDTH)).astype(np.float32)}


def test_largest_number_between_the_layers_is_found(tmp_path: Path) -> None:
    model = mlp(tmp_path, scale=1e8)
    name, most = largest_activation(onnx.load(model.file), [BATCH], tmp_path)
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(model.file).graph.initializer}
    hidden = np.maximum(BATCH["x"] @ weights["w1"] + weights["b1"], 0) * weights["factor"]
    assert name == "m"
    assert most == pytest.approx(float(hidden.max()), rel=1e-5)
    assert most > LARGEST


@pytest.mark.parametrize(("scale", "count"), [(1, 0), (1e8, 0), (1e12, 2)])
def test_constants_that_do_not_fit_are_counted(tmp_path: Path, scale: float, count: int) -> None:
    assert too_large_constants(onnx.load(mlp(tmp_path, scale=scale).file)) == count


def test_model_that_would_answer_nan_on_a_gpu_is_refused(tmp_path: Path) -> None:
    model = mlp(tmp_path, scale=1e8)
    with pytest.raises(
        NotOptimized, match=r"NaN or infinity in `y`: tensor `m` reaches .* numbers of 16 bits end at 65,504"
    ):
        convert(model.file, "fp16", tmp_path / "new.onnx", [BATCH])
    assert not (tmp_path / "new.onnx").exists()


def test_model_whose_numbers_fit_has_no_warning(tmp_path: Path) -> None:
    said = convert(mlp(tmp_path).file, "fp16", tmp_path / "new.onnx", [BATCH])
    assert len(said) == 1
