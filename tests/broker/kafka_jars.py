"""Apache Kafka's jars, fetched by Maven once and kept in `.cache/kafka`."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from tests.broker.errors import BrokerError

# Kafka 4.4.0's poms are incomplete.
_ARTIFACTS = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    "org.apache.logging.log4j:log4j-core:2.24.3",
)
_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
_JARS = _CACHE / f"jars-{hashlib.sha256(' '.join(_ARTIFACTS).encode()).hexdigest()[:12]}"
_FETCH_TIMEOUT_S = 600


def missing_for_maven() -> str | None:
    """What this machine lacks to run `MavenKafka`, as a sentence's end; None when it lacks nothing."""
    if shutil.which("java") is None:
        return "java is not installed"
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < 17:
        return f"java 17 or later is needed, found {version[1] if version else shown.strip()!r}"
    if shutil.which("mvn") is None and not _JARS.exists():
        return "mvn is not installed"
    return None


def kafka_jars() -> Path:
    """The folder with Kafka's jars; fetches them where they are missing (43 MB). Raises BrokerError."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test run may be fetching them
        if not _JARS.exists():
            _fetch()
    return _JARS


def last_lines(log: Path, count: int = 15) -> str:
    """The end of a log file, without Java's stack frames, indented for an error message."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("\t")]
    return "\n".join(f"    {line}" for line in lines[-count:])


def _fetch() -> None:
    """Let Maven copy the jars aside and move them in place at the end: `_JARS` exists only complete."""
    project = _CACHE / "fetch"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    (project / "pom.xml").write_text(_pom())
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
    log = _CACHE / "maven.log"
    with log.open("w") as out:
        try:
            status: int | str = subprocess.run(
                command, cwd=project, stdout=out, stderr=out, timeout=_FETCH_TIMEOUT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"no end after {_FETCH_TIMEOUT_S} s"
    if status != 0:
        raise BrokerError(
            f"Maven could not fetch Apache Kafka ({status}). Its last lines ({log}):\n{last_lines(log)}\n"
            "Check the network, or test against another broker: set KAFKA_BOOTSTRAP, or MILLSTREAM_TEST_BROKER=mock."
        )
    (project / "jars").rename(_JARS)
    shutil.rmtree(project)


def _pom() -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in _ARTIFACTS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>millstream</groupId><artifactId>test-broker</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
