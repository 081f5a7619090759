"""An executor for inputs of varying length: events of like length run together, padded no further than they need."""

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.errors import ModelConfigError, ModelRejected, OutOfMemory
from inference.executors.interface import ModelExecutor, Tensors, warm_up
from inference.repository import ModelVersion
from inference.signature import LENGTHS, blank
from inference.varying import groups_of, lengths_of, padded_to

_TIMED = 2  # calls, of which the quickest counts
_ENOUGH = 2048  # items that tell what one costs where nothing is gained by many at once


class ByLength:
    """Runs a micro-batch in as many calls as its events' lengths make worth it.

    What a call costs besides its items is measured when the model is warmed up: on a GPU it is as much as thousands of items, on
    a CPU hardly any.
    """

    def __init__(self, model: ModelVersion, executor: ModelExecutor) -> None:
        """Args:
        model: whose inputs vary.
        executor: runs events of one length.
        """
        longest = model.signature.longest
        assert longest is not None
        self.lengths = lengths_of(model.lengths, longest)
        self.device, self.batch_sizes, self.max_events = executor.device, executor.batch_sizes, executor.max_events
        self._model = model
        self._executor = executor
        self._call = 0.0  # items that a call costs besides its own

    def warm_up(self) -> None:
        """See `Executor.warm_up`; for every length too. On the CPU no shape needs preparing for, and large ones take seconds."""
        for place, length in enumerate(self.lengths):
            sizes = self.batch_sizes[:1] if place and self.device == "cpu" else self.batch_sizes
            warm_up(self._executor.run, self._model.signature.at(length), sizes)
        try:
            self._call = self._measured()
        except (ModelRejected, OutOfMemory):  # it was said already; then a call counts for nothing
            self._call = 0.0

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """See `Executor.run`; `inputs` have the events' lengths beside the tensors."""
        groups = groups_of(inputs[LENGTHS], self.lengths, self._call)
        answers = [
            self._executor.run(padded_to(self._model.signature.inputs, inputs, rows, size)) for size, rows in groups
        ]
        if len(answers) == 1:
            return answers[0]
        self._check(answers)
        order = np.argsort(np.concatenate([rows for _, rows in groups]))
        return {name: np.concatenate([answer[name] for answer in answers])[order] for name in answers[0]}

    def close(self) -> None:
        """See `Executor.close`."""
        self._executor.close()

    def _check(self, answers: list[dict[str, npt.NDArray[Any]]]) -> None:
        for name in answers[0]:
            shapes = {answer[name].shape[1:] for answer in answers}
            if len(shapes) > 1:
                raise ModelConfigError(
                    f"{self._model.place}: output `{name}` has another shape for events of another length: "
                    f"{', '.join(str(list(shape)) for shape in sorted(shapes))}. A prediction takes one shape: pool it in the "
                    f"model, or run all at one length (`lengths: [{self.lengths[-1]}]`)."
                )

    def _measured(self) -> float:
        """What a call costs besides its items, in items: from the smallest call and the largest."""
        events, longest = self.batch_sizes[-1], self.lengths[-1]
        if self.device == "cpu":
            events = min(events, max(_ENOUGH // longest, 2))
        small, large = (1, self.lengths[0]), (events, longest)
        if small[0] * small[1] == large[0] * large[1]:
            return 0.0
        least, most = self._seconds(*small), self._seconds(*large)
        item = (most - least) / (large[0] * large[1] - small[0] * small[1])
        return max(least / item - small[0] * small[1], 0.0) if item > 0 else 0.0

    def _seconds(self, events: int, length: int) -> float:
        inputs = blank(self._model.signature.at(length), events)
        took = []
        for _ in range(_TIMED):
            started = time.perf_counter()
            self._executor.run(inputs)
            took.append(time.perf_counter() - started)
        return min(took)
