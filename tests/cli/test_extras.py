"""Commands without the packages of Millstream's extras."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.broker.choice import Broker
from tests.consumers.service import flights_service

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_SCIPY = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "scipy":
            raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

sys.meta_path.insert(0, NotInstalled())
from millstream.consumers.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
INSTALL = "needs the package scipy, which is not installed. Install Millstream's extra `comparison`: "


def without_scipy(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_SCIPY, *command], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("with_rollout", [False, True])
def test_pipeline_is_checked_without_scipy(tmp_path: Path, *, with_rollout: bool) -> None:
    sections = {"rollout": {"strategy": "manual"}} if with_rollout else {}
    model = {"name": "flights-delay", "version": 1}
    service = flights_service(tmp_path, NOWHERE, with_topics=False, model=model, **sections)
    found = without_scipy("check", str(service.file), "--offline")
    assert (found.returncode, found.stderr) == (0, "")
    assert (f"rollout   `millstream rollout` {INSTALL}" in found.stdout) == with_rollout


@pytest.mark.parametrize("command", [["rollout", "status"], ["autopilot"], ["report", "--output", "page.html"]])
def test_commands_that_need_scipy_say_so(tmp_path: Path, command: list[str]) -> None:
    found = without_scipy(*command, str(tmp_path / "pipeline.yaml"))
    assert (found.returncode, found.stdout) == (1, "")
    assert f"`millstream {command[0]}` {INSTALL}" in found.stderr
    assert "Traceback" not in found.stderr
