"""Which broker the tests use, and why."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from millstream.topics.embedded import EmbeddedBroker
from tests.broker.maven import MavenKafka, missing_for_maven

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Kind = Literal["external", "containers", "maven", "mock"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The kind of broker, and the reason in words."""

    kind: Kind
    why: str
    bootstrap: str = ""  # of an external broker

    @property
    def durable(self) -> bool:
        """Whether it keeps data and offsets as Kafka promises."""
        return self.kind != "mock"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs."""

    bootstrap: str  # host:port
    durable: bool
    kind: Kind


def choose(environ: Mapping[str, str]) -> Choice:
    """The broker for this test run: what the environment asks for, else the best one that this machine can run.

    Raises ValueError where MILLSTREAM_TEST_BROKER names no kind.
    """
    bootstrap = environ.get("KAFKA_BOOTSTRAP", "")
    forced = environ.get("MILLSTREAM_TEST_BROKER", "")
    if forced:
        kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
        if forced not in kinds or (forced == "external" and not bootstrap):
            raise ValueError(
                f"MILLSTREAM_TEST_BROKER: expected containers, maven, mock, or external with KAFKA_BOOTSTRAP set; "
                f"found {forced!r}."
            )
        return Choice(kinds[forced], "MILLSTREAM_TEST_BROKER says so", bootstrap if forced == "external" else "")
    if bootstrap:
        return Choice("external", "KAFKA_BOOTSTRAP is set", bootstrap)
    if _container_engine_answers(environ):
        return Choice("containers", "a container engine answers")
    missing = missing_for_maven()
    if missing is None:
        return Choice("maven", "no container engine answers, java and mvn are here")
    return Choice("mock", f"no container engine answers, and {missing}: tests marked durable are skipped")


@contextmanager
def running(choice: Choice) -> Iterator[Broker]:
    """The chosen broker, for the length of the context."""
    match choice.kind:
        case "external":
            yield Broker(choice.bootstrap, choice.durable, choice.kind)
        case "containers":
            with _container() as bootstrap:
                yield Broker(bootstrap, choice.durable, choice.kind)
        case "maven":
            with MavenKafka() as kafka:
                yield Broker(kafka.bootstrap, choice.durable, choice.kind)
        case "mock":
            with EmbeddedBroker() as embedded:
                yield Broker(embedded.bootstrap, choice.durable, choice.kind)


def _container_engine_answers(environ: Mapping[str, str]) -> bool:
    sockets = (Path("/var/run/docker.sock"), Path(environ.get("XDG_RUNTIME_DIR", "/")) / "docker.sock")
    if "DOCKER_HOST" not in environ and not any(path.exists() for path in sockets):
        return False  # without the slow import
    import docker  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        return bool(docker.from_env(timeout=3).ping())
    except docker.errors.DockerException:
        return False


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.community.kafka import KafkaContainer  # noqa: PLC0415  (slow, and not needed elsewhere)

    container = KafkaContainer().with_kraft()
    container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
    container.with_env("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1")
    container.with_env("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
    with container:
        yield container.get_bootstrap_server()
