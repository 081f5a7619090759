"""Apache Kafka with ACLs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from millstream.topics.local.ports import free_ports
from tests.broker.maven import MavenKafka, missing_for_maven

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="a" user_app="secret";'


class GuardedKafka(MavenKafka):
    """A broker with a second listener, at which the user `app` may do only what ACLs allow."""

    def __init__(self) -> None:
        super().__init__()
        (self.guarded,) = free_ports(1)

    def _settings(self) -> dict[str, object]:
        plain = super()._settings()
        also = f",GUARDED://127.0.0.1:{self.guarded}"
        return plain | {
            "listeners": f"{plain['listeners']}{also}",
            "advertised.listeners": f"{plain['advertised.listeners']}{also}",
            "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},GUARDED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    @property
    def client(self) -> Mapping[str, Any]:
        """The settings of a client of the user `app`."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.guarded}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "app",
            "sasl.password": "secret",
        }

    def grant(self, kind: ResourceType, name: str, operation: AclOperation, *, prefixed: bool = False) -> None:
        """Let the user `app` do this. For all resources of the kind, the name is *. `prefixed`: for all that begin with it."""
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        binding = AclBinding(*_key(kind, name, operation, pattern=pattern))
        client = AdminClient({"bootstrap.servers": self.bootstrap})  # it must outlive its answer
        client.create_acls([binding])[binding].result(10)

    def forbid(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Deny it, which counts more than what is granted."""
        binding = AclBinding(*_key(kind, name, operation, AclPermissionType.DENY))
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.create_acls([binding])[binding].result(10)

    def allow_again(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Undo `forbid`."""
        asked = AclBindingFilter(*_key(kind, name, operation, AclPermissionType.DENY))
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.delete_acls([asked])[asked].result(10)


def _key(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> tuple[Any, ...]:
    return kind, name, pattern, "User:app", "*", operation, permission


def become_app(pipeline: Path, broker: GuardedKafka) -> None:
    """Write the user `app` into a pipeline file."""
    document = yaml.safe_load(pipeline.read_text(encoding="utf-8"))
    client = dict(broker.client)
    document["kafka"] = {"bootstrap": client.pop("bootstrap.servers"), "client": client}
    pipeline.write_text(yaml.safe_dump(document), encoding="utf-8")


@contextmanager
def guarded_kafka() -> Iterator[GuardedKafka]:
    """Such a broker; skips the test if this machine can't run it."""
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"starts a broker of its own, but {missing}")
    with GuardedKafka() as broker:
        yield broker
