"""Models of `models` that are named by `latest` or an alias change one by one, with real model folders."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from millstream.consumers.observability import metrics as m
from millstream.consumers.worker.members_following import follow_members
from millstream.consumers.worker.plan import make_plan
from millstream.inference.errors import EventsRejected
from millstream.inference.executors.interface import ANSWERED_BY
from millstream.inference.executors.opened import OpenedModel
from millstream.pipeline.loading import load_pipeline
from tests.broker.choice import Broker
from tests.broker.clients import wait_until
from tests.consumers.measured import Measured
from tests.consumers.serving.versions import delete_version, name_alias
from tests.consumers.several_service import CONFIG, several_service, write_onnx, write_scaled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.inference.combined.version import CombinedExecutor

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
EU, WORLD = {"name": "eu", "version": "champion"}, {"name": "world", "version": "latest"}
ROUTE = {"route": {"field": "who", "values": {"DE": EU}, "default": WORLD}}
CASCADE = {"cascade": [{"model": EU, "escalate": {"output": "y", "below": 5}}, {"model": WORLD}]}
ENSEMBLE = {"ensemble": {"steps": {"a": EU, "b": WORLD}, "outputs": {"y": {"mean": ["a.y", "b.y"]}}}}
TENANTS = {"tenants": {"field": "who", "name": "of-{tenant}", "default": EU}}


class Scene(Measured):
    """A pool in memory, and the models of a pipeline that follow their repository."""

    def __init__(self, folder: Path, models: dict[str, Any]) -> None:
        super().__init__()
        service = several_service(folder, NOWHERE, models | {"poll_interval": "10ms"}, with_topics=False)
        self.plan = make_plan(load_pipeline(service.file, {}))
        self.first = OpenedModel(self.plan.model.id, self.plan.executors)
        self.served = [self.first]
        self.in_use: set[OpenedModel] = set()  # besides the last one of `served`
        self.stop = threading.Event()

    def switch_to(self, opened: OpenedModel) -> None:
        self.served.append(opened)

    def is_in_use(self, opened: OpenedModel) -> bool:
        return opened is self.served[-1] or opened in self.in_use

    @contextmanager
    def followed(self) -> Iterator[None]:
        shared = SimpleNamespace(metrics=self.metrics, ending=SimpleNamespace(abandon=self.stop))
        following = follow_members(self.plan, cast("Any", shared), self.first, cast("Any", self))
        threads = [threading.Thread(target=run) for _, run in following.stages]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(30)
            following.close()

    def executors(self) -> list[CombinedExecutor]:
        return cast("list[CombinedExecutor]", list(self.served[-1].executors))

    def members(self) -> dict[str, int]:
        """The version of each model that is served, by the model that its executor runs."""
        return {member.model.name: member.model.version for member in self.executors()[0].members}

    def executor_of(self, model: str) -> object:
        return next(each.executor for each in self.executors()[0].members if each.model.name == model)

    def wait_for(self, **versions: int) -> None:
        wait_until(lambda: self.members() == {**self.members(), **versions}, 30, f"{versions} being served")

    def answers(self, opened: OpenedModel | None = None) -> list[tuple[float, Any]]:
        """The output for 1 of DE and of US, and the model that is named."""
        executor = cast("CombinedExecutor", (opened or self.served[-1]).executors[0])
        names = {entry.tensor: entry.dtype for entry in self.plan.model.signature.inputs}
        inputs = {
            name: np.array(["DE", "US"], object) if dtype == "string" else np.ones((2, 1), np.float32)
            for name, dtype in names.items()
        }
        outputs = executor.run(inputs)
        by = outputs[ANSWERED_BY].tolist()
        named = (
            outputs["models"].tolist()
            if "models" in outputs
            else [":".join(map(str, executor.models[each])) for each in by]
        )
        return list(zip(outputs["y"].tolist(), named, strict=True))

    def errors(self) -> list[tuple[str, str, str]]:
        return [
            (sample.labels["model"], sample.labels["reason"], sample.labels["error"])
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == m.MODEL_RELOAD_ERROR.name
        ]

    def shown(self) -> set[tuple[str, str]]:
        return {
            (sample.labels["model"], sample.labels["version"])
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == m.SERVING_MODEL.name
        }


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """`eu` and `world`, version 1: `y` is `x` times 2, or times 3."""
    write_onnx(tmp_path / "models", "eu", 2)
    write_onnx(tmp_path / "models", "world", 3)
    name_alias(tmp_path / "models" / "eu", champion=1)
    return tmp_path / "models"


@pytest.mark.parametrize(
    ("section", "before", "after"),
    [
        (ROUTE, [(2, "eu:1"), (3, "world:1")], [(20, "eu:2"), (30, "world:2")]),
        (CASCADE, [(3, "eu:1 world:1")] * 2, [(20, "eu:2")] * 2),
        (ENSEMBLE, [(2.5, "eu:1 world:1")] * 2, [(25, "eu:2 world:2")] * 2),
    ],
    ids=["route", "cascade", "ensemble"],
)
def test_models_change_one_by_one_and_back(
    tmp_path: Path, models: Path, section: dict[str, Any], before: list[Any], after: list[Any]
) -> None:
    scene = Scene(tmp_path, section)
    assert scene.answers() == before
    with scene.followed():
        world = scene.executor_of("world")
        scene.in_use = {scene.first}
        write_onnx(models, "eu", 20, version=2)
        name_alias(models / "eu", champion=2)
        scene.wait_for(eu=2, world=1)
        assert scene.executor_of("world") is world, "the other model is shared"
        assert scene.answers(scene.first) == before, "batches that were submitted before"
        assert scene.shown() == {("eu", "2"), ("world", "1")}
        scene.in_use = set()
        write_onnx(models, "world", 30, version=2)
        scene.wait_for(eu=2, world=2)
        assert scene.answers() == after
        name_alias(models / "eu", champion=1)
        delete_version(models / "world", 2)
        scene.wait_for(eu=1, world=1)
        assert scene.answers() == before
        assert scene.errors() == []


def test_default_model_of_tenants_is_followed(tmp_path: Path, models: Path) -> None:
    write_onnx(models, "of-DE", 7)
    scene = Scene(tmp_path, TENANTS)
    with scene.followed():
        assert scene.answers() == [(7, "of-DE:1"), (2, "eu:1")]
        write_onnx(models, "eu", 20, version=2)
        name_alias(models / "eu", champion=2)
        scene.wait_for(eu=2)
        assert scene.answers() == [(7, "of-DE:1"), (20, "eu:2")]


@pytest.mark.parametrize("instances", [1, 2])
def test_loaded_models_of_tenants_are_followed(tmp_path: Path, models: Path, instances: int) -> None:
    for tenant in ("DE", "US"):
        write_onnx(models, f"of-{tenant}", 7)
        name_alias(models / f"of-{tenant}", live=1)
    section = {"tenants": {"field": "who", "name": "of-{tenant}", "version": "live"}, "instances": instances}
    scene = Scene(tmp_path, section)
    with scene.followed():
        assert scene.answers() == [(7, "of-DE:1"), (7, "of-US:1")]
        scene.in_use = {scene.first}
        write_onnx(models, "of-DE", 70, version=2)
        name_alias(models / "of-DE", live=2)
        wait_until(lambda: scene.answers()[0] == (70, "of-DE:2"), 30, "version 2")
        assert scene.answers(scene.first) == [(7, "of-DE:1"), (7, "of-US:1")], "batches that were submitted before"
        assert scene.answers() == [(70, "of-DE:2"), (7, "of-US:1")]
        scene.in_use = set()
        write_onnx(models, "of-US", 70, version=5)
        (models / "of-US" / "5" / "model.onnx").write_bytes(b"broken")
        name_alias(models / "of-US", live=5)
        name_alias(models / "of-DE", live=1)
        wait_until(lambda: scene.answers() == [(7, "of-DE:1"), (7, "of-US:1")], 30, "version 1 again")
        name_alias(models / "of-DE", other=1)  # there is no alias `live` any more: the loaded version goes on
        write_onnx(models, "of-US", 60, version=6)
        name_alias(models / "of-US", live=6)
        wait_until(lambda: scene.answers() == [(7, "of-DE:1"), (60, "of-US:6")], 30, "version 6")


def test_tenant_without_the_alias_has_dead_letters_that_say_so(tmp_path: Path, models: Path) -> None:
    write_onnx(models, "of-DE", 7)
    scene = Scene(tmp_path, {"tenants": {"field": "who", "name": "of-{tenant}", "version": "live", "default": EU}})
    with scene.followed(), pytest.raises(EventsRejected) as caught:
        scene.answers()
    (rejection,) = caught.value.rejected.values()
    assert rejection.reason == "no_model"
    assert "models.tenants.version: model `of-DE` has no alias `live` (aliases: none; versions: 1)" in rejection.error


def test_version_that_does_not_fit_leaves_the_old_one_and_the_others_go_on(tmp_path: Path, models: Path) -> None:
    scene = Scene(tmp_path, ROUTE)
    with scene.followed():
        write_onnx(models, "eu", 20, version=2)
        (models / "eu" / "2" / "config.yaml").write_text(CONFIG.replace("[{tensor: y}]", "[{tensor: y, name: z}]"))
        name_alias(models / "eu", champion=2)
        wait_until(lambda: bool(scene.errors()), 30, "the error")
        write_onnx(models, "world", 30, version=2)
        scene.wait_for(world=2)
        assert scene.answers() == [(2, "eu:1"), (30, "world:2")]
        ((model, reason, error),) = scene.errors()
        assert (model, reason) == ("eu", "signature")
        assert "expected the outputs y of version 1, found z. Restart the workers to change over to it" in error
        name_alias(models / "eu", champion=1)
        wait_until(lambda: not scene.errors(), 30, "the error to be gone")


def test_outputs_of_another_type_do_not_fit_the_steps_that_they_feed(tmp_path: Path, models: Path) -> None:
    scene = Scene(tmp_path, ENSEMBLE)
    with scene.followed():
        write_scaled(models, "wide", 20)
        code = models / "wide" / "1" / "model.py"
        code.write_text(code.read_text("utf-8").replace("np.float32", "np.float64"), encoding="utf-8")
        (models / "wide" / "1").rename(models / "eu" / "2")
        name_alias(models / "eu", champion=2)
        wait_until(lambda: bool(scene.errors()), 30, "the error")
        ((_, reason, error),) = scene.errors()
        assert reason == "signature"
        assert "output `y`: expected float32 of shape [] per event as version 1 gives it, found float64" in error
        assert scene.members() == {"eu": 1, "world": 1}


def test_version_on_a_server_is_refused(tmp_path: Path, models: Path) -> None:
    scene = Scene(tmp_path, ROUTE)
    with scene.followed():
        folder = models / "eu" / "new"
        folder.mkdir()
        (folder / "config.yaml").write_text("executor: kserve\nserver: {urls: ['http://127.0.0.1:1']}\n" + CONFIG)
        folder.rename(models / "eu" / "2")
        name_alias(models / "eu", champion=2)
        wait_until(lambda: bool(scene.errors()), 30, "the error")
        ((_, reason, error),) = scene.errors()
        assert reason == "load"
        assert "the executor kserve runs on a server, which `models` doesn't support" in error


def test_two_models_of_one_version_share_its_series(tmp_path: Path, models: Path) -> None:
    route = {"route": {"field": "who", "values": {"DE": EU}, "default": {"name": "eu", "version": 1}}}
    scene = Scene(tmp_path, route)
    with scene.followed():
        assert scene.shown() == {("eu", "1")}
        write_onnx(models, "eu", 20, version=2)
        name_alias(models / "eu", champion=2)
        wait_until(lambda: scene.shown() == {("eu", "1"), ("eu", "2")}, 30, "both versions")
        wait_until(lambda: scene.answers() == [(20, "eu:2"), (2, "eu:1")], 30, "both answering")


def test_copies_change_together(tmp_path: Path, models: Path) -> None:
    scene = Scene(tmp_path, ROUTE | {"instances": 2})
    with scene.followed():
        write_onnx(models, "eu", 20, version=2)
        name_alias(models / "eu", champion=2)
        scene.wait_for(eu=2)
        one, other = (copy.members for copy in scene.executors())
        assert [each.model.version for each in one] == [each.model.version for each in other]
        assert len({id(member.executor) for member in (*one, *other)}) == 4
