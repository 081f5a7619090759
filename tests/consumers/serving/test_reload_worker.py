"""Real workers follow `latest` and aliases while they process events, and keep what they serve where they can't."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.load import vector_events
from millstream.schemas.comparisons import ComparisonDecoder
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import OWN_SCHEMAS_FOLDER
from tests.broker.clients import produce, read_all, wait_until
from tests.consumers.processes import Worker, wait_balanced
from tests.consumers.service import Service, make_topics, prediction_of, vector_service
from tests.consumers.serving.versions import CONFIG, delete_version, name_alias, write_version

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.broker
POLL = 0.2  # seconds
EVENTS = 50  # for each version


class Scene:
    """A pipeline whose model's output is its version's number."""

    def __init__(self, folder: Path, kafka: Broker, version: str, *versions: int, **sections: Any) -> None:
        model = {"name": "vector", "version": version, "poll_interval": f"{POLL}s", **sections.pop("model", {})}
        self.service: Service = vector_service(folder, kafka, model=model, **sections)
        self.models = folder / "models" / "vector"
        delete_version(self.models, 1)
        for number in versions:
            write_version(self.models, number)
        self.sent = 0

    def send(self, count: int = EVENTS) -> None:
        """Send events with new IDs, and wait for their results."""
        values = vector_events(count, seed=self.sent).values
        ids = [f"event-{self.sent + number:010d}".encode() for number in range(count)]
        produce(
            self.service.bootstrap,
            self.service.inputs[0],
            [(b"k%d" % (row % 7), value[:6] + ids[row] + value[22:]) for row, value in enumerate(values)],
        )
        self.sent += count
        self.service.wait_written(self.sent)

    def versions(self) -> list[int]:
        """The version that each prediction names, in order of the events; their outputs must show the same."""
        rows = sorted(map(prediction_of, self.service.predictions()), key=lambda row: str(row["event_id"]))
        assert len(rows) == self.sent
        assert [row["outputs"] for row in rows] == [{"score": float(row["version"])} for row in rows]
        return [row["version"] for row in rows]


def serves(worker: Worker, version: int) -> bool:
    """Whether the metrics say so, of this version alone."""
    shown = [name for name in worker.metrics() if name.startswith("millstream_serving_model{")]
    return shown == [f"millstream_serving_model{{model=vector,version={version}}}"]


def until_serving(worker: Worker, version: int) -> None:
    """Wait until the worker serves this version, and no other."""
    worker.wait_for(lambda: serves(worker, version), 30, f"serving version {version}")


def error_of(worker: Worker) -> str:
    """The metric's series of the failure; empty: there is none."""
    return next((name for name in worker.metrics() if name.startswith("millstream_model_reload_error{")), "")


def test_latest_version_is_followed_and_so_is_its_deletion(kafka: Broker, tmp_path: Path) -> None:
    scene = Scene(tmp_path, kafka, "latest", 1)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send()
        write_version(scene.models, 2)
        until_serving(worker, 2)
        scene.send()
        write_version(scene.models, 10)
        until_serving(worker, 10)
        scene.send()
        delete_version(scene.models, 10)
        until_serving(worker, 2)
        scene.send()
        assert worker.get("/live")[0] == worker.get("/ready")[0] == 200
        assert worker.rebalances() == 1
        assert worker.stop() == 0
    assert scene.versions() == [1] * EVENTS + [2] * EVENTS + [10] * EVENTS + [2] * EVENTS
    assert "version 10 of model vector answers from now on, in place of version 2." in worker.log
    assert "version 1 of model vector is unloaded" in worker.log


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_alias_is_followed_forwards_and_backwards_by_all_workers(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    if delivery == "exactly_once" and not kafka.durable:
        pytest.skip("needs a durable broker")
    scene = Scene(tmp_path, kafka, "champion", 1, 2, delivery=delivery)
    name_alias(scene.models, champion=1)
    with Worker(scene.service.file) as one, Worker(scene.service.file) as other:
        for worker in (one, other):
            worker.wait_ready()
        wait_balanced(one, other, partitions=2)
        before = [worker.rebalances() for worker in (one, other)]
        for version in (1, 2, 1):
            name_alias(scene.models, champion=version, challenger=2)
            for worker in (one, other):
                until_serving(worker, version)
            scene.send()
        after = [worker.rebalances() for worker in (one, other)]
        assert one.stop() == other.stop() == 0
    assert scene.versions() == [1] * EVENTS + [2] * EVENTS + [1] * EVENTS
    # The last round of the rebalance that balanced the two may end for one of them after that.
    assert all(now <= then + 1 for now, then in zip(after, before, strict=True)), "nobody joined or left because of it"


UNFIT = {**CONFIG, "outputs": [{"tensor": "score", "name": "probability"}]}


def break_file(models: Path, number: int) -> None:
    (models / str(number) / "model.onnx").write_bytes(b"no model")


def test_version_that_cannot_serve_leaves_the_old_one_until_its_files_change(kafka: Broker, tmp_path: Path) -> None:
    scene = Scene(tmp_path, kafka, "champion", 1, 2, 3)
    name_alias(scene.models, champion=1)
    break_file(scene.models, 2)
    write_version(scene.models, 4, config=UNFIT)
    python_version(scene.models, 5, "raise ValueError('no event is good enough')")
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        for target, reason, said in (
            (2, "load", "model.onnx"),
            (4, "signature", "expected the outputs score of version 1"),
            (5, "warm_up", "it rejects a blank event: "),
            (9, "repository", "the alias `champion` of model `vector` names version 9, which is not there"),
        ):
            name_alias(scene.models, champion=target)
            worker.wait_for(lambda r=reason: f"reason={r}" in error_of(worker), 30, f"unable to serve {target}")  # type: ignore[misc]
            assert said in error_of(worker)
            assert said in worker.log
            assert "Version 1 of model vector goes on answering" in worker.log
            scene.send()
        (scene.models / "aliases.yaml").write_text("[1, 2]")
        worker.wait_for(lambda: "expected a line for each alias" in error_of(worker), 30, "unable to read the aliases")
        (scene.models / "aliases.yaml").unlink()
        worker.wait_for(lambda: "has no alias `champion`" in error_of(worker), 30, "without the alias")
        scene.send()
        name_alias(scene.models, champion=2)
        worker.wait_for(lambda: "reason=load" in error_of(worker), 30, "unable to serve 2 again")
        attempts = worker.metrics()["millstream_model_reloads_total{result=load}"]
        scene.send()
        assert worker.metrics()["millstream_model_reloads_total{result=load}"] == attempts, "it isn't tried again"
        delete_version(scene.models, 2)
        write_version(scene.models, 2)
        until_serving(worker, 2)
        scene.send()
        assert error_of(worker) == ""
        assert worker.get("/ready")[0] == 200
        assert worker.stop() == 0
    assert "Traceback" not in worker.log
    assert scene.versions() == [1] * EVENTS * 6 + [2] * EVENTS


def test_all_versions_deleted_while_serving(kafka: Broker, tmp_path: Path) -> None:
    scene = Scene(tmp_path, kafka, "latest", 1)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        delete_version(scene.models, 1)
        worker.wait_for(lambda: "model `vector` has no version" in error_of(worker), 30, "without any version")
        scene.send()
        assert worker.stop() == 0
    assert scene.versions() == [1] * EVENTS


def test_workers_for_dedicated_shadows_follow_the_primary_and_keep_the_shadow(kafka: Broker, tmp_path: Path) -> None:
    shadow = {"name": "candidate", "version": 7, "dedicated": True}
    scene = Scene(tmp_path, kafka, "champion", 1, 2, 7, shadows=[shadow])
    topics = [f"{scene.service.group}-{what}" for what in ("comparisons", "evaluations")]
    make_topics(kafka, topics)
    name_alias(scene.models, champion=1)
    with Worker(scene.service.file) as primary, Worker(scene.service.file, "--role", "shadow") as worker:
        primary.wait_ready()
        worker.wait_ready()
        scene.send()
        name_alias(scene.models, champion=2)
        for each in (primary, worker):
            until_serving(each, 2)
        scene.send()
        made = "millstream_comparisons_total{shadow=candidate}"
        worker.wait_for(lambda: worker.metrics().get(made, 0) == 2 * EVENTS, 30, "done with all comparisons")
        assert primary.stop() == worker.stop() == 0
    assert scene.versions() == [1] * EVENTS + [2] * EVENTS
    values = [message.value() for message in read_all(kafka.bootstrap, topics[0])]
    read, bad = ComparisonDecoder(DirectoryStore(OWN_SCHEMAS_FOLDER)).decode(values)
    assert bad == {}
    named = [(read.pairs[pair].primary.version, read.pairs[pair].shadow.version) for pair in read.pair]
    assert Counter(named) == {(1, 7): EVENTS, (2, 7): EVENTS}
    assert [outputs["score"] for outputs in read.primary] == [version for version, _ in named]


def test_python_model_is_followed_with_its_own_module(kafka: Broker, tmp_path: Path) -> None:
    """Two versions have files of the same names."""
    scene = Scene(tmp_path, kafka, "latest")
    for number in (1, 2):
        python_version(scene.models, number)
        if number == 1:
            worker = Worker(scene.service.file, env={"PYTHONDONTWRITEBYTECODE": ""})
            worker.wait_ready()
        else:
            until_serving(worker, 2)
        scene.send()
    with worker:
        assert worker.metrics()["millstream_model_reloads_total{result=switched}"] == 1, "no version's files changed"
        assert worker.stop() == 0
    assert scene.versions() == [1] * EVENTS + [2] * EVENTS
    assert (scene.models / "2" / "closed").exists()
    assert (scene.models / "1" / "closed").exists(), "the old version was closed"


def python_version(models: Path, number: int, first: str = "pass") -> None:
    """Add a version with a model in Python; `first` is its first statement for each batch."""
    part = models / f"part-{number}"
    part.mkdir()
    (part / "number.py").write_text(f"NUMBER = {number}\n")
    (part / "model.py").write_text(
        "import numpy as np\nfrom .number import NUMBER\n"
        "class Model:\n    def __init__(self, folder, device): self.folder = folder\n"
        "    def predict(self, inputs):\n"
        f"        {first}\n"
        "        return {'score': np.full((len(inputs['x']), 1), NUMBER, np.float32)}\n"
        "    def close(self): (self.folder.parent / str(NUMBER) / 'closed').write_text('')\n"
    )
    (part / "config.yaml").write_text(json.dumps(CONFIG))
    part.rename(models / str(number))


def test_fixed_version_is_not_looked_up_again(kafka: Broker, tmp_path: Path) -> None:
    scene = Scene(tmp_path, kafka, "champion", 1, 2)
    text = scene.service.file.read_text().replace("version: champion", "version: 1")
    scene.service.file.write_text(text)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send()
        assert serves(worker, 1)
        assert not [name for name in worker.metrics() if name.startswith("millstream_model_reload")]
        assert worker.stop() == 0
    assert scene.versions() == [1] * EVENTS
    wait_until(lambda: len(read_all(scene.service.bootstrap, scene.service.output)) == EVENTS, 10, "the predictions")
