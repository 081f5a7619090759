"""What the join keeps where somebody writes to fill it, and what it takes of a changelog that others wrote to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from millstream.consumers.comparison.chunks import COMPARISON_ROW, LABEL_ROW, Chunk
from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.consumers.comparison.join import (
    LABELS_TO_EVENTS,
    MAX_AHEAD_MS,
    WRITER_NUMBERS,
    JoinSettings,
    PartitionJoin,
)
from millstream.consumers.comparison.matching import Labels
from tests.comparison.test_join import (
    FOREVER,
    NOW,
    OTHER,
    PAIR,
    SETTINGS,
    World,
    a_merge,
    comparisons,
    figures,
    labels,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.consumers.comparison.partials import Partial
    from millstream.schemas.comparisons import Pair

MOST = SETTINGS.most_windows
SMALL = JoinSettings(window=1000, wait=500, early=0, most_events=100, threshold=0.5)


def label_chunks(world: World) -> list[Chunk]:
    """Those that the changelog has."""
    chunks = [Chunk.unpack(number, packed, NOW) for number, packed in sorted(world.table.items())]
    return [chunk for chunk in chunks if chunk.kind == "labels"]


def test_oldest_windows_close_where_event_times_open_too_many() -> None:
    world = World()
    world.compare(comparisons([1], [NOW], 0))
    for first in range(0, 20 * MOST, 500):
        times = [NOW - 1000 * number for number in range(first, first + 500)]
        world.compare(comparisons(list(range(500)), times, first))
        assert len(world.join._windows) <= 2 * MOST + 500
    found = world.tick()
    assert len(found) <= MOST + 1
    assert world.join.counts["late"] >= 18 * MOST
    newest = found[NOW - NOW % 1000, "shadow"]
    assert (newest.summary.events, newest.final) == (2, False)


def test_windows_that_come_one_after_the_other_leave_nothing_behind() -> None:
    world = World()
    for first in range(0, 20 * MOST, 500):
        times = [1_000_000 + 1000 * number for number in range(first, first + 500)]
        world.compare(comparisons(list(range(500)), times, first))
        assert len(world.join._windows) <= 2 * MOST + 500
        assert len(world.join._events) == len(world.join._windows)
        assert len(world.table) <= (2 * MOST + 500) / 500 + 2
    found = world.tick()
    assert len(found) <= 2 * MOST + 500
    shown = sum(partial.summary.events for partial in found.values())
    assert shown + world.join.counts["late"] == len(range(0, 20 * MOST, 500)) * 500, "what has no result is counted"


def test_windows_that_close_early_during_an_update_keep_the_comparisons_of_all_partitions() -> None:
    starts = [5000, 6000, 7000]
    merge = a_merge(kept=2 * SETTINGS.window + SETTINGS.wait)
    worlds = [World(), World()]
    results: dict[int, int] = {}

    def send(source: int, parts: Iterable[tuple[int, Pair, Partial]]) -> None:
        for start, pair, partial in parts:
            merge.put(start, pair, source, partial.pack(), latest=FOREVER)

    def merged() -> None:
        results.update({start: whole.summary.events for start, _, whole in merge.results()})
        merge.forget(NOW)

    for source, world in enumerate(worlds):
        world.compare(comparisons([1, 2, 3], starts, 0))
        send(source, world.join.summaries())
    merged()
    worlds[1].compare(comparisons([4], [NOW], 3))
    worlds[1].join.close(NOW)
    send(1, worlds[1].join.summaries())
    worlds[0].compare(comparisons([5, 6, 7], starts, 3))
    update = worlds[0].join.summaries()
    send(0, [next(update)])
    worlds[0].compare(comparisons(list(range(MOST)), [NOW - 1000 * number for number in range(MOST)], 6))
    send(0, update)
    merged()
    send(0, worlds[0].join.summaries())
    merged()
    assert [results[start] for start in starts] == [3, 3, 3]


def test_windows_that_close_early_during_an_update_keep_their_labels() -> None:
    world = World()
    world.compare(comparisons([1, 2], [5000, 5000], 0))
    world.label(labels([1, 2], 0))
    world.tick(NOW + SETTINGS.early)
    update = world.join.summaries()
    assert list(update) == []
    times = [NOW - 1000 * number for number in range(MOST)]
    world.compare(comparisons(list(range(MOST)), times, 2))
    world.take(world.join.clean_up(NOW))
    assert figures(world.tick()[5000, "shadow"])[:2] == (2, 2)


def test_what_is_deleted_while_an_update_runs_stays_deleted_after_it() -> None:
    world = World()
    update = world.join.summaries()
    for batches_before in (2, 1, 0):
        newest = NOW - 1000 * MOST * batches_before
        world.compare(comparisons(list(range(MOST)), [newest - 1000 * number for number in range(MOST)], 0))
        next(update, None)
    world.take(world.join.clean_up(NOW))
    oldest = NOW - 1000 * (MOST - 1)
    assert {partial.deleted for _, _, partial in world.join.summaries()} == {oldest + SETTINGS.wait}


def test_chunk_that_is_halved_still_says_which_windows_are_deleted() -> None:
    world = World(SMALL)
    world.compare(comparisons([1, 2], [5000, 50_000], 0))
    world.join.close(7500)
    world.tick()
    world.compare(comparisons(list(range(10, 210)), [50_000] * 200, 2))
    chunk = Chunk.unpack(0, world.table[0], NOW)
    assert chunk.deleted == 7500
    assert chunk.halvings


def test_events_that_a_result_has_are_not_late_if_their_window_goes_before_its_next_summary() -> None:
    world = World()
    world.compare(comparisons([1, 2], [5000, 5000], 0))
    results = world.tick()
    world.compare(comparisons([3], [5000], 2))
    for newest in (NOW - 1000 * MOST, NOW):
        times = [newest - 1000 * number for number in range(MOST)]
        world.compare(comparisons(list(range(MOST)), times, 3))
    results |= world.tick()
    assert results[5000, "shadow"].summary.events == 2
    assert sum(partial.summary.events for partial in results.values()) + world.join.counts["late"] == 3 + 2 * MOST


def test_windows_that_may_be_open_now_are_never_too_many() -> None:
    for settings in (SETTINGS, replace(SETTINGS, window=3_600_000, wait=0), replace(SETTINGS, wait=10**6)):
        world = World(settings)
        times = list(range(NOW + MAX_AHEAD_MS, NOW - settings.wait - settings.window, -settings.window))
        world.compare(comparisons(list(range(len(times))), times, 0))
        world.compare(comparisons(list(range(2000)), [NOW - settings.window * n for n in range(2000)], len(times)))
        late = world.join.counts["late"]
        world.compare(comparisons(list(range(len(times))), times, 2000 + len(times)))
        assert world.join.counts["late"] == late


@pytest.mark.parametrize("time", [-(2**63), -(2**63) + 999, -1, 2**63 - 1, 2**62, NOW + MAX_AHEAD_MS + 1])
def test_event_time_that_can_not_be_changes_nothing(time: int) -> None:
    world = World()
    world.compare(comparisons([1], [NOW], 0))
    world.compare(comparisons([2], [time], 1))
    assert world.join.watermark == NOW
    assert list(world.tick()) == [(NOW, "shadow")]
    assert world.join.counts["ahead"] + world.join.counts["late"] == 1


def test_labels_of_the_same_events_again_and_again_are_let_go() -> None:
    world = World(SMALL)
    world.compare(comparisons([1, 2], [5000, 5000], 0))
    for number in range(200):
        world.label(labels([1, 1, 2] * 50, 150 * number, float(number == 0)))
        world.tick()
        assert sum(len(chunk.rows) for chunk in label_chunks(world)) <= 2 * LABELS_TO_EVENTS * SMALL.most_events
    assert world.join.counts["repeated_labels"] > 100 * 150
    found = Labels.of(label_chunks(world))
    assert (found.ids.tolist(), found.values.tolist()) == ([1, 2], [1.0, 1.0])
    world.restart()
    [partial] = world.tick().values()
    assert (partial.summary.labelled, partial.repeated_labels > 0) == (2, True)


def test_many_chunks_of_few_labels_count_for_more_than_their_rows() -> None:
    world = World(replace(SMALL, early=10**9))
    for number in range(500):
        world.label(labels([number], number))
    world.tick()
    assert len(world.table) <= LABELS_TO_EVENTS * SMALL.most_events / 20


def test_one_event_again_and_again_fills_no_window_for_ever() -> None:
    world = World(SMALL)
    for first in range(0, 500, 100):
        world.compare(comparisons([0] * 100, [5000] * 100, first))  # no halving leaves a hash of 0 out
    assert figures(world.tick()[5000, "shadow"])[0] == 1


def test_rows_of_pairs_that_the_file_does_not_name_any_more_are_left_out_of_what_is_restored() -> None:
    world = World()
    rows = np.concatenate([comparisons([1, 2], [5000, 5000], 0), comparisons([3], [5000], 2, pair=1)])
    world.compare(rows, (PAIR, OTHER))
    world.join = PartitionJoin.restored(SETTINGS, world.table, latest=FOREVER, known={OTHER})
    assert {name: partial.summary.events for (_, name), partial in world.tick().items()} == {"third": 1}


def test_record_of_the_changelog_that_is_no_chunk_is_counted_and_let_go() -> None:
    world = World()
    world.compare(comparisons([1], [5000], 0))
    world.table |= {
        5 * WRITER_NUMBERS: b"junk",
        6 * WRITER_NUMBERS: Chunk("labels", 6, 2**61, 0, 0, labels([], 0)).pack(),
    }
    world.join = PartitionJoin.restored(SETTINGS, world.table, latest=NOW, known={PAIR})
    assert (world.join.counts["damaged"], world.join.watermark) == (2, 5000)
    assert figures(world.tick()[5000, "shadow"])[0] == 1
    assert list(world.table) == [0]


def a_chunk(**fields: Any) -> Chunk:
    return replace(Chunk("comparisons", 1, 5000, 0, 5000, comparisons([1], [5000], 0), (PAIR,)), **fields)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 10_000,
        msgspec.msgpack.encode([]),
        a_chunk(kind="others").pack(),
        a_chunk(watermark=-1).pack(),
        a_chunk(watermark=NOW + 1).pack(),
        a_chunk(closed=2**62).pack(),
        a_chunk(deleted=NOW + 1).pack(),
        a_chunk(pairs=()).pack(),
        a_chunk(rows=comparisons([1], [NOW + 1], 0)).pack(),
        a_chunk(rows=comparisons([1], [-1], 0)).pack(),
        a_chunk(rows=np.zeros(1, np.dtype("<u8"))).pack(),
        a_chunk(halvings={5000: 65}).pack(),
        a_chunk(halvings={2**62: 1}).pack(),
        a_chunk(thinned={-1: 1}).pack(),
        a_chunk(thinned={5000: -1}).pack(),
        a_chunk().pack()[:-1],
        a_chunk().pack() + b"\0",
    ],
)
def test_bytes_that_are_no_chunk_are_refused(packed: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        Chunk.unpack(1, packed, NOW)


def test_chunk_travels_whole() -> None:
    chunk = a_chunk(halvings={5000: 3}, thinned={5000: 7}, until=9, deleted=4000)
    assert repr(Chunk.unpack(1, chunk.pack(), NOW)) == repr(chunk)
    assert COMPARISON_ROW.itemsize != LABEL_ROW.itemsize
