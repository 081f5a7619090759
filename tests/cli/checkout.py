"""Runs the `millstream` command of this checkout, whatever is installed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def millstream(*arguments: str | Path, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
    """Run `python -m millstream` to its end, `timeout` seconds at most."""
    command = [sys.executable, "-P", "-m", "millstream", *map(str, arguments)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environ, check=False)
