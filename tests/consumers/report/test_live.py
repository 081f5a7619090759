"""The report's figures of predictions, and what it says if labels can't make any."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.errors import PlanError
from millstream.consumers.records import Records
from millstream.consumers.report import live
from millstream.consumers.report.live import LiveReport, Span
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.predictions import JsonPredictionEncoder
from millstream.schemas.row_models import RowModels
from tests.broker.choice import Broker
from tests.consumers.in_memory import MemoryRecord
from tests.consumers.service import flights_service
from tests.inference.python_models import predicting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
LABELS = {"topic": "labels", "format": "json", "event_id": "id", "value": "y"}
PETS = "inputs: [{tensor: x, fields: [x], dtype: float32}]\noutputs: [{tensor: p, classes: [cat, dog]}]\n"
VERSION_1 = RowModels([("m", 1)])
IDS = [str(number) for number in range(40)]


class Topics:
    """As RangeReader, of the labels' topic and the predictions'."""

    def __init__(self, labels: list[bytes], predictions: list[bytes]) -> None:
        self._labels, self._predictions = labels, predictions
        self._read: list[bytes] = []

    def ranges(self, topics: tuple[str, ...], _start: int, _end: int) -> dict[Any, tuple[int, int]]:
        return {(topics[0], 0): (0, len(IDS))}

    def begin(self, ranges: dict[Any, tuple[int, int]]) -> None:
        self._read = self._labels if ("labels", 0) in ranges else self._predictions

    def __iter__(self) -> Iterator[Records]:
        yield Records.of([MemoryRecord(at, value) for at, value in enumerate(self._read)])

    def close(self) -> None: ...


def verdict(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    labels: list[Any],
    outputs: dict[str, Any],
    models: RowModels = VERSION_1,
    **sections: Any,
) -> str:
    """What the report says of these outputs, which `models` made, and these labels."""
    model = {"name": "m", "version": 1}
    file = flights_service(folder, NOWHERE, with_topics=False, model=model, labels=LABELS, **sections).file
    predicting(folder / "models", "return {}", config=PETS)
    pipeline = load_pipeline(file, {})
    times = np.arange(len(IDS))
    encoder = JsonPredictionEncoder(pipeline=pipeline.name, variant="primary")
    predictions = list(encoder.encode(IDS, times, times, times, outputs, None, models=models))
    values = [json.dumps({"id": key, "y": value}).encode() for key, value in zip(IDS, labels, strict=True)]
    monkeypatch.setattr(live, "RangeReader", lambda *_: Topics(values, predictions))
    report = LiveReport(pipeline, Span(0, 1000), LimitedRetry(1.0, print), lambda *_: None, None)
    return report.parts()[0].verdict


DOG = np.linspace(0, 1, len(IDS))


def test_class_that_nobody_named_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, outputs = (DOG > 0.5).tolist(), {"p.cat": 1 - DOG, "p.dog": DOG}
    with pytest.raises(PlanError, match=r"of the class that a label of 1 stands for, found none; .* \{output: p.dog\}"):
        verdict(tmp_path, monkeypatch, labels, outputs)


def test_class_that_the_file_names_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, outputs = (DOG > 0.5).tolist(), {"p.cat": 1 - DOG, "p.dog": DOG}
    assert "AUC 1.0000" in verdict(tmp_path, monkeypatch, labels, outputs, comparison={"output": "p.dog"})


@pytest.mark.parametrize(
    ("labels", "score", "section", "said"),
    [
        (
            (DOG + 2).tolist(),
            DOG,
            {},
            "no AUC: none of the 40 events has a label. A label counts if its `id` is an event's ID and its `y` is true or "
            "false, or 1 or 0 (for classes, write `comparison: {task: multiclass}`; for numbers `{task: regression}`); 0 labels "
            "were read, and 40 records that are none",
        ),
        ([True] * 40, DOG, {}, "no AUC: the labels of all 40 events with a score are true. The AUC needs both"),
        ([0] * 40, DOG, {}, "no AUC: the labels of all 40 events with a score are false. The AUC needs both"),
        ([True] * 40, np.full(40, np.nan), {}, "no AUC: 40 events have a label, but none of them has a score"),
        (DOG.tolist(), DOG, {"task": "regression"}, "mean absolute error 0.0000, 40 labels"),
    ],
)
def test_labels_that_make_no_figure_are_told_with_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: list[Any], score: Any, section: dict[str, Any], said: str
) -> None:
    found = verdict(tmp_path, monkeypatch, labels, {"score": score}, comparison=section)
    assert found == f"40 events were predicted by m version 1: {said}"


def test_figures_of_several_versions_are_said_to_be_of_all_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = RowModels([("m", 1), ("m", 2)], np.arange(len(IDS)) % 2)
    found = verdict(tmp_path, monkeypatch, (DOG > 0.5).tolist(), {"score": DOG}, both)
    assert found.startswith(
        "40 events were predicted by m version 1, m version 2 (all figures are of these versions together): AUC 1.0000"
    )
