"""What the supervisor does about workers that end; tests/cli/test_run.py has it do so with real ones."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from millstream.consumers.errors import NEEDS_CHANGE, WorkersFailed, WorkersStopped
from millstream.consumers.supervision.restarts import LOOP, STEADY
from millstream.consumers.supervision.supervisor import GIVE_UP, Supervisor

DRAIN = 20.0  # seconds


class Scripted:
    """A worker that ends when the test says so."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: int | None = None
        self.was_ready = self.told_totals = False
        self.told: list[str] = []

    def status(self) -> int | None:
        return self.ended

    def log_end(self) -> str:
        return f"    last words of {self.pid}"

    def message(self) -> str:
        return f"    why {self.pid} ended"

    def drain(self) -> None:
        self.told.append("drain")

    def kill(self) -> None:
        self.told.append("kill")
        self.ended = -signal.SIGKILL

    def scrape(self) -> str | None:
        return None

    def readiness(self) -> str | None:
        return None


class Floor:
    """A supervisor and all workers it ever started, by number."""

    def __init__(self, on_start: Callable[[Scripted], None] = lambda _: None, *, misread: bool = False) -> None:
        self.started: list[tuple[int, Scripted]] = []
        self.said: list[str] = []
        self._on_start = on_start
        self.supervisor = Supervisor(self._start, misread=lambda _: misread, drain_timeout=DRAIN, say=self.said.append)

    def _start(self, number: int) -> Scripted:
        worker = Scripted(100 + len(self.started))
        self._on_start(worker)
        self.started.append((number, worker))
        return worker

    def latest(self, number: int) -> Scripted:
        return [worker for started, worker in self.started if started == number][-1]


def test_ended_worker_is_started_again_with_its_number_after_its_back_off() -> None:
    floor = Floor()
    floor.supervisor.resize(2, 0.0)
    floor.supervisor.note_ready()
    floor.latest(0).ended = 1
    floor.supervisor.tick(10.0)
    assert (floor.supervisor.size, floor.supervisor.running) == (2, 1)
    assert floor.said == ["worker 0 (pid 100) ended with status 1; it restarts in 1 s"]
    floor.supervisor.tick(10.9)
    assert len(floor.started) == 2
    floor.supervisor.tick(11.1)
    assert [number for number, _ in floor.started] == [0, 1, 0]
    assert (floor.supervisor.running, floor.supervisor.restarts) == (2, 1)


def test_shrinking_drains_the_highest_and_growing_takes_free_numbers() -> None:
    floor = Floor()
    floor.supervisor.resize(3, 0.0)
    floor.supervisor.resize(1, 1.0)
    assert [floor.latest(number).told for number in range(3)] == [[], ["drain"], ["drain"]]
    assert (floor.supervisor.size, floor.supervisor.draining) == (1, 2)
    floor.latest(1).ended = 0
    floor.supervisor.tick(2.0)
    floor.supervisor.resize(3, 2.0)  # worker 2 still drains, and two workers can't have one number
    assert [number for number, _ in floor.started] == [0, 1, 2, 1, 3]
    assert floor.said == []


def test_worker_that_does_not_end_in_time_is_killed_and_that_is_said() -> None:
    floor = Floor()
    floor.supervisor.resize(1, 0.0)
    floor.supervisor.resize(0, 1.0)
    floor.supervisor.tick(DRAIN)
    assert floor.latest(0).told == ["drain"]
    floor.supervisor.tick(DRAIN + 1.1)
    assert floor.latest(0).told == ["drain", "kill"]
    assert (floor.supervisor.draining, len(floor.said)) == (0, 1)
    assert "was killed; its events in flight are read again" in floor.said[0]


def test_draining_worker_is_not_started_again() -> None:
    floor = Floor()
    floor.supervisor.resize(2, 0.0)
    floor.supervisor.resize(1, 1.0)
    floor.latest(1).ended = 1
    for second in range(2, 60):
        floor.supervisor.tick(float(second))
    assert len(floor.started) == 2
    assert floor.said == ["worker 1 (pid 101) ended with status 1 while it drained"]


def test_crash_loop_is_said_once_with_the_log_and_the_others_go_on() -> None:
    floor = Floor()
    floor.supervisor.resize(2, 0.0)
    floor.supervisor.note_ready()
    for second in range(200):
        if floor.supervisor.workers().get(0) is not None:
            floor.latest(0).ended = 1
        floor.supervisor.tick(float(second))
    loops = [sentence for sentence in floor.said if "crash loop" in sentence]
    assert len(loops) == 1
    assert f"it ended {LOOP} times in" in loops[0]
    assert "last words of" in loops[0]
    assert floor.supervisor.looping == [0]
    assert floor.latest(1).told == []
    assert 8 <= floor.supervisor.restarts <= 12  # 1, 2, 4, 8, 16 and then every 30 s


def test_crash_loop_ends_with_a_minutes_work() -> None:
    floor = Floor()
    floor.supervisor.resize(1, 0.0)
    floor.supervisor.note_ready()
    now = 0.0
    for _ in range(LOOP):
        floor.latest(0).ended = 1
        floor.supervisor.tick(now)
        now += 31
        floor.supervisor.tick(now)
    assert floor.supervisor.looping == [0]
    floor.latest(0).ended = 1
    floor.supervisor.tick(now + STEADY)
    assert floor.supervisor.looping == []


def test_pipeline_whose_workers_never_get_ready_is_given_up_with_what_they_say() -> None:
    floor = Floor(on_start=lambda worker: setattr(worker, "ended", 1))
    floor.supervisor.resize(2, 0.0)
    with pytest.raises(WorkersFailed, match=r"(?s)no worker was ever ready.*last words of") as caught:
        for second in range(60):
            floor.supervisor.tick(float(second))
    assert str(caught.value).startswith("worker 0 ")
    assert sum(number == 0 for number, _ in floor.started) == GIVE_UP


def test_pipeline_whose_workers_end_right_after_they_were_ready_is_not_given_up() -> None:
    """An event of the backlog may take each down at once, until it is found: that takes more ends than a start that fails."""

    def ends_once_ready(worker: Scripted) -> None:
        worker.was_ready, worker.ended = True, 9

    floor = Floor(on_start=ends_once_ready)
    floor.supervisor.resize(1, 0.0)
    for second in range(120):
        floor.supervisor.tick(float(second))
    assert len(floor.started) > GIVE_UP + 2


def test_worker_that_needs_a_change_is_not_started_again_and_the_others_go_on() -> None:
    floor = Floor()
    floor.supervisor.resize(2, 0.0)
    floor.supervisor.note_ready()
    floor.latest(0).ended = NEEDS_CHANGE
    for second in range(200):
        floor.supervisor.tick(float(second))
    assert [number for number, _ in floor.started] == [0, 1]
    assert (floor.supervisor.size, floor.supervisor.running) == (2, 1)
    assert floor.supervisor.given_up == [0]
    [sentence] = floor.said
    assert sentence.startswith("worker 0 (pid 100) ended with status 3")
    assert "start `millstream run` again" in sentence
    floor.latest(1).ended = 1
    floor.supervisor.tick(200.0)
    floor.supervisor.tick(202.0)
    assert [number for number, _ in floor.started] == [0, 1, 1]


def test_worker_that_read_an_unfinished_file_is_started_again_after_its_back_off() -> None:
    floor = Floor(misread=True)
    floor.supervisor.resize(2, 0.0)
    floor.supervisor.note_ready()
    floor.latest(0).ended = NEEDS_CHANGE
    for second in range(1, 4):
        floor.supervisor.tick(float(second))
    assert [number for number, _ in floor.started] == [0, 1, 0]
    assert floor.supervisor.given_up == []
    [sentence] = floor.said
    assert "the pipeline file can't be read, or was saved meanwhile; it restarts in 1 s" in sentence


def test_worker_that_stops_at_an_event_is_not_started_again_though_the_file_was_saved_meanwhile() -> None:
    floor = Floor(misread=True)
    floor.supervisor.resize(2, 0.0)
    worker = floor.latest(0)
    worker.was_ready, worker.told_totals, worker.ended = True, True, NEEDS_CHANGE
    floor.supervisor.tick(1.0)
    assert floor.supervisor.given_up == [0]


@pytest.mark.parametrize("told_totals", [False, True])
def test_model_that_ends_a_ready_worker_with_the_same_status_has_crashed_it(*, told_totals: bool) -> None:
    floor = Floor()
    floor.supervisor.resize(2, 0.0)
    floor.supervisor.note_ready()
    worker = floor.latest(0)
    worker.was_ready, worker.told_totals, worker.ended = True, told_totals, NEEDS_CHANGE
    for second in range(200):
        floor.supervisor.tick(float(second))
    assert [number for number, _ in floor.started] == ([0, 1] if told_totals else [0, 1, 0])


def test_shrinking_lets_stopped_workers_go_first() -> None:
    floor = Floor()
    floor.supervisor.resize(3, 0.0)
    floor.supervisor.note_ready()
    floor.latest(0).ended = NEEDS_CHANGE
    floor.supervisor.tick(1.0)
    floor.supervisor.resize(1, 2.0)
    assert floor.latest(1).told == []
    assert floor.latest(2).told == ["drain"]
    assert (floor.supervisor.size, floor.supervisor.running) == (1, 1)
    floor.latest(1).ended = NEEDS_CHANGE
    with pytest.raises(WorkersStopped):
        floor.supervisor.tick(3.0)


def test_run_ends_with_the_workers_message_when_all_need_a_change() -> None:
    floor = Floor()
    floor.supervisor.resize(2, 0.0)
    floor.supervisor.note_ready()
    floor.latest(1).ended = NEEDS_CHANGE
    floor.supervisor.tick(1.0)
    floor.latest(0).ended = NEEDS_CHANGE
    with pytest.raises(WorkersStopped, match=r"(?s)^worker 0 .*start `millstream run` again.*    why 100 ended$"):
        floor.supervisor.tick(2.0)


def test_stop_drains_all_and_tells_whether_all_finished() -> None:
    def ends_when_told(worker: Scripted) -> None:
        worker.drain = lambda: setattr(worker, "ended", 0)  # type: ignore[method-assign]

    good = Floor(on_start=ends_when_told)
    good.supervisor.resize(3, 0.0)
    assert good.supervisor.stop(threading.Event())
    bad = Floor(on_start=ends_when_told)
    bad.supervisor.resize(2, 0.0)
    bad.latest(1).drain = lambda: setattr(bad.latest(1), "ended", 1)  # type: ignore[method-assign]
    assert not bad.supervisor.stop(threading.Event())
    assert bad.said == ["worker 1 (pid 101) ended with status 1 while it drained"]


def test_stop_at_once_tells_the_workers_again() -> None:
    at_once = threading.Event()

    def ends_when_told_twice(worker: Scripted) -> None:
        def drain() -> None:
            at_once.set()
            worker.told.append("drain")
            if len(worker.told) == 2:
                worker.ended = 1

        worker.drain = drain  # type: ignore[method-assign]

    floor = Floor(on_start=ends_when_told_twice)
    floor.supervisor.resize(1, 0.0)
    assert not floor.supervisor.stop(at_once)
    assert floor.latest(0).told == ["drain", "drain"]
    assert floor.said[0] == "stopping at once: the next workers read the events in flight again"
