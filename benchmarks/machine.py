"""Describes the machine of a measurement, because figures from different machines can't be compared."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("confluent-kafka", "fastavro", "msgspec", "numpy", "yyjson")
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")  # one of them is installed


def machine(broker: str) -> dict[str, str | int | float]:
    """The machine, Python, the packages and the kind of broker (one word), for the head of a report."""
    versions = {package: found for package in (*_PACKAGES, *_RUNTIMES) if (found := _version(package))}
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "broker": broker,
        **versions,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ModuleNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
