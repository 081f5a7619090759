"""The torch model of the bench is its ONNX model."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import models
from benchmarks.load import WIDE
from millstream.inference.executors.choice import open_executor
from millstream.inference.repository import load_version
from tests.inference.executors.torch_models import torch


@pytest.mark.skipif(torch is None, reason="torch is not installed: .venv/bin/pip install -e '.[torch]'")
def test_both_executors_answer_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "HIDDEN", (16, 8))
    x = np.random.default_rng(1).standard_normal((5, WIDE.length), dtype=np.float32)
    scores = []
    for executor in ("onnx", "torch"):
        model = load_version(models.write_model(tmp_path / executor, executor), WIDE.name, 1)
        assert model.executor == executor
        opened = open_executor(model, trust=True, device="cpu", max_events=8)
        scores.append(opened.run({"x": x})["score"])
        opened.close()
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4)
