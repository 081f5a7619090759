"""Finds the events that a model rejects, or that make the executor raise, by bisecting the micro-batch."""

import logging
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import Rejection
from millstream.consumers.execute.adaptive_batch_size import AdaptiveBatchSize
from millstream.consumers.resilience.safety_net import SafetyNet, raise_expected
from millstream.inference.errors import (
    EventsRejected,
    ExecutorUnavailable,
    ModelRejected,
    NanOutput,
    OutOfMemory,
    OutputsDiffer,
)
from millstream.inference.executors.interface import Inputs, Tensors, join_rows, rows_between, rows_of
from millstream.inference.executors.output_forms import are_alike, changed, mixes_numbers, usual_parts
from millstream.inference.ragged import Ragged

log = logging.getLogger(__name__)

Run = Callable[[Inputs], dict[str, npt.NDArray[Any]]]
Result = tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64], dict[int, Rejection]]

Steps = Generator[dict[str, Any], Tensors, Result]
"""Yields micro-batches to run; takes their outputs, or the exception of a run."""

KEPT_TEXT = 64
"""Characters of a text with which an event runs that did not fit into memory: a text this long fills none."""

# The rows of each micro-batch that runs as a whole are a view of this. `np.arange` gives up Python's lock (the GIL) also for few
# numbers, and to get it back takes longer than the rest if another thread wants it.
_ROWS = np.arange(4096)
_ROWS.flags.writeable = False


def all_rows(events: int) -> npt.NDArray[np.int64]:
    """0, 1, 2, ... It can't be written to."""
    return _ROWS[:events] if events <= len(_ROWS) else np.arange(events)


class Bisection:
    """Decides which events of a micro-batch run together, so that a bad event does not make the others fail. It runs nothing.

    Its caller drives `steps`: it runs what they yield, and sends the outputs back or throws the exception in.
    """

    def __init__(self, *, max_events: int, allow_nan_outputs: bool, net: SafetyNet[Inputs] | None = None) -> None:
        """Args:
        max_events: most events of a batch.
        allow_nan_outputs: whether outputs may be NaN or infinite.
        net: rejects an event that makes the run raise an unexpected error. None: such an error is raised.
        """
        self._net = net
        self._max_events = max_events
        self._working = AdaptiveBatchSize(max_events)
        self._allow_nan_outputs = allow_nan_outputs
        # Outputs of the last micro-batch that ran as a whole, without its events: only their types and shapes are of use.
        self._before: Tensors | None = None
        self._changed: set[str] = set()  # outputs whose change was logged

    def runs_whole(self, events: int) -> bool:
        """Whether the first step of a micro-batch with so many events is the whole."""
        return events <= self._working.size

    def whole(self, inputs: Inputs, outputs: Tensors) -> Result:
        """The result of a micro-batch that was run as a whole, without steps. If that failed, `steps` says how to go on."""
        events = rows_of(inputs)
        self._working.fitted(events)
        self._note_good(inputs, 0)
        if self._before is not None:
            self._note_changes(changed(self._before, outputs))
        self._before = {name: array[:0].copy() for name, array in outputs.items()}
        rows = all_rows(events)
        return (dict(outputs), rows, {}) if self._allow_nan_outputs else _without_nan(dict(outputs), rows, {})

    def steps(self, inputs: Inputs, *, whole: bool = False) -> Steps:
        """Run a micro-batch. It is halved if the model rejects it, and runs in parts if memory is short.

        An executor that knows which events are rejected is not asked again (`EventsRejected`). If the outputs of parts differ in
        type or shape, all good events run together once more. If the model rejects them together, those that differ from most are
        rejected.

        Args:
            inputs: of the events.
            whole: whether the first step is the whole, because it has run already. Meanwhile, memory may have become short.

        Yields:
            a micro-batch to run.

        Returns:
            the outputs of the events that have any, the rows of these events (ascending), and row -> rejection for the others.

        Raises:
            ExecutorUnavailable: the executor can't run; or memory is too short for any single event.
            OutputsDiffer: the outputs of the parts differ in shape, because they depend on the other events of a part. Of inputs
                of several micro-batches, the outputs may also differ in type.
            Exception: another error that no event causes.
        """
        rejected: dict[int, Rejection] = {}
        short: set[int] = set()  # rows of the events that did not fit into memory alone
        parts: list[Tensors] = []
        rows: list[npt.NDArray[np.int64]] = []  # of each part
        waiting = [(0, rows_of(inputs))]
        while waiting:
            start, end = waiting.pop()
            stop = end if whole else min(end, start + self._working.size)
            whole = False
            if stop < end:
                waiting.append((stop, end))
            try:
                parts.append((yield rows_between(inputs, start, stop)))
                rows.append(all_rows(stop)[start:])
                self._working.fitted(stop - start)
                self._note_good(inputs, start)
            except EventsRejected as error:
                rejected |= {start + row: Rejection(*why) for row, why in error.rejected.items()}
                if len(error.rows):
                    parts.append(error.outputs)
                    rows.append(start + error.rows)
                self._working.fitted(stop - start)
            except OutOfMemory as error:
                self._working.failed(stop - start)
                if start in short:
                    rejected[start] = self._too_large(error)
                    continue
                waiting.append((start, stop))
                short |= yield from _short_alone(inputs, start, stop, error)
            except Exception as error:
                if stop - start == 1:
                    rejected[start] = yield from self._rejection(error)
                    continue
                waiting += self._halves(error, start, stop)
        if not parts:
            return {}, np.empty(0, np.int64), rejected
        return (yield from self._result_of(inputs, parts, rows, rejected))

    def _result_of(
        self,
        inputs: Inputs,
        parts: list[Tensors],
        rows: list[npt.NDArray[np.int64]],
        rejected: dict[int, Rejection],
    ) -> Steps:
        """The result of a micro-batch whose parts have these outputs. If they don't go together, their events run once more."""
        several = rows_of(inputs) > self._max_events  # micro-batches
        ran = np.concatenate(rows) if len(rows) > 1 else rows[0]
        if not several and not are_alike(parts):
            try:
                parts, rows = [(yield {name: array[ran] for name, array in inputs.items()})], [ran]
            except OutOfMemory:
                _joined(parts, of_one_type=False)  # raises where their shapes differ: no event is to blame for that
            except Exception as error:
                self._raise_unless_an_events(error)
            if not are_alike(parts):
                if mixes_numbers(parts, rows, self._before):
                    parts, rows = yield from self._alone(inputs, ran, rejected)
                    if not parts:
                        return {}, np.empty(0, np.int64), rejected
                parts, rows, others = usual_parts(parts, rows, self._before)
                ran = np.concatenate(rows)
                rejected |= {row: Rejection("model_rejected", why) for row, why in others.items()}
        outputs = _joined(parts, of_one_type=several)
        return (outputs, ran, rejected) if self._allow_nan_outputs else _without_nan(outputs, ran, rejected)

    def _alone(
        self, inputs: Inputs, ran: npt.NDArray[np.int64], rejected: dict[int, Rejection]
    ) -> Generator[dict[str, Any], Tensors, tuple[list[Tensors], list[npt.NDArray[np.int64]]]]:
        """Run each of these events alone: in a part, its integer may be a float because another event's output is one."""
        parts, rows = [], []
        for row in ran.tolist():
            try:
                parts.append((yield rows_between(inputs, row, row + 1)))
                rows.append(np.array([row]))
            except OutOfMemory as error:
                raise ExecutorUnavailable(str(error)) from error
            except Exception as error:
                rejected[row] = yield from self._rejection(error)
        return parts, rows

    def _too_large(self, error: OutOfMemory) -> Rejection:
        """The rejection of an event that needs more memory than there is. For the others, memory is not short."""
        self._working = AdaptiveBatchSize(self._max_events)
        return Rejection(
            "model_rejected",
            f"{error}. This event needs more memory than there is, even alone. With zeros in place of its numbers and its texts "
            f"cut to {KEPT_TEXT} characters, it does not.",
        )

    def _halves(self, error: Exception, start: int, stop: int) -> list[tuple[int, int]]:
        """What runs after an error of several events, last first. Raises the error if no event causes it."""
        self._raise_unless_an_events(error)
        if self._net is not None and not isinstance(error, ModelRejected):
            self._net.note(error)
        middle = (start + stop) // 2
        return [(middle, stop), (start, middle)]

    def _note_changes(self, found: dict[str, str]) -> None:
        """Warn once of each output whose form changes from batch to batch. Within a batch, such events are rejected."""
        for name in found.keys() - self._changed:
            self._changed.add(name)
            log.warning(
                "the model gives output `%s` in another form: %s. Readers of predictions find both under one name. Correct the "
                "model, so that each event has the same form",
                *(name, found[name]),
            )

    def _note_good(self, inputs: Inputs, row: int) -> None:
        if self._net is not None:
            self._net.passed(lambda: {name: array[np.array([row])] for name, array in inputs.items()})

    def _raise_unless_an_events(self, error: Exception) -> None:
        """Raise an error that no event causes."""
        if not isinstance(error, ModelRejected):
            raise_expected(error)
            if self._net is None:
                raise error

    def _rejection(self, error: Exception) -> Generator[dict[str, Any], Tensors, Rejection]:
        """The rejection of an event that raises this error when it runs alone."""
        self._raise_unless_an_events(error)
        if isinstance(error, ModelRejected):
            return Rejection("nan_output" if isinstance(error, NanOutput) else "model_rejected", str(error))
        assert self._net is not None
        self._net.count()
        good = self._net.proof(error)
        if good is not None:  # an event that succeeded before: it raises if the executor does not work
            try:
                yield dict(good)
            except ModelRejected:  # the executor works
                pass
            except OutOfMemory as full:
                raise ExecutorUnavailable(str(full)) from full
            except Exception as again:
                raise_expected(again)
                raise error from None
        return self._net.rejection_of(error)


class BisectingExecutor:
    """Runs micro-batches so that a bad event does not make the others fail. One thread calls it."""

    def __init__(
        self, run: Run, *, max_events: int, allow_nan_outputs: bool, net: SafetyNet[Inputs] | None = None
    ) -> None:
        """Args:
        run: runs a micro-batch, as `Executor.run`.
        max_events: most events of a batch.
        allow_nan_outputs: whether outputs may be NaN or infinite.
        net: rejects an event that makes `run` raise an unexpected error. None: such an error is raised.
        """
        self._run = run
        self._bisection = Bisection(max_events=max_events, allow_nan_outputs=allow_nan_outputs, net=net)

    def run(self, inputs: Inputs) -> Result:
        """Run a micro-batch. Returns and raises: see `Bisection.steps`."""
        steps, part = None, inputs  # `AsyncRunner` does the same with coroutines
        if not self._bisection.runs_whole(rows_of(inputs)):
            steps = self._bisection.steps(inputs)
            part = next(steps)
        try:
            while True:
                try:
                    outputs = self._run(part)
                except Exception as error:
                    if steps is None:  # the usual batch needs no steps
                        steps = self._bisection.steps(inputs, whole=True)
                        next(steps)
                    part = steps.throw(error)
                else:
                    if steps is None:
                        return self._bisection.whole(inputs, outputs)
                    part = steps.send(outputs)
        except StopIteration as end:
            result: Result = end.value
            return result


def _short_alone(
    inputs: Inputs, start: int, stop: int, error: OutOfMemory
) -> Generator[dict[str, Any], Tensors, set[int]]:
    """The row of events that did not fit into memory, if it is only one. Then it should run once more: memory may be free now.

    The event is run with zeros in place of its numbers, and its texts are cut. Short texts stay, because they may choose a model.

    Raises:
        ExecutorUnavailable: that doesn't fit either. So the event is not to blame.
    """
    if stop - start > 1:
        return set()
    try:
        yield {name: _harmless(array) for name, array in rows_between(inputs, start, stop).items()}
    except OutOfMemory:
        raise ExecutorUnavailable(str(error)) from error
    except ModelRejected:  # the model has run
        pass
    except Exception as other:
        raise_expected(other)
    return {start}


def _harmless(array: Any) -> Any:
    """An input of the same shape whose values need little memory."""
    if isinstance(array, Ragged):
        return Ragged.of_lengths(_harmless(array.items), array.lengths)
    if array.dtype != object:
        return np.zeros_like(array)
    cut = np.empty_like(array)
    cut.flat = [text[:KEPT_TEXT] for text in array.flat]
    return cut


def _joined(parts: list[Tensors], *, of_one_type: bool) -> dict[str, npt.NDArray[Any]]:
    try:
        joined = join_rows(parts)
    except ValueError as error:
        shapes = [{name: list(array.shape) for name, array in part.items()} for part in (parts[0], parts[-1])]
        raise OutputsDiffer(
            f"the model gives outputs of another shape when a micro-batch runs in parts: {shapes[0]} and {shapes[1]}. Give each "
            f"event the same shape, whoever shares its batch."
        ) from error
    if of_one_type and any(part[name].dtype != array.dtype for name, array in joined.items() for part in parts):
        raise OutputsDiffer("the model gives outputs of several types")
    return joined


def _without_nan(
    outputs: dict[str, npt.NDArray[Any]], rows: npt.NDArray[np.int64], rejected: dict[int, Rejection]
) -> Result:
    bad: dict[int, Rejection] = {}  # index in `rows` -> reason
    for name, array in outputs.items():
        # `all()` takes twice as long for the outputs of a usual batch.
        if array.dtype.kind != "f" or np.count_nonzero(finite := np.isfinite(array)) == array.size:
            continue
        flat = finite.reshape(len(array), -1)
        for place in np.flatnonzero(~flat.all(axis=1)).tolist():
            at = int(flat[place].argmin())
            where = f"`{name}`[{at}]" if array.ndim > 1 else f"`{name}`"
            bad.setdefault(place, Rejection("nan_output", f"output {where} is {array[place].reshape(-1)[at]}"))
    if not bad:
        return outputs, rows, rejected
    found = {int(rows[place]): why for place, why in bad.items()}
    good = np.delete(np.arange(len(rows)), list(bad))
    if not len(good):
        return {}, np.empty(0, np.int64), {**rejected, **found}
    return {name: array[good] for name, array in outputs.items()}, rows[good], {**rejected, **found}
