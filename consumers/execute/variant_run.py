"""Runs a micro-batch on the variants of a rollout: each event on one of them, and every bad event only fails its own variant."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import Rejection
from millstream.consumers.execute.bisecting import BisectingExecutor, Result, all_rows
from millstream.consumers.execute.opened_rollout import Assigned, OpenedRollout
from millstream.consumers.execute.variant_turns import VariantTurns
from millstream.consumers.observability.metrics import ROLLOUT_FALLBACKS, Metrics
from millstream.inference.errors import ExecutorLost, ModelConfigError
from millstream.inference.executors.interface import ANSWERED_BY, Inputs, Tensors, rows_of
from millstream.schemas.arrays import Ints
from millstream.schemas.dead_letters import LetterModel
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices

_TEXTS = "UOT"


class _Answered(NamedTuple):
    """The answers of one variant to some events."""

    variant: int
    outputs: Tensors
    rows: Ints  # of the micro-batch, ascending


class VariantRun:
    """One micro-batch. Its variants are fixed when it begins, also if it has to run again."""

    def __init__(
        self,
        rollout: OpenedRollout,
        isolations: Sequence[BisectingExecutor | None],
        inputs: Inputs,
        assigned: Assigned,
        turns: VariantTurns,
        metrics: Metrics,
    ) -> None:
        """Args:
        rollout: with the variants.
        isolations: run each variant in this executor slot; None: it isn't loaded.
        inputs: of the events.
        assigned: the events' variants.
        turns: of this executor slot. They decide which variant runs first.
        metrics: where to count the events that the baseline answers in place of a variant.
        """
        self._rollout = rollout
        self._isolations = isolations
        self._metrics = metrics
        self._inputs = inputs
        self._events = rows_of(inputs)
        self._assigned = assigned
        self._answered_by = assigned.variant
        self._moved = False  # whether the baseline answers events of other variants
        self._ms = [0.0] * len(isolations)  # that each variant took
        self._parts: list[_Answered] = []
        self._doubtful: list[_Answered] = []  # taken back: they differ, and the baseline is yet to show which are wrong
        self._rejected: list[tuple[int, dict[int, Rejection]]] = []  # with the variant that rejects them
        self._left: list[Ints] = []  # rows for the baseline, of variants that can't answer
        self._asked: dict[int, int] = {}  # variant that has answered -> its number in `VariantOutage.ask`
        self._to_run = self._in_turn(turns)

    def run(self) -> Result:
        """Run it. If the baseline's executor fails, call it again: the other variants don't run twice.

        Raises: as `BisectingExecutor.run` of the baseline does. Errors of the other variants only make the baseline answer.
        """
        while self._to_run:
            variant, rows = self._to_run[0]
            if variant == self._rollout.fallback:
                self._answer_left(rows)
            else:
                self._ask(variant, rows)
            self._to_run.pop(0)
        if self._left:
            self._answer_left()
        if self._rollout.sample is None:
            self._answer_misfits()
        for variant, number in self._asked.items():
            self._rollout.variants[variant].outage.answered(number)
        return self._joined()

    def choices(self, rows: Ints) -> RowChoices:
        """How the variants of these rows were chosen. `rows`: of the micro-batch, after `run`."""
        assigned = self._assigned.variant if len(rows) == self._events else self._assigned.variant[rows]
        count = len(self._isolations)
        if not self._moved and self._assigned.randomised is None:
            return RowChoices([self._choice(at, at, randomised=True) for at in range(count)], assigned)
        randomised = np.int64(1) if self._assigned.randomised is None else self._assigned.randomised[rows]
        places = (assigned * count + self._answered_by[rows]) * 2 + randomised
        used = np.flatnonzero(np.bincount(places, minlength=1))
        number = np.zeros(int(used.max(initial=0)) + 1, np.int64)
        number[used] = np.arange(len(used))
        choices = [self._choice(at // 2 // count, at // 2 % count, randomised=bool(at % 2)) for at in used.tolist()]
        return RowChoices(choices, number[places])

    def _in_turn(self, turns: VariantTurns) -> list[tuple[int, Ints]]:
        """The variants, with their rows, in the order in which they run.

        A variant that can't answer comes before all: it leaves its rows to the baseline, which then runs once for all of its.
        """
        groups = _groups(self._assigned.variant, len(self._isolations))
        unready = {variant for variant, _ in groups if self._unready(variant)}  # once: an outage may end meanwhile
        absent = [each for each in groups if each[0] in unready]
        running = [each for each in groups if each[0] not in unready] if absent else groups
        if not running:
            return absent
        running = sorted(running, key=lambda each: each[0] == self._rollout.fallback)
        first = turns.first([(variant, len(rows)) for variant, rows in running])
        return [*absent, *sorted(running, key=lambda each: each[0] != first)]

    def _answer_left(self, *own: Ints) -> None:
        """Let the baseline answer the rows of variants that can't, and its own."""
        rows = [*self._left, *own]
        self._answer(self._rollout.fallback, rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows)))
        self._left = []

    def _choice(self, assigned: int, answered_by: int, *, randomised: bool) -> RolloutChoice:
        rollout = self._rollout
        name, share = rollout.variants[assigned].name, float(rollout.shares[assigned])
        return RolloutChoice(rollout.id, rollout.revision, name, share, randomised, self._ms[answered_by])

    def _ask(self, variant: int, rows: Ints) -> None:
        """Let a variant other than the baseline answer these rows. If it can't, leave them to the baseline."""
        outage = self._rollout.variants[variant].outage
        if reason := self._unready(variant):
            self._leave(variant, rows, reason)
            return
        number = outage.ask()
        try:
            self._answer(variant, rows)
        except ExecutorLost:  # only a new process can go on
            raise
        except Exception as error:  # any other error is the variant's, and must not reach the other events
            outage.failed(number, error)
            self._leave(variant, rows, "outage")
        else:
            self._asked[variant] = number

    def _unready(self, variant: int) -> str:
        """Why a variant can't even be asked; empty if it can. The baseline always can."""
        if variant == self._rollout.fallback:
            return ""
        return (
            "not_loaded"
            if self._isolations[variant] is None
            else "outage"
            if self._rollout.variants[variant].outage.lasts
            else ""
        )

    def _leave(self, variant: int, rows: Ints, reason: str) -> None:
        """Leave these rows of a variant to the baseline."""
        self._metrics.count(ROLLOUT_FALLBACKS, len(rows), self._rollout.variants[variant].name, reason)
        if not self._moved:
            self._moved, self._answered_by = True, self._answered_by.copy()
        self._answered_by[rows] = self._rollout.fallback
        self._left.append(rows)

    def _answer_misfits(self) -> None:
        """Let the baseline answer the events of variants whose outputs are not like its own, if that was not known before."""
        fallback = self._rollout.fallback
        others = [part for part in self._parts if part.variant != fallback]
        own = self._outputs_of(fallback)
        if own is None and _differ(others):  # some of them must be wrong, and only the baseline can show which
            self._doubtful = others
            self._take_back(others)
            own = self._outputs_of(fallback)
        if own is None:
            for part in self._doubtful:  # the baseline rejects all events: nobody knows which one works
                del self._asked[part.variant]
            return
        compared = [(part, outputs_misfit(own, part.outputs)) for part in self._doubtful or others]
        misfits = [(part, difference) for part, difference in compared if difference is not None]
        for part, difference in misfits:
            outage = self._rollout.variants[part.variant].outage
            outage.failed(self._asked.pop(part.variant), ModelConfigError(difference))
        if not self._doubtful:
            self._take_back([part for part, _ in misfits])

    def _outputs_of(self, variant: int) -> Tensors | None:
        """Outputs that a variant has given; None: there are none."""
        return next((part.outputs for part in self._parts if part.variant == variant), None)

    def _take_back(self, parts: Sequence[_Answered]) -> None:
        """Let the baseline answer the events of these parts' variants instead."""
        variants = {part.variant for part in parts}
        # All of it before the baseline runs: after an outage of the baseline, `run` only goes on with what is left.
        self._parts = [each for each in self._parts if each.variant not in variants]
        self._rejected = [each for each in self._rejected if each[0] not in variants]
        for variant in variants:
            self._leave(variant, np.flatnonzero(self._assigned.variant == variant), "outage")
        if variants:
            self._answer_left()

    def _answer(self, variant: int, rows: Ints) -> None:
        isolation = self._isolations[variant]
        assert isolation is not None
        whole = len(rows) == self._events
        inputs = self._inputs if whole else {name: _taken(array, rows) for name, array in self._inputs.items()}
        started = time.perf_counter()
        outputs, own, rejected = isolation.run(inputs)
        if not self._ms[variant]:  # of the baseline's own rows, not of those that others leave to it afterwards
            self._ms[variant] = (time.perf_counter() - started) * 1000
        if variant != self._rollout.fallback:
            _check_outputs(outputs, self._rollout.sample)
        if rejected:
            named = rejected if whole else {int(rows[row]): why for row, why in rejected.items()}
            self._rejected.append((variant, named))
        if len(own):
            there = own if whole else rows if len(own) == len(rows) else rows[own]
            self._parts.append(_Answered(variant, outputs, there))

    def _joined(self) -> Result:
        rejected = {row: self._named(variant, row, why) for variant, of in self._rejected for row, why in of.items()}
        parts = self._parts
        if not parts:
            return {}, np.empty(0, np.int64), rejected
        if len(parts) == 1:
            _, outputs, rows = parts[0]
            return {**outputs, ANSWERED_BY: self._answered_by_of(rows)}, rows, rejected
        rows, places = all_rows(self._events), None
        if rejected:
            there = np.zeros(self._events, np.bool_)
            for part in parts:
                there[part.rows] = True
            rows, places = np.flatnonzero(there), there.cumsum() - 1
        joined = {name: _scattered(name, parts, places, len(rows)) for name in parts[0].outputs}
        return {**joined, ANSWERED_BY: self._answered_by_of(rows)}, rows, rejected

    def _answered_by_of(self, rows: Ints) -> Ints:
        return self._answered_by if len(rows) == self._events else self._answered_by[rows]

    def _named(self, variant: int, row: int, why: Rejection) -> Rejection:
        """The rejection with the model that rejects the event."""
        one = self._rollout.variants[variant]
        randomised = self._assigned.randomised is None or bool(self._assigned.randomised[row])
        choice = self._choice(int(self._assigned.variant[row]), variant, randomised=randomised)
        return why._replace(model=LetterModel(one.id.name, one.id.version, one.name, choice))


def _groups(variants: Ints, count: int) -> list[tuple[int, Ints]]:
    """Each variant that has events, with their rows, ascending."""
    others = np.flatnonzero(variants)
    if not len(others):
        return [(0, all_rows(len(variants)))]
    if count == 2:
        if len(others) == len(variants):
            return [(1, all_rows(len(variants)))]
        return [(0, np.flatnonzero(variants == 0)), (1, others)]
    sizes = np.bincount(variants, minlength=count).tolist()
    return [(variant, np.flatnonzero(variants == variant)) for variant, size in enumerate(sizes) if size]


def _taken(array: Any, rows: Ints) -> Any:
    """These rows of an input. `take` is faster than an index, but inputs of variable length don't have it."""
    return array.take(rows, axis=0) if isinstance(array, np.ndarray) else array[rows]


def _scattered(name: str, parts: Sequence[_Answered], places: Ints | None, rows: int) -> npt.NDArray[np.generic]:
    """An output of all variants, in the order of the events. `places`: of the events' rows; None: all events have outputs."""
    arrays = [part.outputs[name] for part in parts]
    dtypes = {array.dtype for array in arrays}
    dtype = dtypes.pop() if len(dtypes) == 1 else np.result_type(*arrays)
    joined = np.empty((rows, *arrays[0].shape[1:]), dtype)
    for part, array in zip(parts, arrays, strict=True):
        if array.shape[1:] != joined.shape[1:]:
            raise ModelConfigError(
                f"output `{name}`: versions of a rollout give it the shapes {list(joined.shape[1:])} and "
                f"{list(array.shape[1:])} per event. Give it one shape, whichever event it is of."
            )
        joined[part.rows if places is None else places[part.rows]] = array
    return joined


def _differ(parts: Sequence[_Answered]) -> bool:
    """Whether some outputs are not like the others."""
    return any(outputs_misfit(parts[0].outputs, part.outputs) is not None for part in parts[1:])


def _check_outputs(outputs: Tensors, sample: Tensors | None) -> None:
    """Check that a variant's outputs are like the baseline's. Raises ModelConfigError."""
    if sample is None or not outputs:
        return
    if (difference := outputs_misfit(sample, outputs)) is not None:
        raise ModelConfigError(difference)


def outputs_misfit(expected: Tensors, found: Tensors, other: str = "the baseline") -> str | None:
    """The first difference of a version's outputs to those of the baseline, as a sentence; None: they are alike.

    `other`: how messages name the version that has the expected outputs.

    Predictions of one pipeline must not differ in type: readers could not tell which to expect.
    """
    if expected.keys() != found.keys():
        return f"expected the outputs {', '.join(sorted(expected))} of {other}, found {', '.join(sorted(found))}."
    for name, array in expected.items():
        kinds = ["text" if each.dtype.kind in _TEXTS else str(each.dtype) for each in (array, found[name])]
        shapes = [list(each.shape[1:]) for each in (array, found[name])]
        if kinds[0] != kinds[1] or shapes[0] != shapes[1]:
            return (
                f"output `{name}`: expected {kinds[0]} of shape {shapes[0]} per event as {other} gives it, found {kinds[1]} "
                f"of shape {shapes[1]}. Export the version with the same outputs."
            )
    return None
