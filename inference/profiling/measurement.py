"""Measures calls of executors with batches of several sizes. The sizes take turns, so that noise hits all alike."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.inference.errors import ModelRejected, OutOfMemory
from millstream.inference.executors.by_length import ByLength
from millstream.inference.executors.interface import Inputs, ModelExecutor, join_rows, rows_between, rows_of
from millstream.inference.profiling.memory import MemoryPeak, gpu_memory, resident_memory
from millstream.inference.profiling.size_profile import SizeProfile, figures

ROUNDS = 10  # in each round, every size has one turn
_WARM_UP_CALLS = 2  # of each size, at least: the first one allocates memory
_WARM_UP_SECONDS = 0.2  # of each size, where that allows more calls
_DIFFERENT_BATCHES = 8  # of each size, where there are enough events
_SEED = 1  # of the order of turns


@dataclass(slots=True)
class Candidate:
    """An executor with a batch size, and what was measured of it so far."""

    label: str  # which executor
    executor: ModelExecutor
    events: int  # in a call
    turns: list[list[float]] = field(default_factory=list)  # seconds of each call, by turn
    memory: int | None = None
    gpu_memory: int | None = None
    padding: float | None = None
    refused: str = ""  # why this size can't run; empty: it can

    def profile(self) -> SizeProfile:
        """The figures so far; at least one turn has been measured."""
        calls, rate, p50, p99 = figures(self.turns, self.events)
        return SizeProfile(self.label, self.events, calls, rate, p50, p99, self.memory, self.gpu_memory, self.padding)


def measure(
    candidates: Sequence[Candidate], events: Inputs, *, seconds: float, after_turn: Callable[[], None] = lambda: None
) -> None:
    """Measure all candidates. Those that can't run get the reason in `refused`.

    Args:
        candidates: those of one executor are together, ascending in size. Their results are written into them.
        events: the model's inputs; at least one event. Batches are taken from them in turn, from the start again at their end.
        seconds: how long to measure, without the warm-up. Each candidate gets at least one turn, even if that takes longer.
        after_turn: called after each turn, for a display.

    Raises:
        ExecutorUnavailable: an executor can't run.
    """
    batches = {candidate.events: _batches(events, candidate.events) for candidate in candidates}
    _warm_up(candidates, batches)
    able = [candidate for candidate in candidates if not candidate.refused]
    if not able:
        return
    end = time.perf_counter() + seconds
    a_turn = seconds / (len(able) * ROUNDS)
    order = random.Random(_SEED)
    rounds = 0
    while rounds == 0 or time.perf_counter() < end:
        for candidate in order.sample(able, len(able)):
            if rounds and time.perf_counter() >= end:
                return
            candidate.turns.append(_turn(candidate, batches[candidate.events], a_turn))
            after_turn()
        rounds += 1


def sizes_to_measure(max_events: int, preferred: Sequence[int]) -> list[int]:
    """1, 2, 4, ... up to `max_events`, `max_events` itself, and the sizes that the model's config.yaml prefers; ascending."""
    doubled = {1 << power for power in range(max_events.bit_length()) if 1 << power <= max_events}
    return sorted({*doubled, max_events, *preferred})


def sizes_to_compare(smallest: int, largest: int) -> list[int]:
    """The smallest size, the largest one, and a power of two in the middle, which batches have under usual load; ascending."""
    middle = 1 << round(math.log2(smallest * largest) / 2)
    return sorted({smallest, min(max(middle, smallest), largest), largest})


def _turn(candidate: Candidate, batches: Sequence[Inputs], seconds: float) -> list[float]:
    """The seconds of each call. The first call doesn't count: before it, other sizes have filled the processor's caches."""
    run, place = candidate.executor.run, len(candidate.turns)
    run(batches[place % len(batches)])
    calls: list[float] = []
    started = now = time.perf_counter()
    while not calls or now - started < seconds:
        place += 1
        batch = batches[place % len(batches)]
        before = time.perf_counter()
        run(batch)
        now = time.perf_counter()
        calls.append(now - before)
    return calls


def _warm_up(candidates: Sequence[Candidate], batches: dict[int, list[Inputs]]) -> None:
    """Run each candidate without measuring its time, and note its memory."""
    before = before_gpu = None
    last: ModelExecutor | None = None
    for candidate in candidates:
        executor = candidate.executor
        if executor is not last:
            last, before = executor, resident_memory()
            before_gpu = None if executor.device == "cpu" else gpu_memory()
            if isinstance(executor, ByLength):
                executor.warm_up()  # measures what it needs to group events; others grow with their own batches only
        peak = MemoryPeak()
        try:
            _run_for_a_while(executor, batches[candidate.events])
        except (ModelRejected, OutOfMemory) as error:
            candidate.refused = str(error)
            continue
        candidate.memory = _growth(peak.bytes(), before)
        candidate.gpu_memory = None if executor.device == "cpu" else _growth(gpu_memory(), before_gpu)
        candidate.padding = _padding(executor, batches[candidate.events])


def _run_for_a_while(executor: ModelExecutor, batches: Sequence[Inputs]) -> None:
    calls, end = 0, time.perf_counter() + _WARM_UP_SECONDS
    while calls < _WARM_UP_CALLS or time.perf_counter() < end:
        executor.run(batches[calls % len(batches)])
        calls += 1


def _growth(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(now - before, 0)


def _padding(executor: ModelExecutor, batches: Sequence[Inputs]) -> float | None:
    """The share of items that are padding, over these batches; None: no input varies in length."""
    if not isinstance(executor, ByLength):
        return None
    counts = [executor.items_of(batch) for batch in batches]
    own, padded = (sum(column) for column in zip(*counts, strict=True))
    return 1 - own / padded if padded else 0.0


def _batches(events: Inputs, size: int) -> list[Inputs]:
    """Some batches of this size. If there are fewer events than that, they occur several times in a batch."""
    there = rows_of(events)
    count = min(_DIFFERENT_BATCHES, max(there // size, 1))
    return [_joined(_parts(events, place * size, size, there)) for place in range(count)]


def _joined(parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return join_rows(list(parts))


def _parts(events: Inputs, start: int, size: int, there: int) -> Iterator[dict[str, Any]]:
    while size:
        stop = min(start + size, there)
        yield rows_between(events, start, stop)
        size, start = size - (stop - start), 0
