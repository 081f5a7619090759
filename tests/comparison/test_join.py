"""The join against what a dictionary of all events says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.consumers.comparison.chunks import COMPARISON_ROW, LABEL_ROW, Chunk, Rows
from millstream.consumers.comparison.join import Change, JoinSettings, PartitionJoin
from millstream.consumers.comparison.partials import Merge, Partial
from millstream.inference.evaluation import Summary
from millstream.schemas.comparisons import Pair, Variant

PAIR = Pair(Variant("m", 1, "primary"), Variant("m", 2))
OTHER = Pair(Variant("m", 1, "primary"), Variant("m", 3, "third"))
FOREVER = 1 << 62
SETTINGS = JoinSettings(window=1000, wait=500, early=10_000, most_events=100_000, threshold=0.5)
NOW = 10**12


def comparisons(ids: list[int], times: list[int], first: int, pair: int = 0) -> Rows:
    rows = np.zeros(len(ids), COMPARISON_ROW)
    rows["id"], rows["event_time"] = ids, times
    rows["position"] = np.arange(first, first + len(ids))
    rows["primary"] = rows["shadow"] = 0.5
    rows["pair"] = pair
    return rows


def labels(ids: list[int], first: int, value: float = 1.0) -> Rows:
    rows = np.zeros(len(ids), LABEL_ROW)
    rows["id"], rows["value"] = ids, value
    rows["position"] = np.arange(first, first + len(ids))
    return rows


def restored(settings: JoinSettings, table: dict[int, bytes]) -> PartitionJoin:
    return PartitionJoin.restored(settings, table, latest=FOREVER, known={PAIR, OTHER})


def a_merge(kept: int) -> Merge:
    return Merge(kept=kept, most_windows=1000, most_bytes=1_000_000, sources=2)


def update(join: PartitionJoin, now: int) -> tuple[list[Change], list[tuple[int, Pair, Partial]]]:
    """As the job's updates do."""
    partials = list(join.summaries())
    return join.clean_up(now), partials


def summaries(join: PartitionJoin, now: int = NOW) -> dict[int, Partial]:
    _, partials = update(join, now)
    return {start: partial for start, _, partial in partials}


def figures(partial: Partial) -> tuple[int, ...]:
    return (
        partial.summary.events,
        partial.summary.labelled,
        partial.duplicates,
        partial.early_labels,
        partial.late_labels,
        partial.repeated_labels,
    )


class JoinMachine(RuleBasedStateMachine):
    """Any order of comparisons and labels, and restarts that read some of them again."""

    def __init__(self) -> None:
        super().__init__()
        self.join = PartitionJoin(SETTINGS)
        self.table: dict[int, bytes] = {}
        self.latest: dict[int, Partial] = {}
        self.compared: dict[int, list[tuple[int, int]]] = {}  # id -> (position, window)
        self.labelled: dict[int, list[int]] = {}  # id -> positions
        self.next = {"comparisons": 0, "labels": 0}
        self.last: Any = None

    def write(self, changes: list[tuple[int, bytes | None]]) -> None:
        for number, packed in changes:
            if packed is None:
                self.table.pop(number, None)
            else:
                self.table[number] = packed

    @rule(ids=st.lists(st.integers(0, 15), min_size=1, max_size=6))
    def compare(self, ids: list[int]) -> None:
        first = self.next["comparisons"]
        self.next["comparisons"] += len(ids)
        self.last = ("comparisons", comparisons(ids, [100_000 + number % 3 * 1000 for number in ids], first))
        for number, position in zip(ids, range(first, first + len(ids)), strict=True):
            self.compared.setdefault(number, []).append((position, 100_000 + number % 3 * 1000))
        self.write(self.join.add_comparisons(self.last[1], [PAIR], NOW))

    @rule(ids=st.lists(st.integers(0, 20), min_size=1, max_size=6))
    def label(self, ids: list[int]) -> None:
        first = self.next["labels"]
        self.next["labels"] += len(ids)
        self.last = ("labels", labels(ids, first))
        for number, position in zip(ids, range(first, first + len(ids)), strict=True):
            self.labelled.setdefault(number, []).append(position)
        self.write(self.join.add_labels(self.last[1], NOW))

    @rule()
    def tick(self) -> None:
        changes, partials = update(self.join, NOW)
        self.write(changes)
        self.latest |= {start: partial for start, _, partial in partials}

    @rule(again=st.booleans())
    def restart(self, again: bool) -> None:
        """Killed before the last batch's offset was committed: it comes again."""
        self.join = restored(SETTINGS, self.table)
        if again and self.last is not None:
            kind, rows = self.last
            add = self.join.add_labels(rows, NOW) if kind == "labels" else self.join.add_comparisons(rows, [PAIR], NOW)
            self.write(add)

    @invariant()
    def says_what_the_dictionary_says(self) -> None:
        self.tick()
        events: Counter[int] = Counter()
        labelled: Counter[int] = Counter()
        duplicates: Counter[int] = Counter()
        for number, places in self.compared.items():
            window = places[0][1]
            events[window] += 1
            labelled[window] += number in self.labelled
            duplicates[window] += len(places) - 1
        for window, count in events.items():
            found = self.latest[window]
            assert (found.summary.events, found.summary.labelled, found.duplicates) == (
                count,
                labelled[window],
                duplicates[window],
            )
        assert sum(found.repeated_labels for found in self.latest.values()) == sum(
            len(places) - 1 for number, places in self.labelled.items() if number in self.compared
        )


TestJoin = JoinMachine.TestCase
TestJoin.settings = settings(max_examples=25, stateful_step_count=20)


@dataclass
class World:
    """A join with its table."""

    settings: JoinSettings = SETTINGS
    table: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.join = PartitionJoin(self.settings)

    def take(self, changes: list[tuple[int, bytes | None]]) -> None:
        for number, packed in changes:
            if packed is None:
                del self.table[number]
            else:
                self.table[number] = packed

    def compare(self, rows: Rows, pairs: tuple[Pair, ...] = (PAIR,)) -> None:
        self.take(self.join.add_comparisons(rows, pairs, NOW))

    def label(self, rows: Rows, now: int = NOW) -> None:
        self.take(self.join.add_labels(rows, now))

    def tick(self, now: int = NOW) -> dict[tuple[int, str], Partial]:
        changes, partials = update(self.join, now)
        self.take(changes)
        return {(start, pair.shadow.name): partial for start, pair, partial in partials}

    def restart(self) -> None:
        self.join = restored(self.settings, self.table)


def test_label_before_its_comparison_counts_and_is_early() -> None:
    world = World()
    world.label(labels([1, 2], 0))
    world.compare(comparisons([1, 3], [5000, 5000], 0))
    world.label(labels([3], 2))
    assert figures(world.tick()[5000, "shadow"]) == (2, 2, 0, 1, 0, 0)


def test_label_that_came_first_counts_wherever_it_stands_in_its_topic() -> None:
    world = World()
    world.compare(comparisons([1, 2], [5000, 5000], 0))
    world.label(labels([1], 900, 1.0))
    world.label(labels([1], 5, 0.0))  # in a lower partition
    world.label(labels([2], 901, 1.0))
    for _ in range(2):
        found = world.tick()[5000, "shadow"]
        assert (found.summary.labelled, found.repeated_labels) == (2, 1)
        assert (found.summary.primary.positive.total, found.summary.primary.negative.total) == (2, 0)
        world.restart()


def test_label_of_a_closed_window_is_late_and_does_not_count_also_after_a_restart() -> None:
    world = World()
    world.compare(comparisons([1, 2], [5000, 5000], 0))
    world.label(labels([1], 0))
    world.join.close(6500)
    assert world.tick()[5000, "shadow"].final
    world.label(labels([2], 1))
    for _ in range(2):
        found = world.tick()[5000, "shadow"]
        assert (figures(found), found.final) == ((2, 1, 0, 0, 1, 0), True)
        world.restart()


def test_window_closes_by_what_the_caller_says_and_not_by_the_comparisons_alone() -> None:
    world = World()
    world.compare(comparisons([1], [5000], 0))
    world.compare(comparisons([2], [50_000], 1))
    world.label(labels([1], 0))
    found = world.tick()[5000, "shadow"]
    assert (found.final, found.summary.labelled) == (False, 1)


def test_comparison_of_a_closed_window_is_left_out_and_counted() -> None:
    world = World()
    world.compare(comparisons([1], [5000], 0))
    world.join.close(6500)
    world.tick()
    world.compare(comparisons([2, 3], [5500, 5600], 1))
    assert world.tick() == {}
    assert world.join.counts["late"] == 2


def test_comparison_ahead_of_the_clock_is_left_out_and_counted() -> None:
    world = World()
    world.compare(comparisons([1, 2], [NOW + 10**9, NOW], 0))
    assert world.join.counts["ahead"] == 1
    assert world.join.watermark == NOW


def test_each_pair_is_by_itself() -> None:
    world = World()
    rows = np.concatenate([comparisons([1, 2], [5000, 5000], 0), comparisons([1], [5000], 2, pair=1)])
    world.compare(rows, (PAIR, OTHER))
    world.label(labels([1], 0))
    found = world.tick()
    assert figures(found[5000, "shadow"]) == (2, 1, 0, 0, 0, 0)
    assert figures(found[5000, "third"]) == (1, 1, 0, 0, 0, 0)


def test_labels_that_wait_too_long_are_unknown_and_let_go() -> None:
    world = World()
    world.compare(comparisons([1], [5000], 0))
    world.label(labels([1, 2, 3], 0))
    world.tick(NOW + SETTINGS.early)
    assert world.join.counts["unknown_labels"] == 2
    kept = [Chunk.unpack(number, packed, FOREVER) for number, packed in world.table.items()]
    assert [chunk.rows["id"].tolist() for chunk in kept if chunk.kind == "labels"] == [[1]]
    world.restart()
    assert figures(world.tick()[5000, "shadow"]) == (1, 1, 0, 0, 0, 0)


def test_label_whose_window_is_deleted_before_it_is_sifted_is_not_unknown() -> None:
    world = World()
    world.compare(comparisons([1], [5000], 0))
    world.label(labels([1, 2], 0))
    world.compare(comparisons([3], [9000], 1))
    world.tick()
    world.join.close(8000)  # after the end of the window of event 1
    world.tick()
    world.restart()
    world.tick(NOW + SETTINGS.early)
    assert world.join.counts["unknown_labels"] == 1  # event 2's


def test_crash_between_the_deletion_of_a_window_and_of_its_labels_makes_none_of_them_unknown() -> None:
    world = World()
    world.compare(comparisons([1], [5000], 0))
    world.label(labels([1], 0))
    world.compare(comparisons([3], [9000], 1))
    world.tick()
    world.join.close(8000)
    list(world.join.summaries())
    [first, *_] = world.join.clean_up(NOW)
    number, packed = first
    assert packed is not None
    world.table[number] = packed  # the only change that reached the changelog
    world.restart()
    world.tick()
    world.tick(NOW + SETTINGS.early)
    assert world.join.counts["unknown_labels"] == 0
    kept = [Chunk.unpack(number, packed, FOREVER) for number, packed in world.table.items()]
    assert not [chunk for chunk in kept if chunk.kind == "labels"]


def test_process_taken_for_gone_writes_over_nothing_and_what_it_adds_counts_once() -> None:
    table: dict[int, bytes] = {}
    rows = [comparisons([number], [5000], number) for number in range(4)]
    gone, successor = PartitionJoin(SETTINGS, writer=7), PartitionJoin(SETTINGS, writer=5)
    for changes in (
        gone.add_comparisons(rows[0], [PAIR], NOW),
        successor.add_comparisons(np.concatenate(rows[:2]), [PAIR], NOW),
        successor.add_comparisons(rows[2], [PAIR], NOW),
        gone.add_comparisons(rows[1], [PAIR], NOW),
        gone.add_comparisons(rows[3], [PAIR], NOW),
    ):
        assert not {number for number, _ in changes} & table.keys()
        table |= {number: packed for number, packed in changes if packed}
    [found] = summaries(restored(SETTINGS, table)).values()
    assert figures(found) == (4, 0, 0, 0, 0, 0)


def test_nothing_is_kept_of_forgotten_windows_but_how_far_it_was() -> None:
    world = World()
    for number in range(20):
        world.compare(comparisons([number], [5000 + 1000 * number], number))
        world.label(labels([number], number))
    world.join.close(10**6)
    world.tick(NOW + SETTINGS.early)
    world.tick(NOW + SETTINGS.early)
    assert len(world.table) == 1
    world.restart()
    assert world.join.watermark == 24_000


def test_full_window_keeps_a_random_half_and_counts_the_rest() -> None:
    world = World(JoinSettings(window=10**6, wait=0, early=1000, most_events=1000, threshold=0.5))
    ids = np.random.default_rng(1).integers(0, 2**63, 5000).astype(np.uint64) * 2
    for first in range(0, 5000, 250):
        part = ids[first : first + 250].tolist()
        world.compare(comparisons(part, [5000] * 250, first))
    for _ in range(2):
        [found] = world.tick().values()
        assert found.summary.events + found.thinned == 5000
        assert 400 <= found.summary.events <= 1000
        stored = sum(len(Chunk.unpack(number, packed, FOREVER).rows) for number, packed in world.table.items())
        assert stored == found.summary.events
        world.restart()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=30))
def test_merge_adds_the_newest_part_of_each_source(steps: list[tuple[int, int, int]]) -> None:
    merge = a_merge(kept=10**6)
    newest: dict[tuple[int, int], int] = {}
    results: dict[int, int] = {}
    for window, source, events in steps:
        merge.put(window, PAIR, source, Partial(Summary(events=events)).pack(), latest=FOREVER)
        newest[window, source] = events
        results |= {start: whole.summary.events for start, _, whole in merge.results()}
    for window in {window for window, _, _ in steps}:
        assert results[window] == sum(events for (at, _), events in newest.items() if at == window)


def test_merge_forgets_a_window_when_no_source_will_say_more() -> None:
    merge = a_merge(kept=100)
    for source in (0, 1):
        merge.put(1000, PAIR, source, Partial(Summary(events=1), deleted=0).pack(), latest=FOREVER)
    assert list(merge.results()) != []
    merge.put(5000, PAIR, 0, Partial(Summary(events=1), deleted=1100).pack(), latest=FOREVER)
    assert merge.forget(NOW) == []
    merge.put(5000, PAIR, 1, Partial(Summary(events=1), deleted=1100).pack(), latest=FOREVER)
    list(merge.results())
    assert merge.forget(NOW) == [(1000, PAIR, 0), (1000, PAIR, 1)]


def test_final_where_every_source_is() -> None:
    merge = a_merge(kept=100)
    for source, final in ((0, True), (1, False)):
        merge.put(1000, PAIR, source, Partial(Summary(events=1), final=final).pack(), latest=FOREVER)
    assert [whole.final for _, _, whole in merge.results()] == [False]


def test_partial_travels_whole() -> None:
    world = World()
    world.compare(comparisons([1, 2, 3], [5000] * 3, 0))
    world.label(labels([1], 0, 1.0))
    world.label(labels([2], 1, 0.0))
    [partial] = world.tick().values()
    assert repr(Partial.unpack(partial.pack(), 1_000_000)) == repr(partial)
