"""Apache Kafka's jars, which Maven fetches once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from millstream.topics.local.fetch import OUTPUT, fetched, missing_for

if TYPE_CHECKING:
    from pathlib import Path

# Not 4.3 or 4.4: where a partition has no leader just when a transaction ends there, as while a lone broker starts, these
# take the partition for deleted and leave the transaction open in it (docs/guarantees.md). Earlier ones end it later.
KAFKA_VERSION = "4.2.1"
_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    "org.apache.logging.log4j:log4j-core:2.24.3",
)
_FOLDER = f"jars-{hashlib.sha256(' '.join(_ARTIFACTS).encode()).hexdigest()[:12]}"


def missing_for_kafka(cache: Path) -> str | None:
    """What this machine lacks to run `LocalKafka`, as a sentence's end; None if it lacks nothing."""
    return missing_for(cache / "kafka" / _FOLDER)


def are_fetched(cache: Path) -> bool:
    """Whether `cache` has Kafka's jars."""
    return (cache / "kafka" / _FOLDER).exists()


def kafka_jars(cache: Path) -> Path:
    """The folder with Kafka's jars. If they are not in `cache` yet, they are fetched (43 MB). Raises BrokerError."""
    return fetched(
        cache / "kafka" / _FOLDER,
        ["dependency:copy-dependencies", f"-DoutputDirectory={OUTPUT}", "-DincludeScope=runtime"],
        what="Apache Kafka",
        instead="use another broker: set KAFKA_BOOTSTRAP",
        pom=_pom(),
    )


def _pom() -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in _ARTIFACTS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>millstream</groupId><artifactId>local-broker</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
