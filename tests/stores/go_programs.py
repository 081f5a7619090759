"""Programs in Go that tests run, built from their sources once."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.broker.maven import CACHE
from tests.made_once import made_once

if TYPE_CHECKING:
    from pathlib import Path

_BUILD_TIMEOUT_S = 1500


def go_program(package: str, version: str, title: str) -> Path:
    """The program of a Go package; skips the test where it can't be built."""
    if shutil.which("go") is None:
        pytest.skip(
            f"no {title}: go is not installed, and {title} is built from its source (https://go.dev/doc/install)"
        )
    name = package.rpartition("/")[2]

    def build(folder: Path) -> None:
        made = folder / "made"
        environ = {
            "GOBIN": str(folder),
            "GOMODCACHE": str(made / "modules"),
            "GOCACHE": str(made / "build"),
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-modcacherw",
        }
        done = subprocess.run(
            ["go", "install", "-ldflags", "-s -w", f"{package}@{version}"],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_TIMEOUT_S,
        )
        shutil.rmtree(made, ignore_errors=True)
        assert done.returncode == 0, done.stderr

    return made_once(CACHE / "stores" / f"{name}-{version.rpartition('-')[2]}", build) / name
