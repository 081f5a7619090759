"""Each event of a micro-batch is answered by exactly one version of a rollout; failures stay inside a version."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.execute.batch_start import BatchStart
from millstream.consumers.execute.opened_rollout import Assigned
from millstream.consumers.execute.variant_outage import BACK_OFF, VariantOutage
from millstream.consumers.observability import metrics as m
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.inference.errors import ExecutorLost, ExecutorUnavailable, ModelRejected
from tests.consumers.execute.rollouts import rollout_of
from tests.consumers.execute.serving import in_slots
from tests.consumers.in_memory import batch_of
from tests.consumers.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.events import BatchResult
    from millstream.consumers.execute.opened_rollout import OpenedRollout
    from millstream.consumers.execute.served import Slot
    from millstream.inference.executors.interface import Inputs


class Version:
    """A version: `y` is its number times 1,000, plus the event's. It rejects some events, and may fail."""

    def __init__(self, number: int, bad: frozenset[int] = frozenset()) -> None:
        self.number = number
        self.bad = bad
        self.calls: list[list[int]] = []  # the events of each call
        self.fails: Exception | None = None
        self.fails_at: set[int] = set()  # the calls in which it is away, from 1 on
        self.dtype: Any = np.float64
        self.width = 1

    def run(self, inputs: Inputs) -> dict[str, Any]:
        numbers = np.asarray(inputs["x"])[:, 0].astype(np.int64)
        self.calls.append(numbers.tolist())
        if self.fails is not None:
            raise self.fails
        if len(self.calls) in self.fails_at:
            raise ExecutorUnavailable("away")
        if self.bad & set(numbers.tolist()):
            raise ModelRejected("bad event")
        return {"y": np.repeat((1000.0 * self.number + numbers)[:, None], self.width, axis=1).astype(self.dtype)}


class Scene(Measured):
    """Runs batches on a rollout."""

    def __init__(self, *versions: Version, **options: Any) -> None:
        super().__init__()
        self.now = 0.0
        self.versions = versions
        self.clock: Callable[[], float] = lambda: self.now  # a test may replace it
        self.outages = [VariantOutage(f"variant {each.number}", self.time) for each in versions]
        self.options = options

    def time(self) -> float:
        return self.clock()

    def rollout(self, route: Callable[..., Assigned] | None = None, **options: Any) -> OpenedRollout:
        runs = [each.run for each in self.versions]
        return rollout_of(*runs, route=route, outages=self.outages, **options)

    def slot(self, rollout: OpenedRollout, **isolation: Any) -> Slot:
        """An executor slot that has learned nothing yet."""
        return in_slots(1, self.metrics, **isolation)(rollout).slots[0]

    def answer(
        self, kinds: str, rollout: OpenedRollout, tries: int = 1, slot: Slot | None = None, **isolation: Any
    ) -> BatchResult:
        """The result of a batch; it is run again after an outage of the baseline. `slot`: a new one by default."""
        slot = slot or self.slot(rollout, **isolation)
        work = BatchStart(
            max_events=64, admit=lambda _number, batch: batch, is_outdated=lambda _batch: False, metrics=self.metrics
        ).work_of(batch_of(kinds))
        assert work is not None
        begun = slot.begin(work)
        for _ in range(tries - 1):
            with pytest.raises(ExecutorUnavailable):
                begun.run()
        for each in self.versions if tries > 1 else ():
            each.fails = None
        result = begun.run()
        assert begun.choices is not None
        return work.result(0, result, 0.0, slot.models, begun.variants, begun.choices(result[1]))

    def fallbacks(self, reason: str) -> float:
        return self.value(m.ROLLOUT_FALLBACKS, variant="canary", reason=reason) or 0


def given_route(variants: list[int], randomised: list[bool] | None = None) -> Callable[..., Assigned]:
    def route(_batch: object, rows: Any) -> Assigned:
        assert rows is None
        return Assigned(np.array(variants, np.int64), None if randomised is None else np.array(randomised))

    return route


@given(st.data())
def test_each_event_is_answered_by_its_version_as_if_alone_and_bad_ones_are_rejected_by_it(data: st.DataObject) -> None:
    events = data.draw(st.integers(1, 12))
    variants = data.draw(st.lists(st.integers(0, 2), min_size=events, max_size=events))
    randomised = data.draw(st.none() | st.lists(st.booleans(), min_size=events, max_size=events))
    bad = [frozenset(data.draw(st.sets(st.integers(0, events - 1)))) for _ in range(3)]
    scene = Scene(*[Version(at + 1, own) for at, own in enumerate(bad)])
    found = scene.answer("e" * events, scene.rollout(given_route(variants, randomised)), max_events=4)
    rejected = {row for row, variant in enumerate(variants) if row in bad[variant]}
    assert found.rejected.keys() == rejected
    assert found.rows.tolist() == [row for row in range(events) if row not in rejected]
    assert found.variants == ("primary", "canary", "v3")
    models = found.row_models
    for place, row in enumerate(found.rows.tolist()):
        assert found.outputs["y"][place, 0] == 1000 * (variants[row] + 1) + row
        letter = models.letter_model(place)
        assert letter is not None
        assert (letter.version, letter.variant) == (variants[row] + 1, found.variants[variants[row]])
        choice = letter.choice
        assert choice is not None
        assert (choice.id, choice.revision, choice.assigned) == ("r1", 1, letter.variant)
        assert (choice.propensity, choice.randomised) == (1 / 3, randomised is None or randomised[row])
        assert choice.model_ms > 0
    for row, why in found.rejected.items():
        assert why.reason == "model_rejected"
        assert why.model is not None
        assert (why.model.version, why.model.variant) == (variants[row] + 1, found.variants[variants[row]])
        assert why.model.choice is not None
        assert why.model.choice.randomised == (randomised is None or randomised[row])


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_no_version_sees_events_of_another(variants: list[int]) -> None:
    scene = Scene(*[Version(at + 1) for at in range(3)])
    scene.answer("e" * len(variants), scene.rollout(given_route(variants)))
    for at, version in enumerate(scene.versions):
        rows = [row for row, variant in enumerate(variants) if variant == at]
        assert version.calls == ([rows] if rows else [])


def test_a_bad_event_makes_only_its_own_version_run_again() -> None:
    scene = Scene(Version(1), Version(2, frozenset({3})))
    found = scene.answer("e" * 8, scene.rollout())
    assert found.rejected.keys() == {3}
    assert scene.versions[0].calls == [[0, 2, 4, 6]]
    assert len(scene.versions[1].calls) > 1
    assert scene.fallbacks("outage") == 0, "an event that the version rejects is not the baseline's"


def test_version_that_is_not_loaded_costs_no_event() -> None:
    scene = Scene(Version(1), Version(2))
    rollout = rollout_of(scene.versions[0].run, None)
    found = scene.answer("e" * 6, rollout)
    assert scene.versions[0].calls == [[0, 1, 2, 3, 4, 5]]
    assert found.outputs["y"][:, 0].tolist() == [1000 + row for row in range(6)]
    letters = [found.row_models.letter_model(row) for row in range(6)]
    assert [letter.variant for letter in letters if letter] == ["primary"] * 6
    assert [letter.choice.assigned for letter in letters if letter and letter.choice] == ["primary", "canary"] * 3
    assert scene.fallbacks("not_loaded") == 3


def test_executor_that_fails_is_left_alone_for_a_while_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(Version(1), Version(2))
    canary = scene.versions[1]
    canary.fails = ExecutorUnavailable("the GPU is away")
    rollout = scene.rollout()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            found = scene.answer("eeee", rollout)
            assert (found.rejected, found.outputs["y"][:, 0].tolist()) == ({}, [1000, 1001, 1002, 1003])
        assert len(canary.calls) == 1
        assert scene.fallbacks("outage") == 6
        scene.now += BACK_OFF[0]
        scene.answer("eeee", rollout)
        assert len(canary.calls) == 2
        canary.fails = None
        scene.now += BACK_OFF[1]
        found = scene.answer("eeee", rollout)
    assert found.outputs["y"][:, 0].tolist() == [1000, 2001, 1002, 2003]
    assert caplog.text.count("can't answer: ExecutorUnavailable: the GPU is away") == 1
    assert caplog.text.count("variant 2 answers again") == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), TypeError("another")])
def test_version_that_always_raises_costs_no_event(error: Exception) -> None:
    scene = Scene(Version(1), Version(2))
    scene.versions[1].fails = error
    rollout, rejected = scene.rollout(), 0
    net = SafetyNet[Any]("infer", scene.metrics)
    for _ in range(20):
        found = scene.answer("e" * 8, rollout, net=net)
        rejected += len(found.rejected)
        scene.now += BACK_OFF[1]
    assert rejected <= 16, "the first ones may be the events' fault"
    assert scene.fallbacks("outage") > 0


def test_lost_device_ends_the_worker_whichever_version_loses_it() -> None:
    scene = Scene(Version(1), Version(2))
    scene.versions[1].fails = ExecutorLost("CUDA")
    with pytest.raises(ExecutorLost):
        scene.answer("eeee", scene.rollout())


def test_outage_of_the_baseline_waits_and_the_others_do_not_run_twice() -> None:
    scene = Scene(Version(1), Version(2))
    scene.versions[0].fails = ExecutorUnavailable("away")
    found = scene.answer("eeee", scene.rollout(), tries=4)
    assert found.outputs["y"][:, 0].tolist() == [1000, 2001, 1002, 2003]
    assert scene.versions[1].calls == [[1, 3]]


def test_variants_take_turns_in_being_the_first() -> None:
    order: list[int] = []
    versions = [Version(1), Version(2)]
    scene = Scene(*versions)

    def noting(version: Version) -> Callable[[Inputs], dict[str, Any]]:
        def run(inputs: Inputs) -> dict[str, Any]:
            order.append(version.number)
            return version.run(inputs)

        return run

    rollout = rollout_of(*map(noting, versions))
    slot = scene.slot(rollout)
    for _ in range(3):
        scene.answer("eeee", rollout, slot=slot)
    assert order == [2, 1, 1, 2, 2, 1]


@pytest.mark.parametrize("sample", [{"y": np.zeros((1, 1))}, None], ids=["known", "unknown"])
def test_candidate_that_fails_after_the_baseline_ran_leaves_its_events_to_it(sample: Any) -> None:
    scene = Scene(Version(1), Version(2))
    rollout = scene.rollout(sample=sample)
    slot = scene.slot(rollout)
    scene.answer("eeee", rollout, slot=slot)
    scene.versions[1].fails = ExecutorUnavailable("away")
    found = scene.answer("eeee", rollout, slot=slot)
    assert found.outputs["y"][:, 0].tolist() == [1000, 1001, 1002, 1003]
    assert scene.versions[0].calls == [[0, 2], [0, 2], [1, 3]]
    letters = [found.row_models.letter_model(row) for row in range(4)]
    assert [letter.choice.assigned for letter in letters if letter and letter.choice] == ["primary", "canary"] * 2
    found = scene.answer("eeee", rollout, slot=slot)
    assert scene.versions[0].calls[3:] == [[0, 1, 2, 3]], "it is known before that the candidate can't answer"


def test_outage_of_the_baseline_that_runs_first_loses_no_event() -> None:
    scene = Scene(Version(1), Version(2))
    rollout = scene.rollout()
    slot = scene.slot(rollout)
    scene.answer("eeee", rollout, slot=slot)
    scene.versions[0].fails = ExecutorUnavailable("away")
    found = scene.answer("eeee", rollout, tries=4, slot=slot)
    assert found.outputs["y"][:, 0].tolist() == [1000, 2001, 1002, 2003]
    assert scene.versions[1].calls == [[1, 3], [1, 3]]


@pytest.mark.parametrize(("attribute", "value"), [("dtype", np.float32), ("width", 2)])
@pytest.mark.parametrize("sample", [{"y": np.zeros((1, 1))}, None], ids=["known", "unknown"])
def test_version_with_other_outputs_than_the_baseline_does_not_answer(attribute: str, value: Any, sample: Any) -> None:
    scene = Scene(Version(1), Version(2, frozenset({3})))
    setattr(scene.versions[1], attribute, value)
    found = scene.answer("eeee", scene.rollout(sample=sample))
    assert (found.rejected, found.outputs["y"][:, 0].tolist()) == ({}, [1000, 1001, 1002, 1003])
    assert {letter.variant for letter in map(found.row_models.letter_model, range(4)) if letter} == {"primary"}
    assert found.outputs["y"].dtype == np.float64
    assert scene.fallbacks("outage") == 2


def test_other_variant_may_take_the_baselines_place() -> None:
    scene = Scene(Version(1), Version(2))
    rollout = rollout_of(None, scene.versions[1].run, fallback=1)
    found = scene.answer("eeee", rollout)
    assert found.outputs["y"][:, 0].tolist() == [2000, 2001, 2002, 2003]
    assert scene.value(m.ROLLOUT_FALLBACKS, variant="primary", reason="not_loaded") == 2


@pytest.mark.parametrize("looks", range(4))
@pytest.mark.parametrize("works", [False, True])
def test_outage_that_ends_while_a_batch_begins_lets_no_event_run_twice(looks: int, *, works: bool) -> None:
    scene = Scene(Version(1), Version(2))
    canary = scene.versions[1]
    canary.fails = ExecutorUnavailable("away")
    rollout = scene.rollout()
    scene.answer("eeee", rollout)
    if works:
        canary.fails = None
    times = iter([0.0] * looks)  # the first looks at the clock; later ones come after the outage
    scene.clock = lambda: next(times, BACK_OFF[0])
    found = scene.answer("eeee", rollout)
    assert found.rows.tolist() == [0, 1, 2, 3]
    assert found.outputs["y"].shape == (4, 1)
    assert len(canary.calls) <= 2, "one for each batch"


@pytest.mark.parametrize("batches", [1, 2], ids=["candidate first", "baseline first"])
def test_outage_of_the_baseline_loses_no_event_of_a_candidate_with_other_outputs(batches: int) -> None:
    scene = Scene(Version(1), Version(2, frozenset({3})))
    baseline, canary = scene.versions
    canary.dtype = np.float32
    rollout = scene.rollout(sample=None)
    slot = scene.slot(rollout)
    for _ in range(batches - 1):
        scene.answer("e", rollout, slot=slot)
    baseline.fails_at = {len(baseline.calls) + 2, len(baseline.calls) + 3}
    found = scene.answer("eeee", rollout, tries=3, slot=slot)
    assert (found.rejected, found.outputs["y"][:, 0].tolist()) == ({}, [1000, 1001, 1002, 1003])


@pytest.mark.parametrize("wrong", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("away", [set(), {1}], ids=["", "baseline away"])
def test_arms_with_other_outputs_do_not_answer_also_if_the_baseline_has_no_event(
    wrong: tuple[int, ...], away: set[int]
) -> None:
    scene = Scene(Version(1), Version(2), Version(3))
    scene.versions[0].fails_at = away
    for at in wrong:
        scene.versions[at].width = 1 + at
    rollout = scene.rollout(given_route([1, 2, 1, 2]), sample=None)
    found = scene.answer("eeee", rollout, tries=1 + len(away))
    assert found.outputs["y"].tolist() == [[1000], [1001], [1002], [1003]]
    found = scene.answer("eeee", rollout)  # by the arms that are right
    answers = [1000 if at in wrong else 1000 * (1 + at) for at in (1, 2, 1, 2)]
    assert found.outputs["y"][:, 0].tolist() == [of + row for row, of in enumerate(answers)]


def test_arms_that_differ_do_not_count_as_working_if_the_baseline_rejects_all_their_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(Version(1, frozenset(range(4))), Version(2), Version(3))
    arms = scene.versions[1:]
    rollout = scene.rollout(given_route([1, 2, 1, 2]), sample=None)
    for arm in arms:
        arm.fails = ExecutorUnavailable("away")
    scene.answer("eeee", rollout)
    scene.now += BACK_OFF[0]
    arms[0].fails = arms[1].fails = None
    arms[1].width = 2
    with caplog.at_level(logging.INFO):
        found = scene.answer("eeee", rollout)
    assert found.rejected.keys() == {0, 1, 2, 3}
    assert [len(arm.calls) for arm in arms] == [2, 2]
    assert "answers again" not in caplog.text


def test_slots_that_fail_at_the_same_time_are_one_failure() -> None:
    clock = [0.0]
    outage = VariantOutage("variant 2", lambda: clock[0])
    away = ExecutorUnavailable("away")
    for wait in (0.1, 0.2, 0.4, 0.8):
        tries = [outage.ask() for _ in range(8)]
        for number in tries:
            outage.failed(number, away)
            clock[0] += wait / 10
        assert outage.lasts
        clock[0] += wait
        assert not outage.lasts


def test_slot_that_asked_before_the_outage_does_not_end_it() -> None:
    clock = [0.0]
    outage = VariantOutage("variant 2", lambda: clock[0])
    early, failing = outage.ask(), outage.ask()
    outage.failed(failing, ExecutorUnavailable("away"))
    outage.answered(early)
    assert outage.lasts
    clock[0] += BACK_OFF[0]
    outage.answered(outage.ask())
    outage.failed(outage.ask(), ExecutorUnavailable("away"))
    clock[0] += BACK_OFF[0]
    assert not outage.lasts, "the first wait again, because it had worked"


def test_candidate_with_other_outputs_is_asked_less_and_less_often() -> None:
    scene = Scene(Version(1), Version(2))
    scene.versions[1].dtype = np.float32
    rollout = scene.rollout(sample=None)
    for _ in range(64):
        scene.answer("eeee", rollout)
        scene.now += BACK_OFF[0]
    assert len(scene.versions[1].calls) <= 8
