"""The watch routes by the newest revision, with what it has loaded; what it can't load or read leaves the worker working."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.execute.opened_rollout import Opened, OpenedRollout
from millstream.consumers.observability import metrics as m
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.revisions import Change, next_record
from millstream.consumers.rollout.routing import FieldOverride
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.consumers.serving import held_versions, loader, rollout_watch
from millstream.consumers.serving.errors import NotServed
from millstream.consumers.serving.held_versions import MOST_LOADS, RETRY, HeldVersions, in_thread
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.rollout_watch import RolloutWatch
from millstream.consumers.serving.wanted_now import Target
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from tests.broker.clients import wait_until
from tests.consumers.in_memory import batch_of
from tests.consumers.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.consumers.execute.interface import Pool
    from millstream.inference.repository import ModelVersion

MISSING = NotServed("repository", "version 2 is not there.", transient=True)
BROKEN = NotServed("warm_up", "version 2 can't run.")


def record_of(*shares: int, versions: tuple[int, ...] = (1, 2), **changed: Any) -> RolloutRecord:
    """Revision 1. `shares`: percent of each variant."""
    variants = tuple(RolloutVariant(f"v{own}", "m", own) for own in versions)
    given: dict[str, Any] = dict.fromkeys(("change_id", "by", "action", "reason"), "")
    given |= {"pipeline": "p", "revision": 1, "replaces": 0, "at": 0, "rollout": "r1", "strategy": "manual"}
    given |= {"state": "running", "variants": variants, "ranges": reallocated(whole(), [100 * own for own in shares])}
    return RolloutRecord(**given | changed)


class Scene(Measured):
    """A watch between a control topic, a repository and a pool that are in memory."""

    def __init__(
        self, record: RolloutRecord | None = None, *, first: int = 1, loads: bool = True, in_threads: bool = False
    ) -> None:
        """Args:
        record: the newest one.
        first: the version at the start.
        loads: whether the versions of the record are loaded already.
        in_threads: whether each version is loaded in a thread of its own; otherwise `look` returns when all are loaded.
        """
        super().__init__()
        self.now = 100.0
        self.record = record
        self.problem = ""
        self.contents = {1: "a", 2: "b", 3: "c"}  # version -> fingerprint
        self.broken: dict[int, NotServed] = {}
        self.loads: list[int] = []
        self.unloaded: list[int] = []
        self.on_load: Any = lambda: None
        self.switched: list[Opened] = []  # what the pool was told, in order
        self.in_flight: set[int] = set()  # versions with batches in flight
        self.closed = False
        self.stop = threading.Event()
        self.release = threading.Event()  # set: `hang` comes back
        pool = SimpleNamespace(switch_to=self.switched.append, is_in_use=self._is_in_use)
        self.opened = self._loaded(first, None)
        self.versions = HeldVersions(
            self.opened,
            self._find,
            self,
            self.metrics,
            lambda: self.now,
            in_thread if in_threads else lambda load: load(),
        )
        self.watch = RolloutWatch(
            cast("Pool", pool),
            self,
            self.versions,
            own=1,
            override_fields=("country",),
            sample=None,
            stop=self.stop,
            metrics=self.metrics,
        )
        self.watch.start()
        if loads:
            self.look()

    def poll(self, timeout: float) -> None: ...

    def close(self) -> None:
        self.closed = True

    def _find(self, version: int) -> Target:
        if version not in self.contents:
            raise NotServed("repository", f"version {version} is not there.", transient=True)
        return Target(version, self.contents[version])

    def _loaded(self, version: int, target: Target | None) -> Loaded:
        model = cast("ModelVersion", SimpleNamespace(name="m", version=version, place=f"version {version}"))
        executor = cast("Any", SimpleNamespace())
        return Loaded(target, model, OpenedModel(ModelId("m", version), [executor]), None)

    def load(self, target: Target, served: Loaded) -> Loaded:
        assert served.model.version not in self.unloaded
        self.loads.append(target.version)
        self.on_load()
        if target.version in self.broken:
            raise self.broken[target.version]
        return self._loaded(target.version, target)

    def hang(self) -> None:
        """Loading does not come back."""
        assert self.release.wait(60)

    def unload(self, loaded: Loaded) -> None:
        assert loaded.model.version not in self.in_flight, "it is unloaded only when no batch needs it"
        served = self.switched[-1] if self.switched else self.opened.opened
        assert self.stop.is_set() or loaded.model.version not in versions_of(served), "nor does the next batch"
        self.unloaded.append(loaded.model.version)

    def _is_in_use(self, opened: Opened) -> bool:
        return opened is self.switched[-1] or bool(versions_of(opened) & self.in_flight)

    @property
    def serving(self) -> OpenedRollout:
        served = self.switched[-1]
        assert isinstance(served, OpenedRollout)
        return served

    def shown(self) -> list[int]:
        """The versions that the metrics show as serving."""
        return [own for own in range(9) if self.value(m.SERVING_MODEL, model="m", version=str(own)) is not None]

    def loaded(self) -> list[int]:
        """The versions of the rollout that is served, as far as they are loaded."""
        return sorted(versions_of(self.serving))

    def change(self, record: RolloutRecord | None) -> None:
        self.record = record
        self.watch.look_at_record()

    def shift(self, *shares: int, **changed: Any) -> None:
        assert self.record is not None
        change = Change(f"c{self.record.revision}", 0, "me", "set", "because")
        slots = [100 * share for share in shares]
        self.change(next_record(self.record, change, expected=self.record.revision, shares=slots, **changed))

    def look(self, times: int = 1, wait: float = 0.0) -> None:
        for _ in range(times):
            self.now += wait
            self.watch.look_at_versions()

    def variants(self, count: int = 1000) -> list[int]:
        """The variants that events of a batch get."""
        return self.serving.route(batch_of("e" * count), None).variant.tolist()  # type: ignore[no-any-return]

    def randomised(self) -> bool:
        found = self.serving.route(batch_of("e" * 100), None).randomised
        return found is None or bool(found.all())


def versions_of(opened: Opened) -> set[int]:
    if isinstance(opened, OpenedModel):
        return {opened.id.version}
    return {each.id.version for each in opened.variants if each.opened is not None}


def shares(variants: Iterable[int]) -> dict[int, int]:
    """How many of 1,000 events each variant has, to the next 100."""
    found = list(variants)
    return {variant: round(found.count(variant), -2) for variant in set(found)}


def test_without_a_rollout_the_baseline_answers_and_nothing_is_loaded() -> None:
    scene = Scene()
    scene.look(3)
    assert (scene.switched, scene.loads, scene.shown()) == ([], [], [1])
    assert scene.value(m.ROLLOUT_REVISION) == 0


@contextmanager
def threads_of(scene: Scene, *, nice: bool = False) -> Iterator[None]:
    """The watch's threads run. At the end, nothing that is loaded hangs any more."""
    threads = [threading.Thread(target=run) for run in (scene.watch.follow, partial(scene.watch.run, nice=nice))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        scene.stop.set()
        scene.release.set()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)


def test_all_versions_of_a_rollout_are_loaded_before_the_first_event() -> None:
    scene = Scene(record_of(70, 30), loads=False)
    with threads_of(scene):
        scene.watch.wait_until_loaded(60, threading.Event())
    assert (scene.loads, scene.loaded(), scene.randomised()) == ([2], [1, 2], True)
    assert shares(scene.variants()) == {0: 700, 1: 300}
    assert scene.shown() == [1, 2]
    assert scene.value(m.ROLLOUT_SHARE, variant="v2", model="m", version="2") == 0.3
    assert scene.value(m.ROLLOUT_LOADED, variant="v2", model="m", version="2") == 1
    assert scene.value(m.PREDICTIONS, model="m", version="2", variant="v2") == 0, "its series begins at 0"


def test_change_of_shares_loads_nothing_and_takes_effect_at_once() -> None:
    scene = Scene(record_of(90, 10))
    before = scene.serving
    scene.shift(50, 50, state="paused")
    assert scene.loads == [2]
    assert (scene.serving.revision, shares(scene.variants())) == (2, {0: 500, 1: 500})
    assert [each.opened for each in scene.serving.variants] == [each.opened for each in before.variants]
    assert scene.value(m.ROLLOUT_REVISION) == 2
    states = [scene.value(m.ROLLOUT_STATE, strategy="manual", state=own) for own in ("running", "paused")]
    assert states == [None, 1]


def test_version_that_a_change_names_is_loaded_meanwhile_and_no_event_counts_until_then() -> None:
    scene = Scene()
    scene.change(record_of(50, 50))
    assert (scene.loads, scene.loaded(), scene.randomised()) == ([], [1], False)
    assert set(scene.variants()) == {0}
    scene.look()
    assert (scene.loads, scene.loaded(), scene.randomised()) == ([2], [1, 2], True)
    assert set(scene.variants()) == {0, 1}


def test_version_that_is_loaded_answers_before_the_next_one_is_loaded() -> None:
    scene, before = Scene(), list[list[int]]()
    scene.on_load = lambda: before.append(scene.loaded())
    scene.change(record_of(50, 25, 25, versions=(1, 2, 3)))
    scene.look()
    assert (scene.loads, before, scene.loaded()) == ([2, 3], [[1], [1, 2]], [1, 2, 3])


def test_version_that_was_promoted_is_loaded_before_one_that_only_an_override_names() -> None:
    scene = Scene(record_of(0, 100, state="promoted", keys=((b"a", 0),)), first=3, loads=False)
    scene.look()
    assert (scene.loads, scene.serving.fallback) == ([2, 1], 1)


def test_change_while_a_version_is_loaded_does_not_wait_for_it() -> None:
    scene = Scene()
    scene.change(record_of(50, 50))
    scene.on_load = lambda: scene.shift(100, 0, state="rolled_back")
    scene.look()
    assert scene.serving.revision == 2
    assert scene.loaded() == [1]
    scene.look()
    assert scene.unloaded == [2], "the version that came too late is not kept"


@pytest.mark.parametrize("refused", [MISSING, BROKEN])
def test_version_that_cannot_be_loaded_leaves_its_events_to_the_baseline_and_they_count(
    refused: NotServed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        scene = Scene()
        scene.broken = {2: refused}
        scene.change(record_of(50, 50))
        scene.look(3)
    assert (scene.loads, scene.loaded(), scene.randomised()) == ([2], [1], True)
    assert set(scene.variants()) == {0, 1}, "the rollout's choice is kept: the prediction says both"
    assert scene.value(m.ROLLOUT_LOADED, variant="v2", model="m", version="2") == 0
    assert scene.shown() == [1]
    assert scene.value(m.MODEL_RELOAD_ERROR, model="m", reason=refused.reason, error=str(refused)) == 1
    assert caplog.text.count(f"{refused} The baseline answers the events of version 2.") == 1


def test_what_may_pass_is_tried_again_less_and_less_often() -> None:
    scene = Scene()
    scene.broken = {2: MISSING}
    scene.change(record_of(50, 50))
    scene.look(20, wait=0.4)
    assert len(scene.loads) == 4  # at 0, 1, 3 and 7 s
    del scene.broken[2]
    scene.look(1, wait=RETRY[1])
    assert (scene.loaded(), scene.randomised()) == ([1, 2], True)
    assert scene.value(m.MODEL_RELOAD_ERROR, model="m", reason="repository", error=str(MISSING)) is None
    assert scene.value(m.ROLLOUT_LOADED, variant="v2", model="m", version="2") == 1


def test_broken_version_is_tried_again_only_when_its_files_change() -> None:
    scene = Scene()
    scene.broken = {2: BROKEN}
    scene.change(record_of(50, 50))
    scene.look(5, wait=RETRY[1])
    assert scene.loads == [2]
    scene.broken, scene.contents[2] = {}, "mended"
    scene.look(2, wait=RETRY[1])
    assert (scene.loads, scene.loaded()) == ([2, 2], [1, 2])


def test_change_of_the_rollout_tries_at_once_what_failed() -> None:
    scene = Scene()
    del scene.contents[2]
    scene.change(record_of(50, 50))
    scene.look()
    scene.contents[2] = "b"
    scene.shift(60, 40)
    scene.look()
    assert scene.loaded() == [1, 2]


def test_ended_rollout_keeps_only_what_has_events_and_waits_for_batches_in_flight() -> None:
    scene = Scene(record_of(50, 50))
    scene.in_flight = {1}
    scene.shift(0, 100, state="promoted")
    assert (scene.loaded(), scene.serving.fallback, scene.shown()) == ([2], 1, [2])
    scene.look(2)
    assert scene.unloaded == []
    scene.in_flight = set()
    scene.look()
    assert scene.unloaded == [1]
    scene.stop.set()
    scene.watch.close()
    assert (scene.unloaded, scene.closed) == ([1, 2], True)


def test_rollback_while_running_keeps_both_versions_loaded() -> None:
    scene = Scene(record_of(50, 50))
    scene.shift(100, 0)
    scene.look(2)
    assert (scene.loaded(), scene.unloaded) == ([1, 2], [])
    scene.shift(100, 0, state="rolled_back")
    scene.look(2)
    assert (scene.loaded(), scene.unloaded) == ([1], [2])


def test_ended_rollout_keeps_a_version_that_an_override_names() -> None:
    scene = Scene(record_of(50, 50))
    scene.change(record_of(100, 0, state="rolled_back", revision=2, keys=((b"a", 1),)))
    scene.look()
    assert (scene.loaded(), scene.unloaded) == ([1, 2], [])


def test_next_rollout_starts_from_what_the_one_before_promoted() -> None:
    scene = Scene(record_of(0, 100, state="promoted"), first=2)
    assert scene.loaded() == [2]
    scene.change(record_of(95, 5, versions=(2, 3), rollout="r2", revision=2))
    scene.look()
    assert (scene.loaded(), scene.loads, scene.serving.id) == ([2, 3], [3], "r2")


def test_revision_of_which_nothing_is_loaded_waits_and_the_state_before_goes_on() -> None:
    scene = Scene(record_of(50, 50))
    scene.change(record_of(0, 100, versions=(1, 3), state="promoted", rollout="r2", revision=2))
    assert scene.serving.id == "r1"
    assert scene.value(m.ROLLOUT_REVISION) == 1
    scene.look()
    assert (scene.serving.id, scene.loaded()) == ("r2", [3])
    scene.look()
    assert sorted(scene.unloaded) == [1, 2]


def test_rollout_that_is_gone_leaves_the_version_of_the_pipeline_file() -> None:
    scene = Scene(record_of(50, 50))
    assert scene.value(m.ROLLOUT_STATE, strategy="manual", state="running") == 1
    scene.change(None)
    assert scene.switched[-1] is scene.opened.opened
    assert scene.value(m.ROLLOUT_REVISION) == 0
    assert scene.value(m.ROLLOUT_STATE, strategy="manual", state="running") is None
    scene.look()
    assert scene.unloaded == [2]


def test_version_of_the_pipeline_file_is_loaded_again_when_the_rollout_is_gone() -> None:
    scene = Scene(record_of(50, 50))
    scene.shift(0, 100, state="promoted")
    scene.look()
    assert scene.unloaded == [1]
    scene.unloaded.clear()
    scene.change(None)
    assert versions_of(scene.switched[-1]) == {2}, "until it is there"
    scene.look(2)
    assert versions_of(scene.switched[-1]) == {1}
    assert (scene.loads, scene.unloaded) == ([2, 1], [2])


def test_rollout_of_another_model_leaves_all_events_to_the_baseline(caplog: pytest.LogCaptureFixture) -> None:
    variants = (RolloutVariant("v1", "m", 1), RolloutVariant("v2", "other", 2))
    scene = Scene(record_of(50, 50, variants=variants))
    assert (scene.loads, scene.loaded()) == ([], [1])
    assert "expected versions of model m, found model other" in caplog.text


def test_override_by_a_field_that_is_not_decoded_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Scene(record_of(50, 50, fields=(FieldOverride("tier", frozenset({"gold"}), 1),)))
    assert "overrides by tier have no effect: name the fields in `rollout.override_fields`" in caplog.text


def test_topic_that_cannot_be_read_keeps_the_last_state_and_is_shown() -> None:
    scene = Scene(record_of(50, 50))
    scene.problem = "no broker answers"
    scene.watch.look_at_record()
    assert scene.value(m.ROLLOUT_UNREADABLE) == 1
    assert shares(scene.variants()) == {0: 500, 1: 500}
    scene.problem = ""
    scene.watch.look_at_record()
    assert scene.value(m.ROLLOUT_UNREADABLE) == 0


def test_threads_follow_and_end(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    polls = iter([RuntimeError("a bug"), None])

    def poll(timeout: float) -> None:  # noqa: ARG001
        found = next(polls, None)
        if found is not None:
            raise found
        scene.record = scene.record or record_of(50, 50)
        if scene.loads and scene.loaded() == [1, 2]:
            scene.stop.set()

    scene.poll = poll  # type: ignore[method-assign]
    with threads_of(scene):
        assert scene.stop.wait(20)
    assert scene.loaded() == [1, 2]
    assert "the rollout was not followed" in caplog.text


CHANGES = st.lists(
    st.tuples(st.sampled_from(["shift", "end", "look", "break", "mend", "fly", "land"]), st.integers(0, 100)),
    max_size=25,
)


@given(CHANGES)
def test_whatever_happens_the_baseline_is_loaded_and_what_is_routed_to_is_too(changes: list[tuple[str, int]]) -> None:
    scene = Scene(record_of(50, 50))
    for what, number in changes:
        assert scene.record is not None
        match what:
            case "shift":
                scene.shift(100 - number, number, state="running")
            case "end":
                end = (0, 100, "promoted") if number % 2 else (100, 0, "rolled_back")
                scene.shift(*end[:2], state=end[2])
            case "look":
                scene.look(wait=number)
            case "break":
                scene.broken = {1: MISSING, 2: BROKEN} if number % 2 else {2: MISSING}
            case "mend":
                scene.broken, scene.contents = {}, {1: f"a{number}", 2: f"b{number}"}
            case "fly":
                scene.in_flight = versions_of(scene.serving)
            case "land":
                scene.in_flight = set()
        served = scene.serving
        assert served.variants[served.fallback].opened is not None
        assert not {each.model.version for each in map(scene.versions.get, scene.loaded()) if each} ^ set(
            scene.loaded()
        )


def test_version_of_a_key_is_the_one_that_its_events_get() -> None:
    scene = Scene()
    assert scene.watch.version_of(b"a") is None, "there is no rollout"
    scene.change(record_of(50, 50, keys=((b"pinned", 1),)))
    scene.look()
    for key in (b"a", b"b", b"c", b"pinned"):
        found = scene.watch.version_of(key)
        assert found is not None
        assert found.choice is not None
        assert (found.variant, found.version, found.choice.id) == (found.choice.assigned, int(found.variant[1:]), "r1")
        assert (found.choice.propensity, found.choice.randomised) == (0.5, key != b"pinned")
    assert {own.variant for own in map(scene.watch.version_of, (b"%d" % own for own in range(40))) if own} == {
        "v1",
        "v2",
    }


def test_version_of_a_key_does_not_count_if_a_field_might_have_decided() -> None:
    scene = Scene(record_of(50, 50, fields=(FieldOverride("country", frozenset({"FR"}), 1),)))
    found = scene.watch.version_of(b"a")
    assert found is not None
    assert found.choice is not None
    assert not found.choice.randomised


def test_version_of_a_key_names_the_baseline_while_it_answers_in_place_of_the_candidate() -> None:
    scene = Scene()
    scene.broken = {2: BROKEN}
    scene.change(record_of(0, 100))
    scene.look()
    found = scene.watch.version_of(b"a")
    assert found is not None
    assert found.choice is not None
    assert (found.version, found.variant, found.choice.assigned) == (1, "v1", "v2")


def test_version_that_hangs_while_it_is_loaded_holds_up_no_other_one() -> None:
    scene = Scene(record_of(50, 25, 25, versions=(1, 2, 3)), loads=False, in_threads=True)
    scene.on_load = lambda: scene.hang() if scene.loads[-1] == 2 else None
    with threads_of(scene):
        wait_until(lambda: scene.loaded() == [1, 3], 30, "version 3")
        scene.shift(100, 0, 0, state="rolled_back")
        wait_until(lambda: scene.unloaded == [3], 30, "version 3 to be unloaded")
        scene.release.set()
        wait_until(lambda: scene.unloaded == [3, 2], 30, "the version that came too late to be unloaded")
        assert scene.loads.count(2) == 1, "it was not loaded again meanwhile"


def test_few_versions_are_loaded_at_the_same_time() -> None:
    versions = tuple(range(1, 4 + MOST_LOADS))
    scene = Scene(record_of(100, *[0] * (len(versions) - 1), versions=versions), loads=False, in_threads=True)
    scene.contents = dict.fromkeys(versions, "a")
    scene.on_load = scene.hang
    scene.look(3)
    wait_until(lambda: len(scene.loads) == MOST_LOADS, 30, "the first loads")
    scene.look(3)
    assert len(scene.loads) == MOST_LOADS
    scene.release.set()
    scene.versions.wait()
    scene.look()
    scene.versions.wait()
    assert scene.loaded() == list(versions)


def test_version_waits_for_its_turn_only_until_another_one_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_versions, "MOST_LOADS", 1)
    monkeypatch.setattr(rollout_watch, "LOOK_INTERVAL", 15.0)
    scene = Scene(record_of(50, 25, 25, versions=(1, 2, 3)), loads=False, in_threads=True)
    with threads_of(scene):
        wait_until(lambda: scene.loaded() == [1, 2, 3], 10, "both versions")
        scene.stop.set()
        scene.shift(100, 0, 0)  # wakes the watch


def test_version_is_loaded_later_if_the_system_starts_no_thread() -> None:
    scene = Scene(record_of(50, 50), loads=False)
    starts = iter([False, True])

    def run(load: Callable[[], None]) -> None:
        if not next(starts):
            raise RuntimeError("can't start new thread")
        load()

    versions = HeldVersions(scene.opened, lambda own: Target(own, "a"), scene, scene.metrics, run=run)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        versions.begin([2], versions.load, lambda: None)
    versions.begin([2], versions.load, lambda: None)
    assert versions.get(2) is not None
    versions.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a thread has no priority of its own")
def test_loading_and_unloading_may_have_a_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(record_of(50, 50), loads=False, in_threads=True)
    found: dict[str, int] = {}

    def note(what: str) -> None:
        found[what] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    scene.on_load = lambda: note("load")
    monkeypatch.setattr(held_versions, "give_memory_back", lambda: note("unload"))
    monkeypatch.setattr(loader, "NICE_INCREMENT", 19)
    with threads_of(scene, nice=True):
        wait_until(lambda: scene.loaded() == [1, 2], 30, "version 2")
        scene.shift(100, 0, state="rolled_back")
        wait_until(lambda: "unload" in found, 30, "version 2 to be unloaded")
    assert found == {"load": 19, "unload": 19}


def test_version_that_hangs_while_it_is_loaded_does_not_keep_the_baseline_from_answering(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(record_of(50, 50), loads=False)
    scene.on_load = scene.hang
    with threads_of(scene):
        scene.watch.wait_until_loaded(0, threading.Event())
        assert (set(scene.variants()), scene.randomised()) == ({0}, False)
        assert "not loaded after 0 s: version 2" in caplog.text
        scene.release.set()
        scene.watch.wait_until_loaded(60, threading.Event())
        assert (set(scene.variants()), scene.randomised()) == ({0, 1}, True)


@pytest.mark.parametrize("what", ["the worker is to end", "a rollback"])
def test_wait_for_a_version_that_hangs_ends_at_once_if_there_is_nothing_to_wait_for(what: str) -> None:
    scene, stopping = Scene(record_of(50, 50), loads=False), threading.Event()
    scene.on_load = scene.hang
    with threads_of(scene):
        waiting = threading.Thread(target=scene.watch.wait_until_loaded, args=(600, stopping))
        waiting.start()
        if what == "a rollback":
            scene.shift(100, 0, state="rolled_back")
        else:
            stopping.set()
        waiting.join(30)
        assert not waiting.is_alive()


def test_rollback_to_a_version_that_cannot_be_loaded_says_which_one_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(record_of(50, 50))
    scene.shift(0, 100, state="promoted")
    scene.look()
    assert scene.unloaded == [1]
    del scene.contents[1]
    scene.shift(100, 0, state="rolled_back")
    labels = {"variant": "v1", "model": "m", "version": "1"}
    assert scene.value(m.ROLLOUT_LOADED, **labels) == 0
    scene.look()
    assert scene.value(m.ROLLOUT_LOADED, **labels) == 0
    assert (scene.shown(), scene.value(m.ROLLOUT_REVISION)) == ([2], 2)
    assert "version 1 is not there. Until version 1 is loaded, version 2 goes on answering all events." in caplog.text
    assert "The baseline answers" not in caplog.text
    scene.contents[1] = "a"
    scene.look(wait=RETRY[1])
    assert (scene.loaded(), scene.shown(), scene.value(m.ROLLOUT_REVISION)) == ([1], [1], 3)
    assert scene.value(m.ROLLOUT_LOADED, **labels) == 1


def test_log_names_the_version_that_answers_in_place_of_the_baseline(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(first=2, loads=False)
    del scene.contents[1]
    scene.change(record_of(50, 50))
    scene.look()
    assert "version 1 is not there. Version 2 answers the events of version 1." in caplog.text


def test_baseline_of_a_concluded_test_answers_for_the_others_though_it_has_fewer_events() -> None:
    scene = Scene(record_of(50, 50))
    scene.shift(40, 60, state="concluded")
    assert (scene.loaded(), scene.serving.fallback) == ([1, 2], 0)


def test_version_that_fails_for_another_reason_is_not_taken_for_one_that_is_being_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.broken = {2: MISSING}
    scene.change(record_of(50, 50))
    scene.look()
    randomised: list[bool] = []

    def changing(count: Any, *given: Any) -> None:
        """A revision comes while the failure is noted."""
        monkeypatch.undo()
        scene.shift(60, 40)
        randomised.append(scene.randomised())
        count(*given)

    monkeypatch.setattr(scene.metrics, "count", partial(changing, scene.metrics.count))
    scene.broken = {2: BROKEN}
    scene.look(wait=RETRY[1])
    assert randomised == [True]


def test_error_that_two_versions_share_is_shown_until_both_are_loaded() -> None:
    scene = Scene()
    away = NotServed("unavailable", "the store is away.", transient=True)
    scene.broken = {2: away, 3: away}
    scene.change(record_of(50, 25, 25, versions=(1, 2, 3)))
    scene.look()
    for broken, shown in [({3: away}, 1), ({}, None)]:
        scene.broken = broken
        scene.look(wait=RETRY[1])
        assert scene.value(m.MODEL_RELOAD_ERROR, model="m", reason="unavailable", error=str(away)) == shown


def test_version_that_cannot_be_loaded_takes_no_memory() -> None:
    class Weights: ...

    loaded: list[weakref.ref[Weights]] = []

    def failing() -> None:
        weights = Weights()
        loaded.append(weakref.ref(weights))
        raise NotServed("warm_up", "it can't run.")

    scene = Scene()
    scene.on_load = failing
    scene.change(record_of(50, 50))
    scene.look()
    assert [weights() for weights in loaded] == [None]


def test_version_of_a_key_is_the_one_that_goes_on_while_the_newest_revision_waits() -> None:
    scene = Scene(record_of(0, 0, 100, versions=(1, 2, 3), state="promoted"), first=3)
    scene.change(record_of(100, 0, versions=(4, 5), rollout="r2", revision=2, state="rolled_back"))
    found = scene.watch.version_of(b"a")
    assert found is not None
    assert (found.version, found.variant) == (3, "v3")


@pytest.mark.parametrize("versions", [(4, 5), (4, 5, 6)])
def test_version_of_a_key_is_of_the_rollout_that_goes_on_though_the_one_that_waits_has_the_same_revision(
    versions: tuple[int, ...],
) -> None:
    scene = Scene(record_of(50, 50))
    others = [0] * (len(versions) - 1)
    scene.change(record_of(*others, 100, versions=versions, rollout="r2", state="promoted"))
    found = scene.watch.version_of(b"a")
    assert found is not None
    assert (found.version, found.variant) == (1, "v1")
