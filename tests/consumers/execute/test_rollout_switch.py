"""Pools that switch between revisions of a rollout while batches are in flight: each event once, by what its prediction names."""

from __future__ import annotations

import random
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.execute import runner
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.result_buffer import MAX_DELAY, ResultBuffer
from millstream.consumers.execute.served import TOGETHER, TOGETHER_IN_ROLLOUT
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.rollout.routing import RoutingPlan, route
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.consumers.serving.rollout_router import RolloutRouter
from millstream.consumers.sink.coalesce import coalesce
from millstream.inference.errors import ExecutorUnavailable
from tests.consumers.clock import Clock
from tests.consumers.execute.rollouts import rollout_of
from tests.consumers.execute.serving import in_slots, plain_runner, running_model
from tests.consumers.in_memory import batch_of

if TYPE_CHECKING:
    from millstream.consumers.events import BatchResult, ResultQueue
    from millstream.consumers.execute.opened_rollout import OpenedRollout
    from millstream.inference.executors.interface import Inputs

EVENTS, BATCHES = 10, 200
SHARES = ((9900, 100), (5000, 5000), (0, 10_000), (10_000, 0))


def plan_of(revision: int) -> RoutingPlan:
    return RoutingPlan("r1", reallocated(whole(), SHARES[revision % len(SHARES)]), 2)


class Pool:
    """A pool that serves a rollout, and versions that are away now and then."""

    def __init__(self, slots: int) -> None:
        self.answers: ResultQueue = SimpleQueue()
        self.failures: list[BaseException] = []
        self.metrics, abandon = Metrics("p"), threading.Event()
        self.random = random.Random(7)
        self.runs = [self._run_of(version) for version in (1, 2)]
        runners = [plain_runner(16, abandon, self.metrics) for _ in range(slots)]
        self.first = running_model(self.runs[0])
        self.pool = ExecutorPool(
            runners,
            in_slots(slots, self.metrics),
            self.first,
            ResultBuffer(self.answers),
            ordering="partition",
            abandon=abandon,
            fail=self.failures.append,
        )

    def _run_of(self, version: int) -> Any:
        def run(inputs: Inputs) -> dict[str, Any]:
            if version == 2 and self.random.random() < 0.05:
                raise ExecutorUnavailable("away")
            return {"y": np.asarray(inputs["x"]) * 0 + version}

        return run

    def rollout(self, revision: int) -> OpenedRollout:
        plan = plan_of(revision)
        router = RolloutRouter(plan, (), absent=(), fallback=0)
        return rollout_of(*self.runs, route=router.assigned, revision=revision, shares=plan.shares)

    def results(self) -> list[BatchResult]:
        """What was passed on, in order, joined as the writer joins it."""
        self.pool.settle()
        given = [self.answers.get_nowait() for _ in range(self.answers.qsize())]
        assert self.failures == []
        return list(coalesce([one for group in given if isinstance(group, list) for one in group]))


@pytest.mark.parametrize("slots", [1, 3])
def test_each_event_is_answered_once_by_the_revision_and_the_variant_that_it_names(slots: int) -> None:
    scene, done, revisions = Pool(slots), threading.Event(), 0

    def switch() -> None:
        nonlocal revisions
        while not done.is_set():
            revisions += 1
            scene.pool.switch_to(scene.rollout(revisions))
            time.sleep(0.0005)

    switching = threading.Thread(target=switch)
    switching.start()
    for number in range(BATCHES):
        # Otherwise, on a busy machine, all batches may come before the first revisions.
        while revisions < number // 10 and switching.is_alive():
            time.sleep(0.0005)
        scene.pool.submit(batch_of("e" * EVENTS, EVENTS * number))
    done.set()
    switching.join()
    found, seen, used = scene.results(), 0, set[int]()
    for result in found:
        ids = list(result.batch.ids())
        assert result.rows.tolist() == list(range(len(ids)))
        for row, event in enumerate(ids):
            assert event == str(seen + row), "each event once, in order"
            letter = result.row_models.letter_model(row) if result.variants else None
            version = int(result.outputs["y"][row, 0])
            if letter is None:
                assert version == 1, "before the first revision"
                continue
            assert letter.version == version
            assert letter.choice is not None
            used.add(letter.choice.revision)
            (variant,) = route(plan_of(letter.choice.revision), [event.encode()]).variant.tolist()
            assert letter.choice.assigned == ("primary", "canary")[variant]
            assert version == 1 + variant or letter.variant == "primary", "the baseline answers in an outage"
        seen += len(ids)
    assert seen == EVENTS * BATCHES
    assert len(used) > 3
    assert not scene.pool.is_in_use(scene.first)
    scene.pool.close()


def test_fast_models_get_several_full_batches_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, runner).step = 0.0001
    scene = Pool(1)
    assert scene.pool.together == 1, "nobody knows how fast it is"
    scene.pool.submit(batch_of("e" * EVENTS))
    assert scene.pool.together == TOGETHER
    scene.pool.switch_to(scene.rollout(1))
    assert scene.pool.together == TOGETHER_IN_ROLLOUT
    scene.pool.switch_to(scene.rollout(3))
    assert scene.pool.together == 1, "one version has all events"
    scene.pool.close()


def test_slow_versions_get_one_batch_at_a_time() -> None:
    scene = Pool(1)

    def slow(inputs: Inputs) -> dict[str, Any]:
        time.sleep(2 * MAX_DELAY)
        return {"y": np.asarray(inputs["x"])}

    scene.runs[0] = slow
    scene.pool.switch_to(scene.rollout(1))
    scene.pool.submit(batch_of("e" * EVENTS))
    assert scene.pool.together == 1
    scene.pool.close()
    assert Pool(3).pool.together == 1, "threads run several batches at a time"
