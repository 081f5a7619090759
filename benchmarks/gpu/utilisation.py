"""How busy the GPU was, as its driver says."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY = 100  # ms


@contextmanager
def gpu_utilisation() -> Iterator[list[float]]:
    """A list that holds, at the end of the context, one percentage every 100 ms; empty where no driver answers."""
    seen: list[float] = []
    if shutil.which("nvidia-smi") is None:
        yield seen
        return
    query = [
        "nvidia-smi",
        "--query-gpu=utilization.gpu",
        "--format=csv,noheader,nounits",
        "-i",
        "0",
        "-lms",
        str(EVERY),
    ]
    watching = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield seen
    finally:
        watching.terminate()
        out, _ = watching.communicate()
        seen += [float(line) for line in out.splitlines() if line.strip().replace(".", "", 1).isdigit()]
