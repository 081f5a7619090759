"""An executor for variable-length inputs (length bucketing): events of similar length run together, with little padding."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelConfigError, ModelRejected, OutOfMemory
from millstream.inference.executors.interface import Inputs, ModelExecutor, join_rows, rows_between, warm_up
from millstream.inference.executors.output_forms import are_alike
from millstream.inference.executors.padding import effect_of_padding
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import blank
from millstream.inference.varying import groups_of, length_buckets_of, lengths_in, padded_to
from millstream.schemas.arrays import Ints

log = logging.getLogger(__name__)

_TIMED_CALLS = 2  # calls to measure; the fastest counts
_TIMED_ITEMS = 2048  # items of the largest measured call on a CPU, where larger calls aren't cheaper per item
MAX_ITEMS = 2**23  # of one padded tensor: 64 MiB at 8 bytes an item


class ByLength:
    """Splits a micro-batch by length into the calls that cost least in total.

    The fixed cost of a call is measured at warm-up: thousands of items on a GPU, hardly any on a CPU. Events are padded just
    before their call, so each input has one padded tensor at a time, of at most `MAX_ITEMS` items. Only a model whose smallest
    batch size needs more gets a larger one.
    """

    def __init__(self, model: ModelVersion, executor: ModelExecutor) -> None:
        """Args:
        model: has inputs of variable length.
        executor: runs events of one length.
        """
        max_length = model.signature.max_length
        assert max_length is not None
        self.length_buckets = length_buckets_of(model.length_buckets, max_length)
        self.device, self.batch_sizes, self.max_events = executor.device, executor.batch_sizes, executor.max_events
        self._model = model
        self._executor = executor
        self._call = 0.0  # the fixed cost of a call, in items

    def warm_up(self) -> None:
        """See `Executor.warm_up`; also for every length. On the CPU, the longer lengths run only the smallest batch."""
        for place, length in enumerate(self.length_buckets):
            fitting = [size for size in self.batch_sizes if size <= self._most_events(length)]
            sizes = fitting[:1] if place and self.device == "cpu" else fitting
            warmed = warm_up(self._executor.run, self._model.signature.at(length), sizes)
            if place == 0:  # longer ones may run fewer events at once
                self.warmed_sizes = warmed
        try:
            self._call = self._measured()
        except (
            ModelRejected,
            OutOfMemory,
        ):  # the warm-up has logged it; without a measurement, the fixed cost counts as 0
            self._call = 0.0
        with suppress(ModelRejected, OutOfMemory):
            self._check_shapes()
        with suppress(OutOfMemory):
            self._warn_of_padding()

    def run(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """See `Executor.run`. Inputs of variable length are ragged."""
        groups = groups_of(lengths_in(inputs), self.length_buckets, self._call)
        if len(groups) == 1:
            return self._joined(list(self._answers(inputs, groups)))
        # Copying all events once, in the order of the calls, is faster than copying for each call.
        order = np.concatenate([rows for _, rows in groups])
        outputs = self._joined(list(self._answers({name: tensor[order] for name, tensor in inputs.items()}, groups)))
        back = np.argsort(order)
        return {name: output[back] for name, output in outputs.items()}

    def close(self) -> None:
        """See `Executor.close`."""
        self._executor.close()

    def items_of(self, inputs: Inputs) -> tuple[int, int]:
        """The items of these events, without and with the padding that `run` would add."""
        lengths = lengths_in(inputs)
        groups = groups_of(lengths, self.length_buckets, self._call)
        return int(lengths.sum()), sum(size * len(rows) for size, rows in groups)

    def _answers(self, inputs: Inputs, groups: Sequence[tuple[int, Ints]]) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The outputs of each call; `inputs` are in the order of the groups."""
        first = 0
        for size, rows in groups:
            stop, most = first + len(rows), self._most_events(size)
            for start in range(first, stop, most):
                part = rows_between(inputs, start, min(start + most, stop))
                yield self._executor.run(padded_to(self._model.signature.inputs, part, size))
            first = stop

    def _most_events(self, length: int) -> int:
        """Most events of this length in one call. A batch size, because an executor may pad to the next batch size."""
        return max((size for size in self.batch_sizes if size * length <= MAX_ITEMS), default=self.batch_sizes[0])

    def _joined(self, answers: list[dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
        """Join the outputs of all calls. Raises ModelConfigError if their shapes differ, ModelRejected if their types do."""
        if are_alike(answers):
            return join_rows(answers)
        for name in answers[0]:
            shapes = {answer[name].shape[1:] for answer in answers}
            if len(shapes) > 1:
                raise ModelConfigError(
                    f"{self._model.place}: output `{name}` has another shape for events of another length: "
                    f"{', '.join(str(list(shape)) for shape in sorted(shapes))}. A prediction takes one shape: pool it in the "
                    f"model, or run all at one length (`length_buckets: [{self.length_buckets[-1]}]`)."
                )
        raise ModelRejected(f"{self._model.place}: outputs of events of another length have another type.")

    def _check_shapes(self) -> None:
        """Raise ModelConfigError if outputs depend on the length: else the first long event would end the worker."""
        lengths = self.length_buckets[:2]
        self._joined([self._executor.run(blank(self._model.signature.at(length), 1)) for length in lengths])

    def _warn_of_padding(self) -> None:
        """Warn if the model takes padding for items. Raises OutOfMemory, ExecutorUnavailable."""
        if len(self.length_buckets) == 1:  # all events are padded to one length, so none depends on others
            return
        runtime, (short, long) = self._model.runtime, self.length_buckets[:2]
        changed = effect_of_padding(
            self._model.signature.inputs,
            self._executor.run,
            short,
            long,
            in_16_bits=runtime.dtype is not None or runtime.tensorrt_fp16,
        )
        if changed:
            log.warning(
                "%s: the model takes padding for items: %s. So a prediction depends on the events that run together with it. "
                "Let the model leave padding out, by a mask (`mask: true`), or run all events at one length "
                "(`length_buckets: [%d]`): see `millstream docs models`, variable-length inputs",
                self._model.place,
                changed,
                self.length_buckets[-1],
            )

    def _measured(self) -> float:
        """Measure the fixed cost of a call, in items, from the smallest and the largest call."""
        max_length = self.length_buckets[-1]
        events = self._most_events(max_length)
        if self.device == "cpu":
            events = min(events, max(_TIMED_ITEMS // max_length, 2))
        small, large = (1, self.length_buckets[0]), (events, max_length)
        if small[0] * small[1] == large[0] * large[1]:
            return 0.0
        least, most = self._seconds(*small), self._seconds(*large)
        item = (most - least) / (large[0] * large[1] - small[0] * small[1])
        return max(least / item - small[0] * small[1], 0.0) if item > 0 else 0.0

    def _seconds(self, events: int, length: int) -> float:
        inputs = blank(self._model.signature.at(length), events)
        took = []
        for _ in range(_TIMED_CALLS):
            started = time.perf_counter()
            self._executor.run(inputs)
            took.append(time.perf_counter() - started)
        return min(took)
