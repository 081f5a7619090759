"""An executor slot keeps what it has learned of a version while the rollout's shares change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.variant_outage import BACK_OFF, VariantOutage
from millstream.consumers.observability.health import Health
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.safety_net import MAX_UNPROVEN
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.worker.executor_slots import pool_of
from millstream.consumers.worker.shared import shared_of
from millstream.inference.errors import OutOfMemory
from tests.consumers.execute.rollouts import NAMES, rollout_of
from tests.consumers.in_memory import EPOCHS, batch_of
from tests.consumers.measured import Measured
from tests.consumers.worker.test_worker import SETTINGS

if TYPE_CHECKING:
    from millstream.consumers.events import BatchResult
    from millstream.inference.executors.interface import Inputs

EVENTS = 32


class Scene(Measured):
    """A pool whose rollout gets a new revision before each batch."""

    def __init__(self, candidate: Any) -> None:
        super().__init__()
        self.order: list[int] = []  # the versions in the order in which they ran
        self.now = 0.0
        shared = shared_of(
            replace(SETTINGS, batch=Limits(EVENTS, 1 << 20, 0.0)), CrashGuard(3, 100), Health(60.0), self.metrics
        )
        shared.assignment.add(EPOCHS)
        self._answers = shared.answers
        outages = [VariantOutage(name, lambda: self.now) for name in NAMES]
        self._rollout = rollout_of(self._noting(1, np.negative), self._noting(2, candidate), outages=outages)
        first = self._rollout.variants[0].opened
        assert first is not None
        self._pool = pool_of(
            shared,
            first,
            Retry(shared.ending.abandon, shared.health, self.metrics),
            ResultBuffer(shared.answers),
            in_flight=1,
            ahead=0,
        )

    def _noting(self, version: int, answer: Any) -> Any:
        def run(inputs: Inputs) -> dict[str, Any]:
            self.order.append(version)
            return {"y": answer(np.asarray(inputs["x"]))}

        return run

    def answer(self, revision: int) -> list[BatchResult]:
        """The results of a batch under this revision."""
        self._pool.switch_to(replace(self._rollout, revision=revision))
        self._pool.submit(batch_of("e" * EVENTS))
        self._pool.flush()
        self.now += BACK_OFF[1]
        given = self._answers.get_nowait()
        assert isinstance(given, list)
        return given


def test_version_that_ran_out_of_memory_does_not_do_so_again_after_each_revision() -> None:
    refused = 0

    def small(events: Any) -> Any:
        nonlocal refused
        if len(events) > 4:
            refused += 1
            raise OutOfMemory("more than 4 events")
        return np.negative(events)

    scene = Scene(small)
    scene.answer(1)
    first = refused
    assert first > 0
    for revision in range(2, 5):
        scene.answer(revision)
    assert refused == first


def test_version_that_always_raises_costs_no_more_events_after_each_revision() -> None:
    def broken(_events: Any) -> Any:
        raise RuntimeError("a bug")

    scene = Scene(broken)
    rejected = sum(len(one.rejected) for revision in range(1, 8) for one in scene.answer(revision))
    assert rejected <= MAX_UNPROVEN


def test_variants_go_on_taking_turns_after_each_revision() -> None:
    scene = Scene(np.negative)
    for revision in range(1, 4):
        scene.answer(revision)
    assert scene.order == [2, 1, 1, 2, 2, 1]
