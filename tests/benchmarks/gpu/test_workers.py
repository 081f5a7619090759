"""Processes measure together on one device; where one can't, the bench says why and does not wait for it."""

from multiprocessing import active_children
from pathlib import Path

import pytest

from benchmarks.errors import LeftOutError, PeerFailedError
from benchmarks.gpu.measure import Task
from benchmarks.gpu.path import Throughput
from benchmarks.gpu.subjects import Subject
from benchmarks.gpu.workers import Workers, together
from benchmarks.load import WIDE, write_vector_model


def small(folder: Path) -> Subject:
    write_vector_model(folder, 1, WIDE, (8,))
    return Subject(folder, WIDE.name, f"{WIDE.name}-event", "vectors")


def test_what_ran_at_the_same_time_lasted_until_the_last_was_done() -> None:
    assert together([Throughput(100, 1.0), Throughput(300, 2.0)]) == 200


@pytest.mark.full
@pytest.mark.process
def test_processes_measure_one_task_after_the_other(tmp_path: Path) -> None:
    subject = small(tmp_path)
    with Workers(2, subject, "cpu") as workers:
        found = [
            workers.measure(Task("executor", batch=4, in_flight=1, seconds=0.3)),
            workers.measure(Task("path", batch=4, in_flight=2, seconds=0.3)),
            workers.measure(Task("path", batch=64, in_flight=1, seconds=0.3)),
        ]
    assert all(one.rate > 0 for one in found)


@pytest.mark.process
def test_a_model_that_cannot_run_is_left_out(tmp_path: Path) -> None:
    subject = small(tmp_path)
    (tmp_path / "models" / WIDE.name / "1" / "model.onnx").write_bytes(b"no model")
    with Workers(1, subject, "cpu") as workers, pytest.raises(LeftOutError, match="can't be loaded"):
        workers.measure(Task("path", batch=4, in_flight=1, seconds=0.01))


@pytest.mark.full
@pytest.mark.process
def test_a_process_that_ends_by_itself_is_not_waited_for(tmp_path: Path) -> None:
    subject = small(tmp_path)
    task = Task("path", batch=4, in_flight=1, seconds=0.01)
    before = set(active_children())
    with Workers(2, subject, "cpu") as workers:
        one, other = set(active_children()) - before
        workers.measure(task)
        one.kill()
        with pytest.raises(PeerFailedError, match="exit code -9"):
            workers.measure(task)
    assert not other.is_alive()
    assert other.exitcode == 0
