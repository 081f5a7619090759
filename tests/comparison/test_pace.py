from millstream.consumers.comparison.pace import CHECKS_UNTIL_BEHIND, TARGET_UTILISATION, Pace
from millstream.consumers.comparison.progress import LabelProgress
from millstream.topics.lag import PartitionLag


def looks(arriving: int, managing: int, count: int, lag: int = 0) -> list[float | None]:
    pace, done, found = Pace(), 0, []
    for second in range(count):
        found.append(pace.look(float(second), done, lag))
        done += min(managing, lag + arriving)
        lag = max(lag + arriving - managing, 0)
    return found


def test_job_that_keeps_up_is_left_alone() -> None:
    assert set(looks(1000, 3000, 20)) == {None}


def test_backlog_that_shrinks_is_no_reason_to_sample_less() -> None:
    assert set(looks(1000, 3000, 20, lag=10**6)) == {None}


def test_share_that_fits_is_what_the_job_manages_of_what_arrives() -> None:
    found = looks(4000, 1000, 20)
    assert found[:CHECKS_UNTIL_BEHIND] == [None] * CHECKS_UNTIL_BEHIND
    assert found[-1] == TARGET_UTILISATION * 1000 / 4000


def test_restart_of_the_count_is_a_new_start() -> None:
    pace = Pace()
    for second in range(10):
        pace.look(float(second), 1000 * second, 100_000 * second)
    assert pace.look(10.0, 0, 10**6) is None


def lag(topic: str, committed: int | None, end: int) -> PartitionLag:
    left = end - (committed or 0)
    return PartitionLag(topic, 0, committed, committed or 0, end, left, counted=True, seconds=None, deleted=0)


def test_watermarks_count_once_the_labels_written_before_them_are_joined() -> None:
    progress = LabelProgress("labels", "by-event")
    assert progress.look([lag("labels", None, 10), lag("by-event", None, 0)], {0: 500}) == {}
    assert progress.look([lag("labels", 9, 30), lag("by-event", 0, 2)], {0: 900}) == {}
    assert progress.look([lag("labels", 10, 40), lag("by-event", 0, 2)], {0: 950}) == {}
    assert progress.look([lag("labels", 11, 40), lag("by-event", 1, 5)], {0: 960}) == {}
    assert progress.look([lag("labels", 11, 40), lag("by-event", 2, 5)], {0: 970}) == {0: 500}
    assert progress.look([lag("labels", 40, 40), lag("by-event", 5, 5)], {0: 980}) == {0: 980}


def test_no_labels_at_all_hold_nothing_up() -> None:
    progress = LabelProgress("labels", "by-event")
    assert progress.look([lag("labels", None, 0), lag("by-event", None, 0)], {0: 7}) == {0: 7}
