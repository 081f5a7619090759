"""Runs programs of other languages. What they need is fetched once, at pinned versions, into `.cache/producers`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.topics.errors import BrokerError
from millstream.topics.local.fetch import OUTPUT, fetched
from tests.broker.maven import CACHE
from tests.made_once import digest_of, made_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HERE = Path(__file__).parent
_CACHE = CACHE / "producers"
CONNECT = _CACHE / "connect-json-4.2.1"
"""Folder of Kafka Connect's JSON converter and of what it needs, kafka-clients among it."""
_CONNECT_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId><artifactId>connect</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.2.1</version></dependency>
  </dependencies>
</project>
"""
_FETCH_TIMEOUT_S = 300
_RUN_TIMEOUT_S = 120
_LEAVE_OUT = "leave out these tests: pytest --ignore=tests/producers"


def run_node(program: str, *arguments: str) -> None:
    """Run a program of the folder `node`; skips the test where Node or npm is missing."""
    _need("node", "--version", r"v(\d+)\.(\d+)", (20, 0))
    _need("npm", "--version", r"(\d+)\.(\d+)", (9, 0))
    _run(["node", str(_HERE / "node" / program), *arguments], environ={"NODE_PATH": str(_node_modules())})


def run_go(client: str, *arguments: str) -> None:
    """Run the Go program with one of its clients; skips the test where Go is missing."""
    _need("go", "version", r"go(\d+)\.(\d+)", (1, 24))
    _run([str(_go_program() / "orders"), client, *arguments])


def run_java(program: str, jars: Path, *arguments: str) -> None:
    """Run a program of the folder `java` from its source, with the jars of a folder."""
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    _run(["java", *quick, "-cp", f"{jars}/*", str(_HERE / "java" / program), *arguments])


def connect_jars() -> Path:
    """The folder `CONNECT`; Maven fetches it once. Skips the test where it can't."""
    try:
        return fetched(
            CONNECT,
            ["dependency:copy-dependencies", f"-DoutputDirectory={OUTPUT}", "-DincludeScope=runtime"],
            what="Kafka Connect's JSON converter",
            instead=_LEAVE_OUT,
            pom=_CONNECT_POM,
        )
    except BrokerError as error:
        pytest.skip(str(error))


def _need(tool: str, option: str, pattern: str, least: tuple[int, int]) -> None:
    """Skip the test where a tool is missing or too old."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    shown = subprocess.run([tool, option], capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(pattern, shown)
    if found is None or (int(found[1]), int(found[2])) < least:
        pytest.skip(f"{tool} {least[0]}.{least[1]} or later is needed, found {shown.strip()!r}")


def _node_modules() -> Path:
    """The packages that package-lock.json pins; npm compares their hashes."""
    files = [_HERE / "node" / name for name in ("package.json", "package-lock.json")]

    def fetch(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        command = ["npm", "ci", "--ignore-scripts", "--cache", str(_CACHE / "npm")]
        _run(command, cwd=folder, timeout=_FETCH_TIMEOUT_S)

    return _made_once("node", files, fetch) / "node_modules"


def _go_program() -> Path:
    """The folder of the program `orders`, with the modules that go.sum pins."""
    source = _HERE / "go"
    environ = {"GOMODCACHE": str(_CACHE / "go-modules"), "GOCACHE": str(_CACHE / "go-build"), "GOTOOLCHAIN": "local"}

    def build(folder: Path) -> None:
        # The modules stay writable, so that `make clean` can delete them.
        command = ["go", "build", "-modcacherw", "-o", str(folder / "orders"), "."]
        _run(command, environ=environ, cwd=source, timeout=_FETCH_TIMEOUT_S)

    return _made_once("go", sorted(source.iterdir()), build)


def _made_once(name: str, files: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made from these files. If it is missing, `make` fills it; it exists only complete."""
    return made_once(_CACHE / f"{name}-{digest_of(files)}", make)


def _run(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = _RUN_TIMEOUT_S,
) -> None:
    """Run a command; what it printed is in the error where it fails."""
    shown = subprocess.run(
        command,
        env={**os.environ, **(environ or {})},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert shown.returncode == 0, f"{' '.join(command)} ended with status {shown.returncode}:\n{shown.stdout}"
