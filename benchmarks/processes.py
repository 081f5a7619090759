"""Measures the CPU time and memory of a process and its children from outside, so it works for every language. Linux only."""

from __future__ import annotations

import re
import time
from pathlib import Path


def family(pid: int) -> list[int]:
    """The process and all its living descendants."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:  # it has just ended
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of the process and its living descendants, over all threads, including threads that have ended."""
    total = 0.0
    for one in family(pid):
        try:
            # Linux's number of the clock for a process's CPU time (clock_getcpuclockid).
            total += time.clock_gettime(~one << 3 | 2)
        except OSError:
            continue
    return total


def peak_mib(pid: int) -> float:
    """The sum of the peak memory of the process and of each of its descendants, MiB."""
    total = 0
    for one in family(pid):
        try:
            status = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{one}/status").read_text())
        except OSError:
            continue
        total += int(status[1]) if status else 0
    return total / 1024


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU time of the process's living threads, by the thread's name in the operating system; equal names are summed."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, nanoseconds = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
        except OSError:  # it has just ended
            continue
        found[name] = found.get(name, 0.0) + int(nanoseconds) / 1e9
    return found
