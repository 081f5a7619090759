"""Finds the events that a model rejects, or that break the executor's code, by bisecting the micro-batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import Rejection
from millstream.consumers.execute.adaptive_batch_size import AdaptiveBatchSize
from millstream.consumers.resilience.safety_net import SafetyNet, raise_expected
from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, ModelRejected, OutOfMemory
from millstream.inference.executors.interface import Inputs, Tensors, join_rows, rows_between, rows_of

Run = Callable[[Inputs], dict[str, npt.NDArray[Any]]]
Result = tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64], dict[int, Rejection]]


class BisectingExecutor:
    """Runs micro-batches so that one bad event does not fail the others. One thread calls it."""

    def __init__(
        self, run: Run, *, max_events: int, allow_nan_outputs: bool, net: SafetyNet[Inputs] | None = None
    ) -> None:
        """Args:
        run: runs a micro-batch, as `Executor.run`.
        max_events: most events that a batch ever has.
        allow_nan_outputs: whether NaN and infinity are answers.
        net: rejects an event that makes `run` raise what it should not. None: `run` below raises it.
        """
        self._run = run
        self._net = net
        self._working = AdaptiveBatchSize(max_events)
        self._allow_nan_outputs = allow_nan_outputs

    def run(self, inputs: Inputs) -> Result:
        """Run a micro-batch: halved where the model rejects it, in parts where memory ran out, not-a-number set apart.

        Returns:
            the outputs of the events that ran, their rows (ascending), and row -> rejection for each event refused alone.

        Raises:
            ExecutorUnavailable: nothing can run; or a single event does not fit the memory, which is no event's fault.
            ModelConfigError: the parts' outputs differ in shape, so that the model depends on who shares the batch.
            Exception: what is no fault of any event.
        """
        rejected: dict[int, Rejection] = {}
        parts: list[Tensors] = []
        rows: list[npt.NDArray[np.int64]] = []
        waiting = [(0, rows_of(inputs))]
        while waiting:
            start, end = waiting.pop()
            stop = min(end, start + self._working.size)
            if stop < end:
                waiting.append((stop, end))
            try:
                parts.append(self._run(rows_between(inputs, start, stop)))
                rows.append(np.arange(start, stop))
                self._working.fitted(stop - start)
                self._note_good(inputs, start)
            except OutOfMemory as error:
                self._working.failed(stop - start)
                if stop - start == 1:
                    raise ExecutorUnavailable(str(error)) from error
                waiting.append((start, stop))
            except Exception as error:
                if stop - start == 1:
                    rejected[start] = self._rejection(error)
                    continue
                self._raise_unless_an_events(error)
                if self._net is not None and not isinstance(error, ModelRejected):
                    self._net.note(error)
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
        if not parts:
            return {}, np.empty(0, np.int64), rejected
        outputs, ran = _joined(parts), np.concatenate(rows) if len(rows) > 1 else rows[0]
        return (outputs, ran, rejected) if self._allow_nan_outputs else _without_nan(outputs, ran, rejected)

    def _note_good(self, inputs: Inputs, row: int) -> None:
        if self._net is not None:
            rows = np.array([row])
            self._net.passed(lambda: {name: array[rows] for name, array in inputs.items()})

    def _run_again(self, good: Inputs) -> None:
        """Run an event that was good before. Raises what says that the executor does not work."""
        try:
            self._run(good)
        except ModelRejected:  # that is an answer
            pass
        except OutOfMemory as error:
            raise ExecutorUnavailable(str(error)) from error

    def _raise_unless_an_events(self, error: Exception) -> None:
        """Raise what no event is to blame for."""
        if not isinstance(error, ModelRejected):
            raise_expected(error)
            if self._net is None:
                raise error

    def _rejection(self, error: Exception) -> Rejection:
        """Why an event is rejected that raises this alone."""
        self._raise_unless_an_events(error)
        if isinstance(error, ModelRejected):
            return Rejection("model_rejected", str(error))
        assert self._net is not None
        return self._net.rejection(error, self._run_again)


def _joined(parts: list[Tensors]) -> dict[str, npt.NDArray[Any]]:
    try:
        return join_rows(parts)
    except ValueError as error:
        shapes = [{name: list(array.shape) for name, array in part.items()} for part in (parts[0], parts[-1])]
        raise ModelConfigError(
            f"the model gives outputs of another shape when a micro-batch runs in parts: {shapes[0]} and {shapes[1]}. Give each "
            f"event the same shape, whoever shares its batch."
        ) from error


def _without_nan(
    outputs: dict[str, npt.NDArray[Any]], rows: npt.NDArray[np.int64], rejected: dict[int, Rejection]
) -> Result:
    bad: dict[int, Rejection] = {}  # place in `rows` -> why
    for name, array in outputs.items():
        if array.dtype.kind != "f" or (finite := np.isfinite(array)).all():
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
