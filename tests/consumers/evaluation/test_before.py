"""How far back the baseline is read at 100 %."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.evaluation.before import ENOUGH, last_shared, most_before, next_before
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


def step(epoch: int, hours: float, events: int, *, share: float = 0.5, **of: object) -> StepFigures:
    """A step that took so long, and ended when the step at 100 % began."""
    variants = VariantFigures("primary", "m", 1, share, events, 1.0), VariantFigures("canary", "m", 2, 0.5, 1, 1.0)
    since, window = SINCE - round(hours * HOUR), WindowFigures(None, None, ())
    found = StepFigures("shop", "shop-2", 1, epoch, since, SINCE, 0.0, 0, (), variants, (), (), window, ())
    return replace(found, **of)  # type: ignore[arg-type]


def lengths(settings: StepSettings, most: int, events: list[float]) -> list[float]:
    """The times that are read one after the other, in hours, if they have these events of the baseline."""
    found = []
    for count in events:
        settings = replace(settings, before=next_before(settings, most, count))
        found.append(settings.before / HOUR)
    return found


def test_twice_as_long_is_read_until_the_events_are_enough(settings: StepSettings) -> None:
    assert lengths(settings, 100 * HOUR, [ENOUGH]) == [1]
    assert lengths(settings, 100 * HOUR, [0, ENOUGH / 2, ENOUGH]) == [2, 4, 4]


def test_no_more_is_read_than_the_last_step(settings: StepSettings) -> None:
    most = most_before(settings, [step(1, 90, 10**7), step(2, 10, 500)])
    assert lengths(settings, most, [10, 20, 30, 40, 50]) == [2, 4, 8, 10, 10]
    for none in ([], [step(2, 0.5, 10)]):
        assert most_before(settings, none) == BEFORE_MS


def test_step_without_a_share_of_the_baseline_is_passed_over(settings: StepSettings) -> None:
    """The candidate has had all events for two hours, then somebody has paused and resumed."""
    assert most_before(settings, [step(1, 12, 500), step(2, 2, 300, share=0.0)]) == 12 * HOUR


def resumed(folder: Path, hours: float) -> StepSettings:
    """At 100 %, so long after somebody has resumed the step before."""
    at = SINCE - round(hours * HOUR)
    progress = Progress("m:2", "watching", step=2, share=SLOTS, since=SINCE, epoch=3, attempts=(1, 1, 1), resumed=at)
    return step_settings(pipeline_of(folder), record_of(ranges=whole(1), strategy_state=progress.to_json()))


def test_nothing_is_read_from_before_a_resume(tmp_path: Path) -> None:
    steps = [step(1, 5, 500)]  # begun before it; of the step that was resumed, there are no figures
    for hours, found in ((0.1, [0.1, 0.1]), (3, [2, 3])):
        settings = resumed(tmp_path, hours)
        assert settings.begin == SINCE - round(min(hours, 1) * HOUR)
        assert lengths(settings, most_before(settings, steps), [0, 0]) == found
        assert last_shared(settings, steps) == settings.resumed


def test_other_rollouts_and_steps_do_not_count(settings: StepSettings) -> None:
    assert most_before(settings, [step(2, 10, 500, rollout="shop-1"), step(3, 10, 500)]) == BEFORE_MS


def test_nothing_is_read_from_before_a_step_below_100_percent(tmp_path: Path) -> None:
    below = step_settings(pipeline_of(tmp_path), record_of())
    assert next_before(below, most_before(below, [step(0, 10, 500)]), 0) == 0
