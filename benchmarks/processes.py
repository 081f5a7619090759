"""What a process and its children use, seen from outside: the same for every language. Linux."""

from __future__ import annotations

import re
import time
from pathlib import Path


def family(pid: int) -> list[int]:
    """The process and all its descendants that live."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:  # it has just ended
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of the process and its living descendants, all threads, also those that have ended."""
    total = 0.0
    for one in family(pid):
        try:
            # The clock of a process's CPU time, as Linux numbers it (clock_getcpuclockid).
            total += time.clock_gettime(~one << 3 | 2)
        except OSError:
            continue
    return total


def peak_mib(pid: int) -> float:
    """The most memory each of the process and its descendants has had, summed, MiB."""
    total = 0
    for one in family(pid):
        try:
            status = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{one}/status").read_text())
        except OSError:
            continue
        total += int(status[1]) if status else 0
    return total / 1024


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU time of the process's living threads by their names in the system; those of one name are summed."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, nanoseconds = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
        except OSError:  # it has just ended
            continue
        found[name] = found.get(name, 0.0) + int(nanoseconds) / 1e9
    return found
