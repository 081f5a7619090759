"""What a pipeline with a rollout can't be: each is refused before the first event is read, with one message."""

from __future__ import annotations

import re
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.errors import PlanError
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.consumers.worker.offline import decoded
from millstream.consumers.worker.plan import make_plan
from millstream.consumers.worker.rollout_following import with_baseline
from millstream.pipeline.loading import load_pipeline
from tests.broker.choice import Broker
from tests.consumers.remote_service import remote_service
from tests.consumers.service import vector_service
from tests.faults.load import vectors

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.pipeline.pipeline import Pipeline

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
MANUAL: dict[str, Any] = {"strategy": "manual"}


def vector_pipeline(folder: Path, **rollout: Any) -> Pipeline:
    sections = {"rollout": MANUAL | rollout, "model": {"name": "vector", "version": 1}}
    return load_pipeline(vector_service(folder, NOWHERE, with_topics=False, **sections).file, {})


def record_of(shares: tuple[int, int], state: str, model: str = "vector") -> RolloutRecord:
    variants = (RolloutVariant("primary", model, 4), RolloutVariant("canary", model, 5))
    ranges = reallocated(whole(), shares)
    return RolloutRecord("p", 1, 0, "c", 0, "me", "set", "because", "r1", "manual", state, variants, ranges)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("x", "expected a text, a number or a boolean, and field `x` of schema `vector-event` is "),
        ("tier", "expected a field of schema `vector-event`, found `tier`"),
    ],
)
def test_override_field_that_no_override_can_name_is_refused(tmp_path: Path, field: str, said: str) -> None:
    pipeline = vector_pipeline(tmp_path, override_fields=["id", field])
    with pytest.raises(PlanError, match=rf"rollout\.override_fields\[1\]: {re.escape(said)}"):
        make_plan(pipeline)


def test_override_fields_are_decoded_and_are_not_in_predictions(tmp_path: Path) -> None:
    plan = make_plan(vector_pipeline(tmp_path, override_fields=["id"]))
    features = decoded(plan, [next(vectors(1)).value]).features
    assert features is not None
    assert list(features.columns) == ["id"]
    assert plan.included == {}


def test_executor_that_sends_requests_is_refused(tmp_path: Path) -> None:
    model = {"name": "number", "version": 1}
    service = remote_service(
        tmp_path, NOWHERE, "{urls: ['grpc://127.0.0.1:1']}", with_topics=False, model=model, rollout=MANUAL
    )
    with pytest.raises(
        PlanError, match=r"rollout: expected an executor that runs in the worker, found kserve in model number"
    ):
        make_plan(load_pipeline(service.file, {}))


@pytest.mark.parametrize(
    ("shares", "state", "version"),
    [
        ((9900, 100), "running", 4),
        ((0, 10_000), "watching", 4),
        ((0, 10_000), "promoted", 5),
        ((10_000, 0), "rolled_back", 4),
        ((4000, 6000), "concluded", 4),
    ],
)
def test_worker_starts_with_the_version_that_the_record_makes_the_baseline(
    tmp_path: Path, shares: tuple[int, int], state: str, version: int
) -> None:
    pipeline = vector_pipeline(tmp_path)
    assert with_baseline(pipeline, None) is pipeline
    found = with_baseline(pipeline, record_of(shares, state))
    assert (found.wanted_version, found.model.name, found.named) == (version, "vector", pipeline.named)


def test_shadow_whose_version_was_promoted_is_left_out_and_stops_no_worker(tmp_path: Path) -> None:
    sections = {"rollout": MANUAL, "model": {"name": "vector", "version": 4}, "shadows": [{"version": 5}]}
    service = vector_service(tmp_path, NOWHERE, with_topics=False, **sections)
    for version in ("4", "5"):
        copytree(tmp_path / "models" / "vector" / "1", tmp_path / "models" / "vector" / version)
    pipeline = load_pipeline(service.file, {})
    before = make_plan(with_baseline(pipeline, record_of((5000, 5000), "running")))
    assert (before.model.version, [shadow.model.version for shadow in before.shadows]) == (4, [5])
    after = make_plan(with_baseline(pipeline, record_of((0, 10_000), "promoted")))
    assert (after.model.version, after.shadows) == (5, [])


def test_rollout_of_another_model_is_refused_at_the_start(tmp_path: Path) -> None:
    pipeline = vector_pipeline(tmp_path)
    with pytest.raises(
        PlanError, match=r"model\.name: expected other, because the pipeline's rollout is of this model"
    ):
        with_baseline(pipeline, record_of((10_000, 0), "running", "other"))
