"""What is said while the latency has no interval: why, and about when it gets one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from millstream.consumers.evaluation.settings import step_settings
from millstream.consumers.evaluation.step_state import StepState
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.slots import whole
from millstream.pipeline.shares import SLOTS
from tests.consumers.evaluation.scene import MINUTE, SINCE, pipeline_of, record_of, state_of
from tests.consumers.evaluation.test_judge import rows_of

if TYPE_CHECKING:
    from millstream.consumers.evaluation.rows import Rows
    from millstream.pipeline.pipeline import Pipeline

_RATE = 3_000  # events a minute
_BACKLOG = 500  # events of the first second


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(tmp_path_factory.mktemp("pipeline"))


def after_backlog(state: StepState, minutes: float, *, share: float = 0.3) -> Rows:
    """A backlog at the begin of the step, whose batches are large and slow, and then a steady load."""
    rows = rows_of(state, round(minutes * _RATE) + _BACKLOG, share=share)
    rng = np.random.default_rng(3)
    steady = len(rows) - _BACKLOG
    times = np.concatenate([rng.integers(1, 1000, _BACKLOG), rng.integers(1000, round(minutes * MINUTE), steady)])
    rows["time"] = rows["written"] = SINCE + times
    rows["ms"][:_BACKLOG] *= 5
    return rows


def said_of(state: StepState, rows: Rows, minutes: float) -> list[str]:
    state.held.add(rows)
    return [note for note in state.figures(SINCE + round(minutes * MINUTE)).notes if note.startswith("latency")]


def test_burst_of_slow_calls_is_named_and_the_forecast_comes_true(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    [said] = said_of(state, after_backlog(state, 1), 1)
    assert said.startswith("latency: the slow calls of ")
    assert " of the 20 blocks of time that are needed; " in said
    assert "% of them came in one burst, within 1" in said
    assert said.endswith(" min more at the present rate")
    left = float(said.split("about ")[1].split(" ")[0])
    [later] = said_of(state_of(pipeline), after_backlog(state, 1 + left / 2), 1 + left / 2)
    assert "in one burst" in later
    assert not said_of(state_of(pipeline), after_backlog(state, 1.2 * (1 + left)), 1.2 * (1 + left))


def test_few_calls_are_no_burst(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    [said] = said_of(state, rows_of(state, 100), 10)
    assert "burst" not in said
    assert said.endswith(" min more at the present rate")
    enough = state_of(pipeline)
    assert not said_of(enough, rows_of(enough, 1_000), 10)


def test_baseline_of_before_gets_no_more_calls(pipeline: Pipeline) -> None:
    progress = Progress("m:2", "watching", step=2, share=SLOTS, since=SINCE, epoch=3, attempts=(1, 1, 1))
    state = state_of(pipeline, record_of(ranges=whole(1), strategy_state=progress.to_json()))
    before = after_backlog(state, 1, share=0.0)
    before["time"] -= 30 * MINUTE
    [said] = said_of(state, np.concatenate([rows_of(state, share=1.0), before]), 10)
    assert said.startswith("latency: the slow calls of primary count as ")
    assert said.endswith("; no more of them come: `millstream rollout promote` goes on")


def test_burst_from_before_the_last_step_does_not_hold_a_candidate_at_100_percent_for_good(pipeline: Pipeline) -> None:
    """In an earlier step, calls of the baseline waited for a broker. The candidate passed the last one, which had no burst."""
    progress = Progress("m:2", "watching", step=2, share=SLOTS, since=SINCE, epoch=3, attempts=(1, 1, 1))
    begun = SINCE - 30 * MINUTE + 2_000

    def state_at_100_percent(last_shared: int | None) -> StepState:
        record = record_of(ranges=whole(1), strategy_state=progress.to_json())
        return StepState(replace(step_settings(pipeline, record), last_shared=last_shared))

    def found(last_shared: int | None) -> tuple[list[str], str]:
        state = state_at_100_percent(last_shared)
        before = after_backlog(state, 2, share=0.0)
        before["time"] -= 30 * MINUTE
        after = rows_of(state, 6_000, share=1.0)
        said = said_of(state, np.concatenate([after, before]), 10)
        [latency] = [own for own in state.evaluation(SINCE + 10 * MINUTE, 1).verdicts if own.metric == "latency"]
        return said, latency.outcome

    assert found(begun) == ([], "pass")
    for unknown in (None, SINCE - 20 * MINUTE):  # the last step had no call of the baseline
        [said], outcome = found(unknown)
        assert said.endswith("; no more of them come: `millstream rollout promote` goes on")
        assert outcome == "undecided"


def test_nothing_is_said_without_calls(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    assert not said_of(state, rows_of(state, share=0.0), 10)
