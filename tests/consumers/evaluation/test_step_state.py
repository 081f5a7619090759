"""A step's figures: against plain Python, and the same however the topics are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.comparison.rows import id_hash
from millstream.consumers.evaluation.intake import PredictionIntake
from millstream.consumers.evaluation.settings import step_settings
from millstream.consumers.evaluation.step_state import StepState
from millstream.consumers.rollout.bandit import Arms
from millstream.consumers.rollout.changes import Memory
from millstream.consumers.rollout.progress import Progress
from tests.consumers.evaluation import plain
from tests.consumers.evaluation.scene import (
    FILE,
    MATURITY,
    MINUTE,
    NAMES,
    SCORED,
    SINCE,
    STORE,
    Chunk,
    Event,
    Topics,
    events_of,
    feed,
    fetched_of,
    in_order,
    pipeline_of,
    record_of,
    state_of,
)
from tests.native import with_native
from tests.pipeline.pipeline_files import load

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.pipeline.pipeline import Pipeline

NOW = SINCE + 32 * MINUTE


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(tmp_path_factory.mktemp("pipeline"))


def figures_of(pipeline: Pipeline, topics: Topics, chunks: list[Chunk] | None = None, now: int = NOW) -> StepFigures:
    return feed(state_of(pipeline), pipeline, in_order(topics) if chunks is None else chunks).figures(now)


def compare(found: StepFigures, events: list[Event], now: int, segment: str | None = None) -> None:
    own = {(figure.variant, figure.metric): figure for figure in found.total.figures if figure.segment == segment}
    for variant, name in enumerate(NAMES):
        mine = plain.counted(events, variant, now)
        for metric, expected in plain.figures(mine, now).items():
            if segment is None or metric not in ("errors", "dead_letters", "nan"):
                figure = own[name, metric]
                assert figure.events == expected.events, (name, metric)
                assert figure.value == pytest.approx(expected.value), (name, metric)
                assert figure.error == pytest.approx(expected.error), (name, metric)
        assert own[name, "auc"].value == pytest.approx(plain.auc(mine, now))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_predictions_of_another_pipeline_do_not_choose_the_score(tmp_path: Path, native: bool, form: str) -> None:
    """They are on the same topic, and come first."""
    topics = Topics(form=form, partitions=1)
    [event, *_] = (own for own in events_of(50) if not own.dead and not own.failed)
    foreign = replace(event, id="foreign", rollout="other-1")
    topics.append("predictions", b"k", topics.prediction(foreign, {"price": np.array([7.0])}), event.time, b"k")
    topics.append("predictions", b"k", topics.prediction(event, {"score": np.array([0.5])}), event.time, b"k")
    text = FILE.replace(SCORED, "comparison: {window: 5m}").replace("FORMAT", form).replace("SHARE", "30")
    with with_native(on=native):
        state = state_of(load(tmp_path, text))
        intake = PredictionIntake(state, STORE, form)
        rows = np.concatenate([intake.rows(fetched_of([own])) for own in topics.records["predictions"]])
    assert rows["score"].tolist() == [0.5]


@pytest.mark.parametrize("native", [True, False])
def test_predictions_are_the_same_in_c_and_one_by_one(tmp_path: Path, native: bool) -> None:
    """Also where C leaves some to the other way: a score that is a text, true or an array, and no number."""
    topics = Topics()
    events = events_of(300)
    topics.write(events)
    outputs: list[dict[str, Any]] = [
        {"score": np.array(["x"], object)},
        {"score": np.array([True])},
        {"score": np.array([3])},
        {"score": np.array([0.5], np.float32)},
        {"score": np.array([[0.5, 0.25]])},
        {"other": np.array([0.5])},
        {"score": np.array([np.inf])},
    ]
    for number, output in enumerate(outputs):
        event = replace(events[0], id=f"odd-{number}", dead=False, failed=False)
        topics.append("predictions", b"k", topics.prediction(event, output), event.time, b"k")
    pipeline = pipeline_of(tmp_path)
    with with_native(on=native):
        state = state_of(pipeline)
        fetched = fetched_of(topics.records["predictions"])
        intake = PredictionIntake(state, STORE, "avro")
        parts = [intake.rows(fetched.part(start, start + 40)) for start in range(0, len(fetched), 40)]
        rows = np.sort(np.concatenate(parts), order="position")
    assert (intake.reader.fast is not None) and (len(rows) == len(fetched))
    odd = [rows[rows["id"] == id_hash(f"odd-{number}")][0] for number in range(len(outputs))]
    expected = [np.nan, 1.0, 3.0, 0.5, np.nan, np.nan, np.nan]
    np.testing.assert_array_equal([own["score"] for own in odd], expected)
    assert [bool(own["nan"]) for own in odd] == [False] * 6 + [True]
    segments = {own.name: own.code for own in state.segments.most_frequent(rows)}
    by_id = {id_hash(own.id): own for own in events}
    plain_rows = [(own, by_id[int(own["id"])]) for own in rows if int(own["id"]) in by_id]
    assert len(plain_rows) == sum(not own.dead for own in events)
    for own, event in plain_rows:
        assert (own["time"], own["variant"], own["randomised"]) == (event.time, event.variant, event.randomised)
        np.testing.assert_array_equal(
            [own["score"], own["ms"], own["nan"]], [event.score, event.ms, np.isnan(event.score)]
        )
        assert segments[f"country={event.country or 'null'}"] == own["segments"][0]


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize("now", [NOW, SINCE + 12 * MINUTE])
def test_figures_are_those_of_plain_python(tmp_path: Path, form: str, now: int) -> None:
    events = events_of(2000)
    topics = Topics(form=form)
    topics.write(events)
    found = figures_of(pipeline_of(tmp_path, form=form), topics, now=now)
    compare(found, events, now)
    for country in ("DE", "FR", "IT", "null"):
        inside = [own for own in events if str(own.country or "null") == country and not own.dead]
        compare(found, inside, now, f"country={country}")
    sides = [plain.counted(events, variant, now) for variant in (0, 1)]
    for name, side in zip(NAMES, sides, strict=True):
        times = [own.ms for own in side if not own.failed and not own.dead]
        assert found.value(name, "latency_p95") == pytest.approx(np.quantile(times, 0.95))
    predictions = [own for side in sides for own in side if not own.dead]
    mature = [own for own in predictions if plain.is_mature(own, now)]
    assert found.unmatured_share == pytest.approx(1 - len(mature) / len(predictions))
    [verdicts] = found.candidates
    labels = [sum(plain.is_labelled(own, now) and not own.failed for own in side) for side in sides]
    assert verdicts.labels == min(labels)


def test_windows_add_up_to_the_whole_step(pipeline: Pipeline) -> None:
    topics = Topics()
    topics.write(events_of(1000))
    found = figures_of(pipeline, topics)
    starts = [own.start or 0 for own in found.windows]
    assert starts == sorted(set(starts))
    assert all(own.end == (own.start or 0) + 5 * MINUTE for own in found.windows)
    for name in NAMES:
        for metric in ("events", "labelled", "matured"):
            parts = [
                figure.value or 0
                for own in found.windows
                for figure in own.figures
                if (figure.variant, figure.metric) == (name, metric)
            ]
            assert sum(parts) == found.value(name, metric)


SEEDS = st.integers(0, 2**32)
LARGEST = st.sampled_from([7, 60, 1000])


def shuffled(topics: Topics, seed: int, largest: int) -> list[Chunk]:
    """The topics in chunks of any size up to the largest, in any order that keeps that of each partition."""
    streams = {
        (topic, number): [own for own in records if own.partition == number]
        for topic, records in topics.records.items()
        for number in range(topics.partitions)
    }
    chunks: list[Chunk] = []
    rng = np.random.default_rng(seed)
    while places := sorted(place for place, records in streams.items() if records):
        place = places[rng.integers(len(places))]
        size = int(rng.integers(1, largest + 1))
        chunks.append((place[0], streams[place][:size]))
        streams[place] = streams[place][size:]
    return chunks


def with_repeats(events: list[Event]) -> Topics:
    """Of some events, the prediction, the dead letter and the label come twice; the second label has another value."""
    topics = Topics()
    topics.write(events)
    again = [own for number, own in enumerate(events) if number % 7 == 0]
    topics.write(
        replace(
            own,
            score=own.score / 2,
            outcome=None if own.outcome is None else not own.outcome,
            label_after=own.label_after + MINUTE,
        )
        for own in again
    )
    return topics


EVENTS = events_of(400)
REPEATED = with_repeats(EVENTS)


def test_repeats_count_once(pipeline: Pipeline) -> None:
    compare(figures_of(pipeline, REPEATED), EVENTS, NOW)


@settings(max_examples=10)
@given(SEEDS, LARGEST)
def test_order_of_reading_does_not_matter(pipeline: Pipeline, seed: int, largest: int) -> None:
    found = figures_of(pipeline, REPEATED, shuffled(REPEATED, seed, largest))
    assert found.to_json() == figures_of(pipeline, REPEATED).to_json()


MANY = events_of(3000, keys=600)
WRITTEN = Topics()
WRITTEN.write(MANY)


def sampling(pipeline: Pipeline) -> StepState:
    """A state that keeps fewer events than the file's check allows."""
    return StepState(replace(step_settings(pipeline, record_of()), max_events=2000))


@settings(max_examples=6)
@given(SEEDS, st.sampled_from([100, 1000]))
def test_sample_of_keys_does_not_depend_on_the_order_of_reading(pipeline: Pipeline, seed: int, largest: int) -> None:
    orders = shuffled(WRITTEN, seed, largest), in_order(WRITTEN)
    first, second = (feed(sampling(pipeline), pipeline, order).figures(NOW) for order in orders)
    assert first.to_json() == second.to_json()
    baseline, candidate = first.variants
    assert candidate.sampled == 1  # it has few events, and keeps all
    assert 0.1 < baseline.sampled < 1
    assert 200 < baseline.events <= 1000
    assert "only the events of" in first.notes[0]


def test_accuracy_of_a_sample_is_that_of_its_keys(pipeline: Pipeline) -> None:
    state = feed(sampling(pipeline), pipeline, in_order(WRITTEN))
    kept = set(state.rows["id"].tolist())
    whole = figures_of(pipeline, WRITTEN)
    sampled = state.figures(NOW)
    accuracy = [own.value("primary", "accuracy") or 0 for own in (whole, sampled)]
    assert len(kept) < len(MANY)
    assert abs(accuracy[0] - accuracy[1]) < 0.06  # 4 standard errors of the sample's


def an_event(**changes: object) -> Event:
    event = Event("event-1", b"k", SINCE + MINUTE, 1, 0.9, 5.0, "DE", 1.0, True, 2.0, MINUTE)
    return replace(event, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "is_held", "is_labelled"),
    [
        (an_event(), True, True),
        (an_event(label_after=MATURITY), True, True),
        (an_event(label_after=MATURITY + 1), True, False),
        (an_event(label_after=-5 * MINUTE), True, True),
        (an_event(label_after=-5 * MINUTE - 1), True, False),
        (an_event(time=SINCE), True, True),
        (an_event(time=SINCE - 1), False, False),
        (an_event(rollout="another"), False, False),
        (an_event(propensity=0.05), False, False),  # of an earlier step
        (an_event(outcome=None), True, False),
    ],
)
def test_which_events_and_labels_count(pipeline: Pipeline, event: Event, is_held: bool, is_labelled: bool) -> None:
    topics = Topics()
    topics.write([event])
    found = figures_of(pipeline, topics)
    assert (found.value("canary", "events"), found.value("canary", "labelled")) == (is_held, is_labelled)


def test_event_that_is_not_mature_does_not_count_although_its_label_is_there(pipeline: Pipeline) -> None:
    topics = Topics()
    topics.write([an_event()])
    found = figures_of(pipeline, topics, now=SINCE + MINUTE + MATURITY - 1)
    assert found.value("canary", "labelled") == 0
    assert found.unmatured_share == 1
    assert figures_of(pipeline, topics, now=SINCE + MINUTE + MATURITY).value("canary", "labelled") == 1


def test_first_label_counts(pipeline: Pipeline) -> None:
    topics = Topics()
    topics.write([an_event()])
    topics.label(an_event(outcome=False, revenue=7.0, label_after=2 * MINUTE))
    found = figures_of(pipeline, topics)
    assert (found.value("canary", "accuracy"), found.value("canary", "reward")) == (1.0, 2.0)


def test_label_too_early_for_its_event_gives_way_to_the_next(pipeline: Pipeline) -> None:
    topics = Topics()
    topics.label(an_event(outcome=False, label_after=-6 * MINUTE))
    topics.write([an_event()])
    assert figures_of(pipeline, topics).value("canary", "accuracy") == 1.0


def test_bandit_gets_the_rewards_that_matured_in_a_time(pipeline: Pipeline) -> None:
    topics = Topics()
    topics.write(EVENTS)
    state = feed(state_of(pipeline), pipeline, in_order(topics))
    middle = SINCE + 20 * MINUTE
    first, second, whole = (state.rewards(*span) for span in ((0, middle), (middle, NOW), (0, NOW)))
    for variant in (0, 1):
        mine = plain.counted(EVENTS, variant, NOW)
        rewards = [
            own.revenue for own in mine if plain.is_labelled(own, NOW) and not own.failed and own.revenue is not None
        ]
        assert whole[variant].events == len(rewards) == first[variant].events + second[variant].events
        assert whole[variant].total == pytest.approx(sum(rewards))
        assert whole[variant].total == pytest.approx(first[variant].total + second[variant].total)
        assert whole[variant].squares == pytest.approx(sum(own * own for own in rewards))
        assert whole[variant].design_effect >= 1


def test_events_before_a_bandit_began_anew_count_for_its_rewards_only(pipeline: Pipeline) -> None:
    """Its guardrails begin anew after the longest time, or when a person resumes it. Rewards may have been on their way."""
    updated = SINCE - MINUTE
    memory = Memory(Progress("m:2", share=3000, since=SINCE, epoch=2), replace(Arms.fresh(2), until=updated))
    record = record_of(strategy="bandit", strategy_state=memory.to_json())
    old = [
        replace(own, id=f"old-{own.id}", time=own.time - 31 * MINUTE, failed=own.variant == 1 and number % 2 == 0)
        for number, own in enumerate(EVENTS)
        if not own.dead
    ]
    topics = Topics()
    topics.write([*old, *EVENTS])
    state = feed(state_of(pipeline, record), pipeline, in_order(topics))
    found = state.figures(NOW)
    compare(found, EVENTS, NOW)
    rewards = state.rewards(updated, NOW)
    for variant in (0, 1):
        values = [
            own.revenue
            for own in (*old, *EVENTS)
            if (own.variant, own.randomised, own.failed) == (variant, True, False)
            and plain.is_labelled(own, NOW)
            and own.revenue is not None
            and own.time + MATURITY > updated
        ]
        assert rewards[variant].events == len(values)
        assert rewards[variant].total == pytest.approx(sum(values))


def test_evaluation_belongs_to_the_records_step(pipeline: Pipeline) -> None:
    record = record_of()
    found = state_of(pipeline, record).evaluation(NOW, 1)
    assert (found.epoch, found.now, found.labels, found.unmatured_share) == (1, NOW, 0, 0.0)
    assert {own.outcome for own in found.verdicts} == {"undecided"}
