"""What was published of a window loses no rows: its partitions close at different times, are killed, and come late."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.comparison.closing_job import SOURCES, ClosingJob


@pytest.fixture
def job(tmp_path: Path) -> ClosingJob:
    return ClosingJob(tmp_path)


def compare_everywhere(job: ClosingJob, *windows: int) -> None:
    for source in range(SOURCES):
        job.compare(source, *windows)


def test_windows_that_close_at_once_while_their_parts_are_in_transit(job: ClosingJob) -> None:
    compare_everywhere(job, 1, 2, 3)
    job.update()
    compare_everywhere(job, 1, 2, 3, 50)
    for source in range(SOURCES):
        job.close(source, 10)
        job.send(source)
        job.clean_up(source)
    while job.read < len(job.sent):
        job.deliver(1)
        job.publish()
        job.forget()
    assert job.newest() == {1: 6, 2: 6, 3: 6, 50: 3}
    assert job.left_out("late") == 0


def test_partition_that_comes_when_the_others_are_done(job: ClosingJob) -> None:
    for source in (0, 1):
        job.compare(source, 1, 2)
        job.close(source, 10)
    for window in (50, 51, 52):
        job.compare(0, window)
        job.compare(1, window)
        job.update()
    job.compare(2, 1, 2)
    job.update()
    assert job.newest() == {1: 3, 2: 3, 50: 2, 51: 2, 52: 2}


def test_windows_leave_the_table_once_all_partitions_have_deleted_them(job: ClosingJob) -> None:
    for window in range(1, 30):
        compare_everywhere(job, window)
        for source in range(SOURCES):
            job.close(source, window - 2)
        job.update()
    job.kill_merge()
    job.publish()
    assert job.windows_kept() == [27, 28, 29]


def test_partition_that_is_killed_before_it_deletes_the_rows_of_sent_parts(job: ClosingJob) -> None:
    compare_everywhere(job, 1)
    compare_everywhere(job, 50)
    for source in range(SOURCES):
        job.close(source, 10)
    job.send(0)
    job.kill_join(0)
    for _ in range(2):
        job.compare(1, 50)
        job.compare(2, 50)
        job.update(1, 2)
    job.update()
    assert job.newest() == {1: 3, 50: 7}


def test_window_stays_deleted_though_another_keeps_one_of_its_chunks(job: ClosingJob) -> None:
    compare_everywhere(job, 1)
    compare_everywhere(job, 1, 50)
    job.update()
    job.close(0, 1)  # the very time at which it is due
    job.update()
    job.kill_join(0)
    job.update()
    assert job.newest() == {1: 6, 50: 3}


def test_window_stays_deleted_when_the_chunk_that_was_the_newest_is_gone(job: ClosingJob) -> None:
    compare_everywhere(job, 1, 50)
    compare_everywhere(job, 1)
    job.update()
    job.close(0, 1)
    job.update()
    job.compare(0, 50)
    job.update()
    assert len(job.chunks[0]) == 2
    job.kill_join(0)
    job.update()
    assert job.newest() == {1: 6, 50: 4}


def test_comparison_of_a_deleted_window_is_late_after_a_kill_too(job: ClosingJob) -> None:
    compare_everywhere(job, 1, 50)
    job.update()
    job.close(0, 1)
    job.update()
    job.kill_join(0)
    job.compare(0, 1)
    job.update()
    assert job.newest() == {1: 3, 50: 3}
    assert job.left_out("late") == 1


def test_parts_that_are_read_again_after_a_kill_end_in_the_newest_result(job: ClosingJob) -> None:
    compare_everywhere(job, 1)
    job.update()
    first = job.read
    compare_everywhere(job, 1, 50)
    for source in range(SOURCES):
        job.close(source, 10)
    for _ in range(2):
        for source in range(SOURCES):
            job.compare(source, 50)
            job.send(source)
            job.clean_up(source)
        job.deliver()
    job.kill_merge()
    while job.read < len(job.sent):
        job.deliver(1 if job.read >= first else first)
        job.publish()
        job.forget()
    assert job.newest() == {1: 6, 50: 9}
    assert job.windows_kept() == [50]


def test_window_that_is_gone_stays_gone_after_a_kill(job: ClosingJob) -> None:
    for window in (1, 50):
        compare_everywhere(job, window)
    for source in range(SOURCES):
        job.close(source, 10)
    late = job.sent
    job.update()
    late = job.sent[:1]
    compare_everywhere(job, 50)
    job.update()
    assert job.windows_kept() == [50]
    job.commit()
    job.kill_merge()
    job.sent += late
    job.update()
    assert job.newest() == {1: 3, 50: 6}
    assert job.left_out("late") == 1
    assert job.windows_kept() == [50]


def test_merge_that_is_killed_while_it_deletes_a_window_shows_no_part_of_it(job: ClosingJob) -> None:
    compare_everywhere(job, 1)
    job.update()
    compare_everywhere(job, 50)
    job.close_everywhere(10, newer=50)
    job.commit()
    job.publish()
    job.forget(2)
    job.kill_merge()
    job.publish()
    job.forget()
    assert job.newest() == {1: 3, 50: 6}
    assert job.windows_kept() == [50]


@pytest.mark.parametrize("entry", [b"junk", b"-1", b"%d" % 2**62])
def test_entry_that_can_not_be_is_counted_and_holds_nothing_up(job: ClosingJob, entry: bytes) -> None:
    job.parts[b"0/forgotten"] = entry
    job.kill_merge()
    for window in (1, 50):
        compare_everywhere(job, window)
        job.update()
    for source in range(SOURCES):
        job.close(source, 10)
    job.update()
    compare_everywhere(job, 50)
    job.update()
    assert job.newest() == {1: 3, 50: 6}
    assert job.left_out("damaged") == 1
    assert job.parts[b"0/forgotten"] == b"%d" % (job.settings.window + 1)


class ClosingMachine(RuleBasedStateMachine):
    """Any order of rows, closing, deliveries and kills."""

    def __init__(self) -> None:
        super().__init__()
        with tempfile.TemporaryDirectory() as folder:
            self.job = ClosingJob(Path(folder))
        self.closed = [0] * SOURCES  # due for deletion: the windows up to this one
        self.expected: Counter[int] = Counter()  # window -> events

    sources = st.integers(0, SOURCES - 1)
    few = st.integers(0, 3)

    @rule(source=sources, ahead=st.lists(st.integers(2, 4), min_size=1, max_size=3), crash=st.none() | few)
    def compare(self, source: int, ahead: list[int], crash: int | None) -> None:
        """A batch; after a crash, it is read again."""
        windows = [self.closed[source] + each for each in ahead]
        self.expected.update(windows)
        rows = self.job.rows(*windows)
        if crash is not None:
            self.job.write_rows(source, rows, crash)
            self.job.kill_join(source)
        self.job.write_rows(source, rows)

    @rule(source=sources, windows=st.integers(1, 3))
    def close(self, source: int, windows: int) -> None:
        self.closed[source] += windows
        self.job.close(source, self.closed[source])

    @rule(source=sources, crash=st.none() | few)
    def update_join(self, source: int, crash: int | None) -> None:
        self.job.send(source)
        if crash is None:
            self.job.clean_up(source)
        else:
            self.job.clean_up(source, crash)
            self.job.kill_join(source)

    @rule(parts=few)
    def deliver(self, parts: int) -> None:
        self.job.deliver(parts)

    @rule()
    def commit(self) -> None:
        self.job.commit()

    @rule(crash=st.none() | few)
    def update_merge(self, crash: int | None) -> None:
        self.job.publish()
        if crash is None:
            self.job.forget()
        else:
            self.job.forget(crash)
            self.job.kill_merge()

    @rule()
    def all_goes_through(self) -> None:
        self.job.deliver()
        for _ in range(2):
            self.job.update()
        assert self.job.newest() == dict(sorted(self.expected.items()))

    def teardown(self) -> None:
        self.all_goes_through()


TestClosing = ClosingMachine.TestCase
TestClosing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
