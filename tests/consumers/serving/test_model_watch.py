"""The watch follows what the repository wants, keeps the served version when it can't, and says so."""

from __future__ import annotations

import logging
import threading
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.observability import metrics as m
from millstream.consumers.serving import model_watch
from millstream.consumers.serving.errors import NotServed
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.model_watch import MOST_WAITS, ModelWatch
from millstream.consumers.serving.place import WholePool
from millstream.consumers.serving.reload_error import MAX_ERROR_LENGTH
from millstream.consumers.serving.wanted_now import Target
from tests.consumers.measured import Measured

if TYPE_CHECKING:
    from millstream.consumers.execute.interface import Pool
    from millstream.inference.executors.opened import OpenedModel
    from millstream.inference.repository import ModelVersion


class Scene(Measured):
    """A watch between a repository and a pool that are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: Target | NotServed = Target(1, "a")
        self.broken: dict[Target, NotServed] = {}
        self.loads: list[Target] = []
        self.unloaded: list[int] = []
        self.served: list[int] = [1]  # what the pool was told, in order
        self.in_use: set[int] = {1}  # versions with batches in flight
        self.on_load: Any = lambda: None
        self.started: Target | None = None  # with which content; None: the one that it is asked for
        self.stop = threading.Event()
        pool = SimpleNamespace(switch_to=self._switch_to, is_in_use=lambda opened: opened in self.in_use)
        self.watch = ModelWatch(
            self._loaded(1, None),
            WholePool(cast("Pool", pool)),
            self._find,
            self,
            stop=self.stop,
            metrics=self.metrics,
        )

    def _find(self) -> Target:
        if isinstance(self.wanted, NotServed):
            raise self.wanted
        return self.wanted

    def _loaded(self, version: int, target: Target | None) -> Loaded:
        model = cast("ModelVersion", SimpleNamespace(name="m", version=version, place=f"version {version}"))
        return Loaded(target, model, cast("OpenedModel", version), None)

    def load(self, target: Target, served: Loaded) -> Loaded:
        assert served is self.watch.served
        self.loads.append(target)
        self.on_load()
        if target in self.broken:
            raise self.broken[target]
        return self._loaded(target.version, target)

    def started_with(self, target: Target, first: Loaded) -> bool:
        assert first.model.version == target.version
        return self.started in {None, target}

    def unload(self, loaded: Loaded) -> None:
        assert loaded.model.version not in self.in_use, "it is unloaded only when no batch needs it"
        self.unloaded.append(loaded.model.version)

    def _switch_to(self, opened: Any) -> None:
        self.served.append(opened)
        self.in_use.add(opened)

    def finish(self, version: int) -> None:
        """The version's last batch leaves."""
        self.in_use.discard(version)

    def look(self, *wanted: Target | NotServed) -> None:
        for each in wanted:
            self.wanted = each
            self.watch.look()

    def shown(self) -> list[int]:
        """The versions that the metric shows."""
        return [v for v in range(9) if self.value(m.SERVING_MODEL, model="m", version=str(v)) is not None]

    def reloads(self, result: str) -> float:
        return self.value(m.MODEL_RELOADS, result=result) or 0

    def error(self) -> tuple[str, str] | None:
        """The reason and the error in the metric."""
        found = [
            (sample.labels["reason"], sample.labels["error"])
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == m.MODEL_RELOAD_ERROR.name
        ]
        assert len(found) <= 1
        return found[0] if found else None


def test_version_that_is_wanted_is_not_loaded_again() -> None:
    scene = Scene()
    scene.look(*[Target(1, "a")] * 3)
    assert (scene.loads, scene.served, scene.shown(), scene.error()) == ([], [1], [1], None)


def test_newer_version_and_then_the_older_one_again_are_followed(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.look(Target(1, "a"))
    with caplog.at_level(logging.INFO):
        for target in (Target(2, "b"), Target(1, "a"), Target(3, "c")):
            scene.in_use.clear()
            scene.look(target)
            assert scene.shown() == [target.version]
    assert scene.served == [1, 2, 1, 3]
    assert scene.unloaded == [1, 2, 1]
    assert scene.reloads("switched") == 3
    assert "version 2 of model m answers from now on, in place of version 1." in caplog.text
    assert "version 1 of model m is unloaded" in caplog.text
    assert scene.value(m.PREDICTIONS, model="m", version="3", variant="primary") == 0, "its series begins at 0"


def test_old_version_is_unloaded_when_its_last_batch_has_left_and_no_third_one_is_loaded_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.look(Target(1, "a"), Target(2, "b"))
    assert (scene.served, scene.unloaded) == ([1, 2], [])
    scene.look(Target(3, "c"))
    assert scene.loads == [Target(2, "b")], "two versions are in memory at most"
    assert "Version 1 of model m still has batches in flight." in caplog.text
    scene.finish(1)
    scene.finish(2)
    scene.look(Target(3, "c"))
    assert (scene.served, scene.unloaded) == ([1, 2, 3], [1, 2])


def test_broken_version_leaves_the_old_one_and_is_tried_again_only_when_its_content_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.broken = {Target(2, "b"): NotServed("warm_up", "version 2 can't run: out of luck.")}
    scene.look(Target(1, "a"), *[Target(2, "b")] * 5)
    assert (scene.loads, scene.served, scene.shown()) == ([Target(2, "b")], [1], [1])
    assert scene.error() == ("warm_up", "version 2 can't run: out of luck.")
    assert scene.reloads("warm_up") == 1
    said = "version 2 can't run: out of luck. Version 1 of model m goes on answering; the other one is tried again when its files"
    assert caplog.text.count(said) == 1
    scene.in_use.clear()
    scene.look(Target(2, "repaired"))
    assert (scene.served, scene.error(), scene.shown()) == ([1, 2], None, [2])


def test_failure_is_forgotten_when_the_served_version_is_wanted_again_and_shown_again_after_an_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    scene, broken = Scene(), Target(2, "b")
    scene.broken = {broken: NotServed("load", "it is no model.")}
    scene.look(Target(1, "a"), broken, NotServed("unavailable", "the store is away.", transient=True))
    assert scene.error() == ("unavailable", "the store is away.")
    scene.look(broken)
    assert (scene.error(), scene.loads) == (("load", "it is no model."), [broken])
    assert "is the wanted one again" not in caplog.text
    scene.look(Target(1, "a"))
    assert scene.error() is None
    assert "version 1 of model m, which answers, is the wanted one again" in caplog.text
    scene.look(broken)
    assert scene.loads == [broken, broken], "somebody wants it anew"


def test_source_that_is_away_is_asked_at_each_poll_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.look(*[NotServed("unavailable", "the store is away.", transient=True)] * 4)
    assert scene.reloads("unavailable") == 4
    assert caplog.text.count("the store is away. Version 1 of model m goes on answering.") == 1
    scene.in_use.clear()
    scene.look(Target(2, "b"))
    assert (scene.served, scene.error()) == ([1, 2], None)


def test_version_whose_server_is_away_is_tried_less_and_less_often() -> None:
    scene = Scene()
    scene.broken = {Target(2, "b"): NotServed("unavailable", "its server is away.", transient=True)}
    scene.look(Target(1, "a"), *[Target(2, "b")] * 60)
    assert len(scene.loads) == 1 + len([at for at in (2, 5, 10, 19, 36, 53) if at < 60])
    assert MOST_WAITS == 16
    tried = len(scene.loads)
    scene.look(Target(3, "c"))
    assert scene.loads[tried:] == [Target(3, "c")], "another version is not left alone"
    scene = Scene()
    scene.broken = {Target(2, "b"): NotServed("unavailable", "its server is away.", transient=True)}
    scene.look(Target(1, "a"), *[Target(2, "b")] * 60)
    scene.broken = {}
    scene.in_use.clear()
    scene.look(*[Target(2, "b")] * (MOST_WAITS + 1))
    assert scene.served == [1, 2]


def test_version_that_changes_while_it_is_loaded_is_not_put_to_work() -> None:
    scene = Scene()

    def copied() -> None:
        scene.wanted = Target(2, "whole")

    scene.look(Target(1, "a"))
    scene.on_load = copied
    scene.look(Target(2, "half"))
    assert (scene.served, scene.unloaded) == ([1], [2])
    scene.on_load = lambda: None
    scene.in_use.clear()
    scene.watch.look()
    assert scene.served == [1, 2]


def test_served_version_that_is_changed_where_it_lies_is_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.look(Target(1, "a"))
    scene.in_use.clear()
    scene.look(Target(1, "other"))
    assert scene.loads == [Target(1, "other")]
    assert scene.shown() == [1]
    assert "version 1 of model m was changed where it lies: it is loaded again" in caplog.text


def test_version_that_was_changed_since_the_start_is_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.started = Target(1, "a")
    scene.in_use.clear()
    scene.look(Target(1, "other"))
    assert (scene.loads, scene.served) == ([Target(1, "other")], [1, 1])
    assert "version 1 of model m was changed where it lies: it is loaded again" in caplog.text


def test_content_at_the_start_is_noted_before_the_first_wait() -> None:
    scene = Scene()
    scene.watch.begin()
    scene.in_use.clear()
    scene.look(Target(1, "other"))
    assert scene.loads == [Target(1, "other")]


def test_source_that_is_away_at_the_start_is_asked_again() -> None:
    scene = Scene()
    scene.wanted = NotServed("unavailable", "away.", transient=True)
    scene.watch.begin()
    scene.look(Target(1, "a"), Target(1, "a"))
    assert (scene.loads, scene.error()) == ([], None)


@pytest.mark.parametrize("transient", [False, True])
def test_refused_version_is_free_at_once(monkeypatch: pytest.MonkeyPatch, *, transient: bool) -> None:
    class Weights: ...

    scene = Scene()
    loaded: list[weakref.ref[Weights]] = []

    def failing() -> None:
        weights = Weights()
        loaded.append(weakref.ref(weights))
        raise NotServed("warm_up", "no luck.", transient=transient) from ValueError("no luck")

    given_back: list[object] = []
    monkeypatch.setattr(model_watch, "give_memory_back", lambda: given_back.append(loaded[0]()))
    scene.look(Target(1, "a"))
    scene.on_load = failing
    scene.look(Target(2, "b"))
    assert loaded[0]() is None
    assert given_back == [None], "the memory is given back when the model is free"


def test_error_that_nobody_expects_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()

    def failing() -> None:
        raise ZeroDivisionError("a bug")

    scene.look(Target(1, "a"))
    scene.on_load = failing
    scene.look(Target(2, "b"))
    assert "ZeroDivisionError: a bug" in caplog.text
    assert scene.error() == ("load", "ZeroDivisionError: a bug")
    scene.on_load = lambda: None
    scene.in_use.clear()
    scene.look(Target(2, "b"))
    assert scene.served == [1, 2]


def test_long_error_with_control_characters_is_cut_in_the_metric() -> None:
    scene = Scene()
    scene.look(NotServed("repository", "\x1b[2J" + "e" * 1000, transient=True))
    error = scene.error()
    assert error is not None
    assert len(error[1]) <= MAX_ERROR_LENGTH + 10
    assert "\x1b" not in error[1]


def test_end_unloads_all_versions() -> None:
    scene = Scene()
    scene.look(Target(1, "a"), Target(2, "b"))
    scene.in_use.clear()
    scene.watch.close()
    assert sorted(scene.unloaded) == [1, 2]


TARGETS = [Target(1, "a"), Target(2, "b"), Target(3, "c"), Target(4, "d")]


@given(
    st.lists(
        st.one_of(st.sampled_from(TARGETS), st.sampled_from(["leave", "away"])),
        max_size=40,
    ),
    st.sets(st.sampled_from(TARGETS[1:])),
)
def test_served_version_is_always_the_last_wanted_one_that_could_be_loaded_once_the_pool_is_free(
    steps: list[Target | str], broken: set[Target]
) -> None:
    scene = Scene()
    scene.look(Target(1, "a"))
    scene.broken = {target: NotServed("load", "broken.") for target in broken}
    expected = 1
    for step in steps:
        if step == "leave":
            scene.in_use -= set(scene.in_use) - {scene.served[-1]}
        elif step == "away":
            scene.look(NotServed("unavailable", "away.", transient=True))
        else:
            assert isinstance(step, Target)
            scene.in_use -= set(scene.in_use) - {scene.served[-1]}
            scene.look(step)
            expected = expected if step in broken else step.version
        assert scene.shown() == [scene.served[-1]] == [expected]
    scene.in_use.clear()
    scene.watch.look()
    assert scene.unloaded == scene.served[:-1]
