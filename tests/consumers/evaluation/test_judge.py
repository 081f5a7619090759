"""What the verdicts say about candidates that are good, bad, slow, drifting, or can't be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.evaluation.distributions import Reference
from millstream.consumers.evaluation.errors import EvaluationError
from millstream.consumers.evaluation.judge import levels_of
from millstream.consumers.evaluation.rows import Rows, empty_events
from millstream.consumers.evaluation.settings import shadow_record, step_settings
from millstream.consumers.evaluation.step_state import StepState
from millstream.consumers.rollout.clusters import BUCKETS, Clusters
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.record import RolloutVariant
from millstream.consumers.rollout.slots import SlotRange, reallocated, whole
from millstream.pipeline.shares import SLOTS
from tests.consumers.evaluation import plain
from tests.consumers.evaluation.scene import (
    MATURITY,
    MINUTE,
    SINCE,
    Topics,
    events_of,
    feed,
    in_order,
    pipeline_of,
    record_of,
    state_of,
)
from tests.pipeline.pipeline_files import load

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.consumers.rollout.verdicts import Verdict
    from millstream.pipeline.pipeline import Pipeline

NOW = SINCE + 30 * MINUTE
COUNT = 30_000


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return pipeline_of(tmp_path_factory.mktemp("pipeline"))


def rows_of(state: StepState, count: int = COUNT, *, seed: int = 1, share: float = 0.3) -> Rows:
    """Mature events of an equal baseline and candidate, with labels. The model is right in about 80 % of them."""
    rng = np.random.default_rng(seed)
    rows = empty_events(state.dtype, count)
    rows["id"] = rng.integers(0, 2**63, count)
    rows["time"] = rows["written"] = SINCE + rng.integers(1, 10 * MINUTE, count)
    rows["hash"] = rng.integers(0, 2**32, count)
    rows["variant"] = rng.random(count) < share
    rows["label"] = rng.random(count) < 0.5
    rows["score"] = np.abs(rows["label"] - rng.beta(2, 5, count))
    rows["reward"] = rng.exponential(size=count)
    rows["labelled"] = rows["time"] + MINUTE
    rows["ms"] = np.repeat(rng.gamma(20, 0.5, count // 3 + 1), 3)[:count]
    rows["segments"] = state.segments.codes([rng.choice(["DE", "FR", "IT"], count).tolist()], count)
    return rows


def judged(state: StepState, rows: Rows, now: int = NOW, candidate: int = 1) -> tuple[dict[str, Verdict], Any]:
    """The verdicts by metric and segment, and the evaluation."""
    state.held.add(rows)
    found = state.evaluation(now, candidate)
    return {
        own.metric if own.segment is None else f"{own.metric} in {own.segment}": own for own in found.verdicts
    }, found


def outcomes(verdicts: dict[str, Verdict], outcome: str) -> set[str]:
    return {name for name, own in verdicts.items() if own.outcome == outcome}


def test_equal_candidate_passes_every_metric(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    verdicts, found = judged(state, rows)
    assert outcomes(verdicts, "pass") == set(verdicts)
    segments = {
        f"{metric} in country={name}" for metric in ("accuracy", "brier", "reward") for name in ("DE", "FR", "IT")
    }
    assert set(verdicts) == segments | {
        "errors", "dead_letters", "nan", "latency", "score_drift", "accuracy", "brier", "reward",
    }  # fmt: skip
    assert {name for name, own in verdicts.items() if own.service} == {"errors", "dead_letters", "nan", "latency"}
    assert found.invalid == ()
    assert found.labels == (rows["variant"] == 1).sum()
    assert found.unmatured_share == 0


def test_worse_candidate_is_breached(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    wrong = (rows["variant"] == 1) & (np.arange(COUNT) % 5 == 0)
    rows["score"][wrong] = 1 - rows["label"][wrong]
    verdicts, found = judged(state, rows)
    assert outcomes(verdicts, "breach") >= {"accuracy", "brier"}
    assert not outcomes(verdicts, "breach") & {"errors", "dead_letters", "nan", "latency", "reward"}
    assert found.invalid == ()
    assert verdicts["accuracy"].estimate == pytest.approx(-0.15, abs=0.05)


def test_candidate_that_is_worse_in_one_segment_is_breached_there(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state, 2 * COUNT)
    german = next(own for own in state.segments.most_frequent(rows) if own.name == "country=DE")
    other = rows["variant"] == 1
    wrong = other & german.of(rows) & (np.arange(len(rows)) % 10 < 3)
    rows["score"][wrong] = 1 - rows["label"][wrong]
    right = other & ~german.of(rows)
    rows["score"][right] = rows["label"][right]
    verdicts, _ = judged(state, rows)
    assert "accuracy in country=DE" in outcomes(verdicts, "breach")
    assert {"accuracy", "accuracy in country=FR", "accuracy in country=IT"} <= outcomes(verdicts, "pass")


@pytest.mark.parametrize(("metric", "flag"), [("errors", "failed"), ("dead_letters", "dead"), ("nan", "nan")])
def test_rare_events_of_the_candidate_are_breached(pipeline: Pipeline, metric: str, flag: str) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    rows[flag] = (rows["variant"] == 1) & (np.arange(COUNT) % 20 == 0)
    verdicts, _ = judged(state, rows)
    assert outcomes(verdicts, "breach") == {metric}
    assert verdicts[metric].service
    assert verdicts[metric].estimate == pytest.approx(-0.05, abs=0.01)


def test_slow_candidate_is_breached(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    rows["ms"][rows["variant"] == 1] *= 2
    verdicts, _ = judged(state, rows)
    assert outcomes(verdicts, "breach") == {"latency"}
    assert verdicts["latency"].estimate == pytest.approx(-1, abs=0.1)
    assert (verdicts["latency"].upper or 0) < -0.5


def test_drifting_scores_are_breached(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    other = rows["variant"] == 1
    rows["score"][other] = np.where(rows["score"][other] > 0.5, 0.51, 0.49)
    verdicts, _ = judged(state, rows)
    assert verdicts["score_drift"].outcome == "breach"
    figures = state.figures(NOW)
    assert (figures.value("canary", "score_psi") or 0) > 0.25
    assert (figures.value("canary", "score_ks") or 0) > 0.1


def test_lost_events_make_the_comparison_invalid(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    _, found = judged(state, rows[(rows["variant"] == 0) | (np.arange(COUNT) % 2 == 0)])
    [why] = found.invalid
    assert why.startswith("the sample ratio is off: 4,5")


def test_loss_of_all_events_of_the_candidate_is_no_chance(pipeline: Pipeline) -> None:
    """Nothing of the candidate shows how much its events vary, so the usual interval is infinite."""
    state = state_of(pipeline)
    rows = rows_of(state, 5000)
    _, found = judged(state, rows[rows["variant"] == 0])
    [why] = found.invalid
    assert why.startswith("the sample ratio is off: 0 events of the candidate, 1,")
    assert why.endswith(" expected: events of one version are lost")
    state = state_of(pipeline)
    _, found = judged(state, rows[rows["variant"] == 0][:100])  # these may be of few keys
    assert found.invalid[0].startswith("the sample ratio is not confirmed yet: 0 events of the candidate, 30 expected")


def test_few_events_do_not_confirm_the_sample_ratio(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    _, found = judged(state, rows_of(state, 500))
    assert found.invalid[0].startswith("the sample ratio is not confirmed yet")
    assert found.invalid[0].endswith("more events of the candidate are needed")


def ratio_fault(
    pipeline: Pipeline,
    keys: int,
    *,
    until: float = 1.0,
    share: float = 0.3,
    each: int = 5,
    ms: int = 10 * MINUTE,
    state: StepState | None = None,
) -> str:
    """Why the sample ratio of keys with so many events each is not confirmed. The last key comes when `until` has passed."""
    state = state_of(pipeline) if state is None else state
    rows, key = rows_of(state, keys * each), np.arange(keys * each) % keys
    rows["hash"] = np.random.default_rng(1).integers(0, 2**32, keys)[key]
    rows["variant"] = key < share * keys
    begin = SINCE + ms * until * key / keys
    rows["time"] = rows["written"] = begin + (SINCE + ms - begin) * np.arange(keys * each) / (keys * each)
    _, found = judged(state, rows)
    return str(found.invalid[0])


def test_more_keys_are_asked_for_if_each_has_several_events(pipeline: Pipeline) -> None:
    said = ratio_fault(pipeline, 300)
    assert "events of one key prove little more than one event, and only 300 keys have any: about " in said
    assert (
        " more keys are needed, or more events of these: once more than 10 of them count as one, this check is left"
        in said
    )
    assert "about 30 more keys are needed" in ratio_fault(pipeline, 20, each=100)


def test_keys_that_can_not_grow_are_told(pipeline: Pipeline) -> None:
    said = ratio_fault(pipeline, 20, until=0.01, each=100)
    assert (
        "only 20 keys have any. Hardly any new key comes, so this may take long, or never end: `millstream rollout step`"
        in said
    )
    assert "None of them is the candidate's: more keys or a larger share are needed" in ratio_fault(
        pipeline, 10, share=0, each=4
    )


def test_hardly_any_new_key_means_nothing_until_events_came_for_some_time(pipeline: Pipeline) -> None:
    baked = pipeline.rollout.bake * 1000 if pipeline.rollout else 0
    for ms, is_told in ((MINUTE // 2, False), (max(2 * MINUTE, baked // 5), True)):
        said = ratio_fault(pipeline, 20, until=0.01, each=100, ms=int(ms))
        assert ("Hardly any new key comes" in said) == is_told
        assert ("more keys are needed" in said) != is_told


def test_keys_of_this_step_alone_make_no_forecast_if_earlier_steps_had_some(pipeline: Pipeline) -> None:
    """The ratio is over all steps, and the keys of earlier ones are not known any more."""
    progress = Progress("m:2", step=1, share=3000, since=SINCE, epoch=2, attempts=(1, 1))
    settings = step_settings(pipeline, record_of(strategy_state=progress.to_json()))
    is_key = np.arange(BUCKETS) < 300  # with 5 events each
    earlier = Clusters(np.where(is_key, 1.5, 0.0), np.where(is_key & (np.arange(BUCKETS) % 10 < 3), 5.0, 0.0))
    said = ratio_fault(pipeline, 30, state=StepState(settings, {"canary": earlier}))
    assert said.endswith(
        "; events of one key prove little more than one event: more keys are needed, or more events of "
        "these: once more than 10 of them count as one, this check is left out"
    )


def test_labels_of_one_variant_only_make_the_comparison_invalid(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    rows["labelled"][rows["variant"] == 1] = -1
    verdicts, found = judged(state, rows)
    assert found.labels == 0
    [why] = found.invalid
    assert why.startswith("labels come more often for one variant: for 100.0% of the baseline's")
    assert verdicts["accuracy"].outcome == "undecided"
    assert verdicts["accuracy"].estimate is None


def test_labels_that_an_arm_of_a_bandit_lacks_are_told_with_its_name(pipeline: Pipeline) -> None:
    variants = tuple(RolloutVariant(name, "m", version) for version, name in enumerate(("primary", "v2", "v3"), 1))
    ranges = reallocated(whole(), (4000, 3000, 3000))
    state = state_of(pipeline, record_of(strategy="bandit", variants=variants, ranges=ranges))
    rows = rows_of(state)
    rows["labelled"][rows["variant"] == 1] = -1
    _, found = judged(state, rows)
    assert any(why.endswith("of the baseline's mature events and 0.0% of v2's") for why in found.invalid)


def test_changed_inputs_make_the_comparison_invalid(tmp_path: Path) -> None:
    text = pipeline_of(tmp_path).path.read_text(encoding="utf-8")
    pipeline = load(tmp_path, text + "    input_drift: {fields: [amount], at_most: 0.2}\n")
    for shift, faults in ((0.0, 0), (1.0, 1)):
        state = state_of(pipeline)
        rng = np.random.default_rng(1)
        state.reference = Reference(rng.normal(size=(COUNT, 1)))
        rows = rows_of(state)
        rows["fields"] = rng.normal(size=(COUNT, 1)) + shift
        _, found = judged(state, rows)
        assert len(found.invalid) == faults
        assert all("the field amount has changed since before the step" in why for why in found.invalid)
        assert state.figures(NOW).value("", "input_psi:amount") is not None


def test_field_of_keys_with_many_events_has_not_changed(tmp_path: Path) -> None:
    """As many events of a few keys prove little, because all events of a key have the same value."""
    text = pipeline_of(tmp_path).path.read_text(encoding="utf-8")
    pipeline = load(tmp_path, text + "    input_drift: {fields: [amount], at_most: 0.1}\n")
    alarms = 0
    for seed in range(10):
        state, rng = state_of(pipeline), np.random.default_rng(seed)
        state.reference = Reference(rng.normal(size=(COUNT, 1)))
        rows = rows_of(state, seed=seed)
        keys = rng.integers(0, 30, COUNT)
        rows["hash"], rows["fields"][:, 0] = keys, rng.normal(size=30)[keys]
        alarms += any("the field amount" in why for why in judged(state, rows)[1].invalid)
    assert alarms == 0


def test_candidate_at_100_percent_is_compared_with_the_baseline_of_before(pipeline: Pipeline) -> None:
    progress = Progress("m:2", "watching", step=2, share=SLOTS, since=SINCE, epoch=3, attempts=(1, 1, 1))
    state = state_of(pipeline, record_of(ranges=whole(1), strategy_state=progress.to_json()))
    rows = rows_of(state, share=1.0)
    before = rows_of(state, seed=2, share=0.0)
    before["time"] -= 30 * MINUTE
    slow = rows.copy()
    slow["ms"] *= 2
    verdicts, found = judged(state, np.concatenate([rows, before]))
    assert outcomes(verdicts, "pass") >= {"errors", "dead_letters", "nan", "latency"}
    assert not [why for why in found.invalid if "sample ratio" in why]
    state = state_of(pipeline, record_of(ranges=whole(1), strategy_state=progress.to_json()))
    verdicts, _ = judged(state, np.concatenate([slow, before]))
    assert outcomes(verdicts, "breach") == {"latency"}


def test_baselines_predictions_of_before_are_read_at_100_percent(pipeline: Pipeline) -> None:
    progress = Progress("m:2", "watching", step=2, share=SLOTS, since=SINCE, epoch=3, attempts=(1, 1, 1))
    topics = Topics(share=50)
    events = events_of(300, share=50)
    topics.write(replace(own, time=own.time - 40 * MINUTE) for own in events)
    topics.write(replace(own, id=f"old-{own.id}", time=own.time - 120 * MINUTE) for own in events)
    state = state_of(pipeline, record_of(ranges=whole(1), strategy_state=progress.to_json()))
    found = feed(state, pipeline, in_order(topics)).figures(NOW)
    assert found.value("primary", "events") == len(plain.counted(events, 0, NOW))
    assert found.value("canary", "events") == 0


def test_arms_of_a_bandit_are_judged_apart(pipeline: Pipeline) -> None:
    arms = (*record_of().variants, RolloutVariant("v3", "m", 3))
    ranges = (SlotRange(4000, 0), SlotRange(3000, 1), SlotRange(3000, 2))
    record = record_of(variants=arms, ranges=ranges, strategy="bandit", strategy_state="{}")
    state = state_of(pipeline, record)
    rows = rows_of(state)
    rows["variant"] = np.random.default_rng(3).integers(0, 3, COUNT)
    rows["failed"] = (rows["variant"] == 2) & (np.arange(COUNT) % 10 == 0)
    verdicts, first = judged(state, rows)
    assert verdicts["errors"].outcome == "pass"
    third = {own.metric: own.outcome for own in state.evaluation(NOW, 2).verdicts if own.segment is None}
    assert third["errors"] == "breach"
    assert first.invalid == ()  # its shares change all the time, so there is no sample ratio
    assert len(state.figures(NOW).candidates) == 2


def test_levels_are_shared_by_all_that_may_breach(pipeline: Pipeline) -> None:
    settings = step_settings(pipeline, record_of())
    levels = levels_of(settings)
    assert levels.promotion == pytest.approx(0.009)
    assert levels.rollback == pytest.approx(0.01 / (8 + 3 * 10) / 2)
    later = levels_of(replace(settings, epoch=2, attempt=2))
    assert later.promotion == pytest.approx(0.0009)
    assert later.rollback == pytest.approx(levels.rollback / 3)


@pytest.fixture
def shadowed(tmp_path: Path) -> Pipeline:
    text = pipeline_of(tmp_path).path.read_text(encoding="utf-8")
    return load(tmp_path, text + "shadows: [{version: 2, name: next}]\n")


def test_shadow_is_compared_event_by_event(shadowed: Pipeline) -> None:
    events = [replace(own, dead=False, failed=number % 30 == 0) for number, own in enumerate(events_of(1500))]
    topics = Topics()
    topics.compare(events)
    record = shadow_record(shadowed, shadowed.shadows[0], baseline=1, since=SINCE)
    state = feed(state_of(shadowed, record), shadowed, in_order(topics))
    now = SINCE + 35 * MINUTE
    found = state.evaluation(now, 1)
    verdicts = {own.metric: own for own in found.verdicts}
    labelled = [own for own in events if plain.is_labelled(own, now)]
    both = [own for own in labelled if not own.failed and own.score == own.score]
    gains = [((own.other >= 0.5) == own.outcome) - float((own.score >= 0.5) == own.outcome) for own in both]
    assert verdicts["accuracy"].estimate == pytest.approx(np.mean(gains))
    assert verdicts["errors"].estimate == pytest.approx(-len([own for own in events if own.failed]) / len(events))
    assert verdicts["errors"].outcome == "breach"
    assert found.labels == len([own for own in labelled if not own.failed])
    assert found.invalid == ()
    figures = state.figures(now)
    assert figures.value("primary", "latency_p50") == pytest.approx(np.median([own.ms for own in events]))
    assert figures.value("next", "latency_p50") == pytest.approx(
        np.median([own.ms + 1 for own in events if not own.failed])
    )


def test_shadow_that_answers_like_the_primary_passes(shadowed: Pipeline) -> None:
    """Such as the same model, exported again. It has no reward of its own: only the primary acts on an event."""
    record = shadow_record(shadowed, shadowed.shadows[0], baseline=1, since=SINCE)
    for count, outcome in ((3000, "pass"), (100, "undecided")):
        state = state_of(shadowed, record)
        rows = rows_of(state, count, share=0.0)
        rows["other_score"], rows["other_ms"] = rows["score"], rows["ms"]
        verdicts, _ = judged(state, rows)
        assert {verdicts[metric].outcome for metric in ("accuracy", "brier")} == {outcome}
        assert verdicts["accuracy"].estimate == 0
        assert "reward" not in verdicts
        assert state.figures(NOW).value("next", "reward") is None
    state = state_of(shadowed, record)
    rows = rows_of(state, 3000, share=0.0)
    rows["hash"] %= 20  # a few keys prove nothing
    rows["other_score"] = rows["score"]
    assert judged(state, rows)[0]["accuracy"].outcome == "undecided"


def test_many_equal_answers_of_few_keys_prove_little(shadowed: Pipeline) -> None:
    """Answers may differ for some keys only: each of 100 keys has 300 events, and 3,000 keys have 10."""
    record = shadow_record(shadowed, shadowed.shadows[0], baseline=1, since=SINCE)
    for keys, outcome in ((100, "undecided"), (3000, "pass")):
        state = state_of(shadowed, record)
        rows = rows_of(state, share=0.0)
        rows["hash"] = np.random.default_rng(2).integers(0, 2**32, keys)[np.arange(COUNT) % keys]
        rows["other_score"] = rows["score"]
        verdicts = judged(state, rows)[0]
        assert {verdicts[metric].outcome for metric in ("accuracy", "brier")} == {outcome}


REGRESSION = "    absolute_error: {margin: 0.5BOUND}\n"


def equal_errors(folder: Path, bound: str) -> tuple[str, tuple[str, ...]]:
    """The outcome and the notes for a shadow of a number that answers as the primary."""
    text = pipeline_of(folder).path.read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if not line.strip().startswith(("accuracy", "brier", "score_drift"))]
    text = "\n".join(kept).replace("comparison: {", "comparison: {task: regression, ")
    text += "\n" + REGRESSION.replace("BOUND", bound) + "shadows: [{version: 2, name: next}]\n"
    shadowed = load(folder, text)
    state = state_of(shadowed, shadow_record(shadowed, shadowed.shadows[0], baseline=1, since=SINCE))
    rows = rows_of(state, 3000, share=0.0)
    rows["other_score"], rows["other_ms"] = rows["score"], rows["ms"]
    verdicts, _ = judged(state, rows)
    return verdicts["absolute_error"].outcome, state.figures(NOW).notes


def test_equal_answers_need_a_bound_of_the_error(tmp_path: Path) -> None:
    outcome, notes = equal_errors(tmp_path, "")
    assert outcome == "undecided"
    assert "write `bound` into rollout.metrics.absolute_error" in notes[0].replace("Write", "write")
    assert equal_errors(tmp_path, ", bound: 10") == ("pass", ())
    outcome, notes = equal_errors(tmp_path, ", bound: 0.001")
    assert outcome == "undecided"
    assert "some values are above the bound of 0.001: raise it" in notes[0]
    outcome, notes = equal_errors(tmp_path, ", minimum_effect: 0.1")
    assert outcome == "undecided"
    assert "equal answers can't show a benefit above 0.1" in notes[0]
    assert "`bound`" not in notes[0]


def equal_shadow(pipeline: Pipeline, count: int, *, keys: int | None = None, scale: float = 1.0) -> StepState:
    """A shadow that answers as the primary so many events, of so many keys; None: each event has a key of its own."""
    state = state_of(pipeline, shadow_record(pipeline, pipeline.shadows[0], baseline=1, since=SINCE))
    rows = rows_of(state, count, share=0.0)
    rows["hash"] = np.random.default_rng(6).integers(0, 2**32, keys or count)[np.arange(count) % (keys or count)]
    rows["score"] *= scale
    rows["other_score"], rows["other_ms"] = rows["score"], rows["ms"]
    state.held.add(rows)
    return state


def note_of(state: StepState, metric: str) -> str:
    return next((note for note in state.figures(NOW).notes if note.startswith(f"{metric}: ")), "")


def test_number_of_keys_that_equal_answers_need_is_told(shadowed: Pipeline) -> None:
    said = note_of(equal_shadow(shadowed, 20_000, keys=100), "brier")
    assert said.endswith(" keys with labels show that few answers can differ; those so far count as 100")
    needed = int(said.split("About ")[1].split(" ")[0].replace(",", ""))
    for count, outcome in ((0.9 * needed, "undecided"), (1.1 * needed, "pass")):
        verdicts = equal_shadow(shadowed, int(count)).evaluation(NOW, 1).verdicts
        assert next(own.outcome for own in verdicts if (own.metric, own.segment) == ("brier", None)) == outcome


def test_scores_that_are_no_probabilities_are_told(shadowed: Pipeline) -> None:
    said = note_of(equal_shadow(shadowed, 3000, scale=5.0), "brier")
    assert said.endswith("some values are above 1: it needs scores from 0 to 1, such as probabilities")


def test_forecast_is_left_out_if_only_a_part_of_the_events_is_kept(pipeline: Pipeline) -> None:
    settings = replace(step_settings(pipeline, record_of()), max_events=1500)
    state = StepState(settings)
    verdicts, _ = judged(state, rows_of(state, 6000))
    assert verdicts["accuracy"].outcome == "undecided"
    assert min(state.held.sampled) < 1
    assert note_of(state, "accuracy") == ""


def test_forecast_has_no_time_in_the_first_minute_and_none_that_is_absurd(pipeline: Pipeline) -> None:
    for after, told in ((MINUTE // 2, ""), (2 * MINUTE, " min at the present rate")):
        state = state_of(pipeline)
        rows = rows_of(state, 1500)
        rows["time"] = rows["written"] = rows["labelled"] = SINCE + 1
        state.held.add(rows)
        notes = state.figures(SINCE + MATURITY + after).notes
        [said] = [note for note in notes if note.startswith("accuracy: about ")]
        assert said.endswith(f"{told})")
        assert ("rate" in said) == bool(told)
    state = state_of(pipeline)
    state.held.add(rows_of(state, 1500))
    notes = state.figures(SINCE + MATURITY + 400 * 24 * 60 * MINUTE).notes
    assert any(note.endswith(", more than a year at the present rate)") for note in notes)


def test_undecided_metric_says_about_how_many_labels_are_missing(pipeline: Pipeline) -> None:
    """As many more as are said decide it."""
    state = state_of(pipeline)
    rows = rows_of(state, 1500)
    verdicts, found = judged(state, rows)
    assert verdicts["accuracy"].outcome == "undecided"
    [said] = [note for note in state.figures(NOW).notes if note.startswith("accuracy: about ")]
    assert "more labels show that it is good enough, if both versions are equally good (about " in said
    assert said.endswith(" min at the present rate)")
    more = int(said.split("about ")[1].split(" ")[0].replace(",", ""))
    whole = rows_of(state, round(1500 * (1 + 1.3 * more / found.labels)), seed=4)
    assert judged(state_of(pipeline), whole)[0]["accuracy"].outcome == "pass"


def test_metric_whose_benefit_is_too_low_is_not_said_to_need_only_labels(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    rows = rows_of(state)
    threshold = next(rule.threshold for rule in state.settings.quality if rule.name == "accuracy")
    wrong = (rows["variant"] == 1) & (np.arange(COUNT) % 1000 < -1300 * threshold)
    rows["score"][wrong] = 1 - rows["label"][wrong]
    verdicts, _ = judged(state, rows)
    assert verdicts["accuracy"].outcome == "undecided"
    told = [note for note in state.figures(NOW).notes if note.startswith("accuracy")]
    assert told[0].startswith("accuracy: it does not pass while its benefit is -")


def test_comparisons_of_other_versions_do_not_count(shadowed: Pipeline) -> None:
    topics = Topics()
    topics.compare(events_of(20))
    record = shadow_record(shadowed, shadowed.shadows[0], baseline=7, since=SINCE)
    assert len(feed(state_of(shadowed, record), shadowed, in_order(topics)).rows) == 0


def test_record_of_another_pipeline_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(
        EvaluationError, match="rollout of other, revision 2: expected one of shop with a baseline and a"
    ):
        step_settings(pipeline, record_of(pipeline="other"))
    with pytest.raises(EvaluationError, match="found 1 variants: start a rollout"):
        step_settings(pipeline, record_of(variants=record_of().variants[:1]))
    with pytest.raises(
        EvaluationError, match="revision 2: progress of a rollout: expected the JSON that Millstream wrote"
    ):
        step_settings(pipeline, record_of(strategy_state='{"since": "yesterday"}'))


def test_maturity_is_the_labels_wait(pipeline: Pipeline) -> None:
    assert step_settings(pipeline, record_of()).maturity == MATURITY
