"""The overhead of the executor is measured on any machine; its figures depend on the machine, so none is checked here."""

import pytest

from benchmarks.gpu import overhead
from tests.inference.executors.torch_models import torch


def test_each_model_has_its_times_and_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "CALLS", {"small": 4, "large": 2})
    monkeypatch.setattr(overhead, "LARGE", (32,))
    found = overhead.overheads("cpu")
    assert [each.model for each in found][:2] == ["small", "large"]
    assert [each.executor for each in found] == ["onnx"] * 2 + ["torch"] * (2 if torch else 0)
    assert all(each.bare_us > 0 for each in found)
    assert [verdict.limit for verdict in overhead.verdicts(found)][:2] == [30.0, 0.05]
    assert [row["share"] for row in overhead.as_rows(found)] == [each.share for each in found]
