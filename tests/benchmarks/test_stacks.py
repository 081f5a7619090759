"""Profiler samples by thread and function."""

from collections import Counter

from benchmarks.profiler.stacks import Spot, by, spots, table

RAW = """\
thread (0x1): write;run (threading.py:10);write (/app/millstream/sink.py:50);produce (/app/millstream/delivery.py:7) 30
thread (0x1): write;run (threading.py:10);write (/app/millstream/sink.py:50);encode (/lib/site-packages/schemas/x.py:3) 10
thread (0x2): MainThread;main (/lib/other.py:1) 60
"""


def test_samples_go_to_our_innermost_function() -> None:
    assert spots(RAW) == {
        Spot("write", "millstream/delivery.py produce", "delivery.py:7 produce"): 30,
        Spot("write", "millstream/sink.py write", "x.py:3 encode"): 10,
        Spot("MainThread", "(outside)", "other.py:1 main"): 60,
    }


def test_samples_sum_up_by_thread_and_share_the_cpu() -> None:
    with_lock = Counter({Spot("write", "", ""): 10, Spot("MainThread", "", ""): 70})  # one more than there were of all
    rows = table(by(spots(RAW), ["thread"]), with_lock, 5.0)
    assert rows[2:] == ["| MainThread |  |  | 60.0% | 3.00 | 100% |", "| write |  |  | 40.0% | 2.00 | 25% |"]
