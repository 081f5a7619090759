"""The process of the comparison job ends itself if its loop stands still."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")

STUCK = """
import logging, time
from millstream.consumers.comparison.run import run_until_stopped
from millstream.consumers.observability.health import Health

class App:
    crash_reason = None
    def finalize(self): pass
    async def start(self): time.sleep(300)

logging.basicConfig()
run_until_stopped(App(), Health(1.0, loop="the comparison job's loop"))
"""


def test_loop_that_stands_still_ends_the_job_with_a_message() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert (
        "the comparison job's loop has not come back for 2 s and never may. "
        "The comparison job ends: all its state is in Kafka, so start it again." in done.stderr
    )
