"""A model folder on a drive that hangs, as NFS does while its server is away."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.inference.errors import SourceUnavailable
from millstream.inference.sources.folder import FolderSource
from millstream.pipeline.loading import load_pipeline
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service
from tests.consumers.several_service import several_service, write_onnx
from tests.faults.hung_folder import HungFolder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

EVENTS = 200


@pytest.mark.parametrize("version", [None, 1, "latest"])
@pytest.mark.broker
def test_reading_a_version_is_given_up(kafka: Broker, tmp_path: Path, version: int | str | None) -> None:
    service = vector_service(tmp_path, kafka, model={"name": "vector", "version": version})
    models = PipelineModels(load_pipeline(service.file, {}))
    models.source = FolderSource(tmp_path / "models", quiet=0.2)
    with HungFolder(tmp_path / "models"), pytest.raises(SourceUnavailable, match=r"has not answered for 0\.2 s"):
        models.primary()


@pytest.mark.full
@pytest.mark.broker
@pytest.mark.parametrize("version", [1, "latest"])
def test_worker_that_starts_waits_then_runs(kafka: Broker, tmp_path: Path, version: int | str) -> None:
    folder = tmp_path / "models"
    service = vector_service(tmp_path, kafka, model={"name": "vector", "version": version})
    load = vector_events(EVENTS, seed=1)
    produce(kafka.bootstrap, service.inputs[0], zip(load.keys, load.values, strict=True))
    with ExitStack() as drive:
        drive.enter_context(HungFolder(folder))
        with Worker(service.file) as worker:
            worker.wait_for(lambda: f"model repository {folder} has not answered for 30 s" in worker.log, 90, "waiting")
            status, said = worker.get("/ready")
            assert (status, f"model repository {folder} has not answered" in said) == (503, True)
            assert worker.get("/live")[0] == 200
            drive.close()
            worker.wait_ready(90)
            assert "works again" in worker.log
            service.wait_written(EVENTS)
            assert worker.stop() == 0


@pytest.mark.full
@pytest.mark.broker
def test_worker_of_tenants_that_starts_waits_then_runs(kafka: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    write_onnx(folder, "churn-a", 2)
    service = several_service(tmp_path, kafka, {"tenants": {"field": "who", "name": "churn-{tenant}"}})
    with ExitStack() as drive:
        drive.enter_context(HungFolder(folder))
        with Worker(service.file) as worker:
            worker.wait_for(lambda: f"model repository {folder} has not answered for 30 s" in worker.log, 90, "waiting")
            assert worker.get("/ready")[0] == 503
            drive.close()
            worker.wait_ready(90)
            assert worker.stop() == 0
