"""How far back the baseline is read at 100 %."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.evaluation.before import ENOUGH, with_enough_before
from millstream.consumers.evaluation.figures import StepFigures, VariantFigures, WindowFigures
from millstream.consumers.evaluation.settings import BEFORE_MS, step_settings
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.slots import whole
from millstream.pipeline.shares import SLOTS
from tests.consumers.evaluation.scene import MINUTE, SINCE, pipeline_of, record_of

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.consumers.evaluation.settings import StepSettings

HOUR = 60 * MINUTE


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> StepSettings:
    """At 100 %."""
    progress = Progress("m:2", "watching", step=2, share=SLOTS, since=SINCE, epoch=3, attempts=(1, 1, 1))
    record = record_of(ranges=whole(1), strategy_state=progress.to_json())
    return step_settings(pipeline_of(tmp_path_factory.mktemp("pipeline")), record)


def step(
    epoch: int, hours: float, events: int, *, share: float = 0.5, sampled: float = 1.0, **of: object
) -> StepFigures:
    """A step that took so long, and ended when the step at 100 % began."""
    variants = VariantFigures("primary", "m", 1, share, events, sampled), VariantFigures("canary", "m", 2, 0.5, 1, 1.0)
    since, window = SINCE - round(hours * HOUR), WindowFigures(None, None, ())
    found = StepFigures("shop", "shop-2", 1, epoch, since, SINCE, 0.0, 0, (), variants, (), (), window, ())
    return replace(found, **of)  # type: ignore[arg-type]


def test_an_hour_is_enough_if_it_has_many_events(settings: StepSettings) -> None:
    assert with_enough_before(settings, [step(2, 10, 10 * ENOUGH)]).before == BEFORE_MS
    assert with_enough_before(settings, []).before == BEFORE_MS
    assert with_enough_before(settings, [step(2, 0.5, 10)]).before == BEFORE_MS


def test_few_events_are_read_from_as_much_of_the_last_step_as_is_needed(settings: StepSettings) -> None:
    assert with_enough_before(settings, [step(1, 90, 10**7), step(2, 10, 500)]).before == 10 * HOUR
    assert with_enough_before(settings, [step(2, 10, 2 * ENOUGH)]).before == 5 * HOUR
    assert with_enough_before(settings, [step(2, 10, ENOUGH, sampled=0.5)]).before == 5 * HOUR


def test_comparisons_of_blue_green_are_a_sample_of_the_events(settings: StepSettings) -> None:
    """The evaluation before 100 % reads comparisons, of 10 % of the events here. That at 100 % reads all predictions."""
    canary = step(2, 40, ENOUGH)
    blue_green = replace(canary, variants=(canary.variants[0], replace(canary.variants[1], share=0.0)))
    assert with_enough_before(settings, [blue_green], 0.1).before == 4 * HOUR
    assert with_enough_before(settings, [canary], 0.1).before == 40 * HOUR


def test_step_without_a_share_of_the_baseline_is_passed_over(settings: StepSettings) -> None:
    """The candidate has had all events for two hours, then somebody has paused and resumed."""
    steps = [step(1, 12, 500, now=SINCE - 2 * HOUR), step(2, 2, 300, share=0.0)]
    assert with_enough_before(settings, steps).before == 12 * HOUR


def test_other_rollouts_and_steps_do_not_count(settings: StepSettings) -> None:
    steps = [step(2, 10, 500, rollout="shop-1"), step(3, 10, 500)]
    assert with_enough_before(settings, steps).before == BEFORE_MS


def test_nothing_is_read_from_before_a_step_below_100_percent(tmp_path: Path) -> None:
    below = step_settings(pipeline_of(tmp_path), record_of())
    assert with_enough_before(below, [step(1, 10, 500)]) == below
