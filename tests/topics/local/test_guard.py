"""Guards end what a child has started, if our process ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.topics.local.child import end_guard, start, start_guard
from tests.broker.clients import wait_until

pytestmark = pytest.mark.process
# A child with a child of its own, as Triton has them. It writes its process ID when that runs.
FAMILY = ["sh", "-c", "sleep 1000 & echo $$ $!; wait"]
PARENT = """
import sys
from pathlib import Path
from millstream.topics.local.child import start, start_guard
guard = start_guard(start({family!r}, Path({log!r})))
sys.stdin.read()
"""


def family(log: Path) -> list[int]:
    """The process IDs of child and grandchild."""
    wait_until(lambda: log.exists() and len(log.read_text().split()) == 2, 20, "the grandchild")
    return [int(pid) for pid in log.read_text().split()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killed_parent_takes_the_whole_family_along(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = PARENT.format(family=FAMILY, log=str(log))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, env=environment) as parent:
        pids = family(log)
        assert all(map(runs, pids))
        parent.kill()
    wait_until(lambda: not any(map(runs, pids)), 20, "the family's end")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ended_guard_kills_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start(FAMILY, log)
    pids = family(log)
    end_guard(start_guard(child))
    assert all(map(runs, pids))
    os.killpg(child.pid, 9)
    child.wait()
