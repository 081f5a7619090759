"""Isolating what a model refuses: bisect a rejected micro-batch until the bad events stand alone. Pure."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.errors import ExecutorUnavailable, ModelRejected, OutOfMemory
from inference.executors.interface import Tensors, join_rows, rows_between, rows_of

Run = Callable[[Tensors], dict[str, npt.NDArray[Any]]]


def run_isolating(
    run: Run, inputs: Tensors
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64], dict[int, str]]:
    """Run a micro-batch, halving it where the model rejects it or memory runs out.

    Returns:
        the outputs of the events that ran, their rows (ascending), and row -> reason for each event refused alone.

    Raises:
        ExecutorUnavailable: nothing can run; or a single event does not fit the memory, which is no event's fault.
    """
    rejected: dict[int, str] = {}
    parts: list[Tensors] = []
    rows: list[npt.NDArray[np.int64]] = []
    waiting = [(0, rows_of(inputs))]
    while waiting:
        start, stop = waiting.pop()
        try:
            parts.append(run(rows_between(inputs, start, stop)))
            rows.append(np.arange(start, stop))
        except (ModelRejected, OutOfMemory) as error:
            if stop - start > 1:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
            elif isinstance(error, ModelRejected):
                rejected[start] = str(error)
            else:
                raise ExecutorUnavailable(str(error)) from error
    if not parts:
        return {}, np.empty(0, np.int64), rejected
    return join_rows(parts), np.concatenate(rows), rejected
