"""Which properties of the Kafka client a pipeline file may set, and to which values.

A pipeline file may not set properties that Millstream's guarantees depend on, or that make the client run code: `millstream
check` creates a client, and nobody expects it to run code from the file that it checks. Files named by properties are only read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DELIVERY = "it follows from `delivery`; leave it out"
_TIMEOUT = "a result waits until the broker takes it; leave it out"
_COMMITS = "Millstream commits an event once its result is stored; how often is `commit_every`"
_OWN_PROPERTIES = {
    "bootstrap.servers": "write the addresses under `kafka.bootstrap`",
    "metadata.broker.list": "write the addresses under `kafka.bootstrap`",
    "group.id": "write `group:` at the top of the file",
    "group.instance.id": "write `membership: {static: true}`, which gives each worker one of its own",
    "group.protocol": "write `membership: {protocol: ...}`",
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "offset.store.method": _COMMITS,
    "offset.store.path": _COMMITS,
    "auto.offset.reset": "write `input.start`",
    "acks": _DELIVERY,
    "request.required.acks": _DELIVERY,
    "enable.idempotence": _DELIVERY,
    "enable.gapless.guarantee": _DELIVERY,
    "transactional.id": _DELIVERY,
    "message.timeout.ms": _TIMEOUT,
    "delivery.timeout.ms": _TIMEOUT,
    "isolation.level": "a record of an aborted transaction never counts; leave it out",
    "partition.assignment.strategy": "the worker's handling of rebalances is made for its own; leave it out",
    "enable.partition.eof": "the worker reads no end-of-partition marks; leave it out",
}
_LIBRARY = "makes the Kafka client load a library into the process"
_RUNS_CODE = {
    "plugin.library.paths": f"{_LIBRARY}. Leave it out.",
    "ssl.engine.location": f"{_LIBRARY}. Leave it out.",
    "ssl.engine.id": f"{_LIBRARY}. Leave it out.",
    "sasl.kerberos.kinit.cmd": "is a command for the shell. Leave it out: the client calls kinit with the principal and keytab. "
    "To renew tickets by other means, write `sasl.kerberos.min.time.before.relogin: 0`.",
}
_CODE_ONLY_PROPERTIES = {
    "opaque",
    "logger",
    "interceptors",
    "default.topic.config",
    "log_level",
    "ssl_engine_callback_data",
}
_CALLBACK = re.compile(r"on_\w+|\w+_(cb|cmp)|ssl_(ca|key|certificate)")
# librdkafka puts the Kerberos values into a shell command (kinit). OpenSSL treats a provider's name with a slash as the path of a
# library; without a slash it searches its own folder.
_SAFE_VALUES = {
    "sasl.kerberos.principal": (re.compile(r"[A-Za-z0-9._/@][A-Za-z0-9._/@-]*"), "letters, digits and . _ / @ -"),
    "sasl.kerberos.keytab": (re.compile(r"[A-Za-z0-9._/:@+=, -]+"), "letters, digits, spaces and . _ / : @ + = , -"),
    "sasl.kerberos.service.name": (re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*"), "letters, digits and . _ -"),
    "ssl.providers": (
        re.compile(r"[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*"),
        "names of OpenSSL's own providers, such as default,legacy",
    ),
}


def unsafe_values(client: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each property whose value could make the client run code, and a message that does not quote the value."""
    for name, (safe, expected) in _SAFE_VALUES.items():
        if name in client and not safe.fullmatch(client[name]):
            yield (
                name,
                f"expected {expected}, found other characters, which could make the client run code. Remove them.",
            )


def _free(name: str) -> str:
    """Return the property's name. Raises ValueError if a pipeline file may not set it."""
    if name in _OWN_PROPERTIES:
        raise ValueError(f"Millstream sets {name} itself: {_OWN_PROPERTIES[name]}.")
    if name in _RUNS_CODE:
        raise ValueError(f"a pipeline file may not run code, and {name} {_RUNS_CODE[name]}")
    if _CALLBACK.fullmatch(name) or name in _CODE_ONLY_PROPERTIES:
        raise ValueError("only code can set this property, a file cannot. Leave it out.")
    if "_" in name:
        raise ValueError(
            f"the Kafka client's properties have dots in their names, and no underscores. Write {name.replace('_', '.')}."
        )
    return name


ClientProperty = Annotated[str, AfterValidator(_free)]
