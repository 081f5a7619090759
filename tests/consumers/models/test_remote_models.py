"""Workers whose models come from an object store: a start while it is away, from the cache, and bad input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from benchmarks.load import vector_events, write_vector_model
from tests.broker.clients import produce, read_all
from tests.consumers.processes import Worker
from tests.consumers.service import make_topics, prediction_of, vector_service
from tests.inference.sources.places import place_in
from tests.stores.minio import PASSWORD, Minio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service
    from tests.inference.sources.places import Place

pytestmark = pytest.mark.full  # MinIO is built first, which takes minutes
EVENTS = 200


@pytest.fixture(scope="module")
def minio() -> Iterator[Minio]:
    with Minio() as store:
        yield store


def service_in(place: Place, folder: Path, kafka: Broker, **model: Any) -> Service:
    """A pipeline whose model is in the store."""
    written = {"name": "vector", "repository": place.url, "client": place.client, "cache": "cache"}
    service = vector_service(folder, kafka, model={**written, **model})
    place.put_folder(folder / "models")
    return service


def feed(kafka: Broker, service: Service) -> None:
    load = vector_events(EVENTS, seed=1)
    produce(kafka.bootstrap, service.inputs[0], zip(load.keys, load.values, strict=True))


@pytest.mark.broker
def test_worker_waits_for_the_store_then_runs_and_later_starts_without_it(kafka: Broker, tmp_path: Path) -> None:
    with Minio() as minio:
        place = place_in(minio)
        service = service_in(place, tmp_path, kafka, version="champion")
        place.put("vector/aliases.yaml", "champion: 1\n")
        minio.kill()
        with Worker(service.file) as worker:
            worker.wait_for(lambda: "does not answer" in worker.log, 60, "waiting")
            status, said = worker.get("/ready")
            assert (status, place.url in said) == (503, True)
            assert worker.get("/live")[0] == 200
            assert PASSWORD not in worker.log + said
            minio.start()
            worker.wait_ready()
            assert "works again" in worker.log
            feed(kafka, service)
            service.wait_written(EVENTS)
            assert worker.stop() == 0
        minio.kill()
        with Worker(service.file, "--until-idle") as worker:
            assert worker.wait() == 0
            assert "version 1 of model `vector` runs from the cache" in worker.log
    [first, *_] = service.predictions()
    assert (prediction_of(first)["model"], prediction_of(first)["version"]) == ("vector", 1)


@pytest.mark.broker
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"version": 7}, "model `vector` has no version 7 in s3://"),
        ({"version": "champion"}, "model `vector` has no alias `champion` (aliases: none; versions: 1)"),
        ({"name": "vectr"}, "has no model `vectr` (there: vector). Did you mean `vector`?"),
        ({"client": {"key": "nobody", "secret": PASSWORD}}, "the credentials are refused, or there are none"),
    ],
    ids=["version", "alias", "name", "credentials"],
)
def test_worker_ends_with_one_message_that_a_restart_would_not_change(
    kafka: Broker, tmp_path: Path, minio: Minio, model: dict[str, Any], said: str
) -> None:
    place = place_in(minio)
    if client := model.get("client"):
        model = {"client": {**client, "endpoint_url": minio.url}}
    service = service_in(place, tmp_path, kafka, **model)
    with Worker(service.file, "--log-level", "error") as worker:
        assert worker.wait() == 3
        [message] = worker.log.splitlines()
    assert said in message
    assert PASSWORD not in message


@pytest.mark.broker
def test_model_that_runs_code_needs_trust(kafka: Broker, tmp_path: Path, minio: Minio) -> None:
    place = place_in(minio)
    service = service_in(place, tmp_path, kafka)
    place.remove("vector/1/model.onnx")
    place.put("vector/1/model.py", "raise SystemExit('ran')\n")
    with Worker(service.file, "--log-level", "error") as worker:
        assert worker.wait() == 3
        assert "a model from a URL runs without your trust only as ONNX, found the executor python" in worker.log
        assert "ran" not in worker.log.split()


@pytest.mark.broker
def test_primary_and_shadow_come_from_the_store(kafka: Broker, tmp_path: Path, minio: Minio) -> None:
    place = place_in(minio)
    write_vector_model(tmp_path / "newer", seed=2)
    service = service_in(place, tmp_path, kafka, version=1)
    for path in (tmp_path / "newer" / "models" / "vector" / "1").iterdir():
        place.put(f"vector/2/{path.name}", path.read_bytes())
    document = yaml.safe_load(service.file.read_text("utf-8")) | {"shadows": [{"version": 2}]}
    service.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    make_topics(kafka, (f"{document['name']}-comparisons", f"{document['name']}-evaluations"))
    feed(kafka, service)
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert len(read_all(kafka.bootstrap, f"{document['name']}-comparisons")) == EVENTS
