"""`make bench ARGS="--profile"`: a Millstream worker over the vector workload, sampled, by thread and function."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.environments import ROOT, python_of
from benchmarks.load import write_held_load, write_load
from benchmarks.measure import PARTITIONS, Ends, Watch, job_of, started
from benchmarks.peers.known import millstream
from benchmarks.processes import thread_seconds
from benchmarks.profiler.stacks import Spot, by, spots, table
from tests.broker.clients import create_topic

if TYPE_CHECKING:
    from collections import Counter

    from benchmarks.measure import Backlog

RATE = 400  # samples/s
ATTACH_TIMEOUT = 30  # seconds


def profile(bootstrap: str, backlog: Backlog, delivery: str) -> str:
    """Markdown: CPU by thread, by our function, and by function and what it calls, with how much of it holds Python's lock.

    Raises LeftOutError, PeerFailedError.
    """
    spy = python_of("profiler", Path(__file__).parent).with_name("py-spy")
    run = f"profile-{os.getpid()}-{delivery}"
    job = job_of(backlog.workload, bootstrap, run)
    for topic in (job.input, job.output, job.dead):
        create_topic(bootstrap, topic, PARTITIONS, {})
    write_load(bootstrap, job.input, backlog.warm)
    warm, events = len(backlog.warm.values), len(backlog.events.values)
    with tempfile.TemporaryDirectory() as made:
        folder, ends = Path(made), Ends(bootstrap, job.output)
        with started(millstream(delivery)(job, folder), folder) as process:
            watch = Watch(process, ends, folder / "log")
            watch.until(warm)
            commit = write_held_load(bootstrap, job.input, backlog.events)
            stacks = folder / "stacks", folder / "with-lock"
            samplers = [_sampler(spy, process.pid, stacks[0]), _sampler(spy, process.pid, stacks[1], "--gil")]
            before = thread_seconds(process.pid)
            commit()
            watch.until(warm + events)
            after = thread_seconds(process.pid)
            for sampler in samplers:
                sampler.send_signal(signal.SIGINT)
            for sampler in samplers:
                sampler.communicate(timeout=ATTACH_TIMEOUT)
        every, with_lock = (spots(file.read_text()) for file in stacks)
    threads = {name: (after[name] - before.get(name, 0)) / events * 1e6 for name in after}
    return _markdown(delivery, threads, every, with_lock)


def _sampler(spy: Path, pid: int, out: Path, *options: str) -> subprocess.Popen[str]:
    asked = f"record --pid {pid} --rate {RATE} --format raw --threads --nonblocking".split()
    command = [str(spy), *asked, *options]
    sampler = subprocess.Popen(
        [*command, "--output", str(out)], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert sampler.stdout is not None
    line = sampler.stdout.readline()  # it says so when it has attached
    print(f"py-spy: {line.strip()}", file=sys.stderr)
    return sampler


def _markdown(delivery: str, threads: dict[str, float], found: Counter[Spot], with_lock: Counter[Spot]) -> str:
    python = sum(us for name, us in threads.items() if not name.startswith("rdk:"))
    lines = [
        f"# Millstream, {delivery}: CPU by thread (the profiler's own cost included)",
        "",
        "| thread | us/event |",
        "|---|---|",
    ]
    lines += [
        f"| {name} | {us:.2f} |" for name, us in sorted(threads.items(), key=lambda item: -item[1]) if us >= 0.005
    ]
    lines += [
        "",
        f"All: {sum(threads.values()):.2f} us/event, {python:.2f} of them in Python's threads, which follow. "
        "*With the lock* is how much of a row's samples held Python's lock; the rest runs beside other threads, or waits for it.",
        "",
    ]
    for names in (("thread",), ("thread", "own"), ("thread", "own", "leaf")):
        lines += [*table(by(found, names), by(with_lock, names), python), ""]
    return "\n".join(lines)
