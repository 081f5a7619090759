"""Which properties of the Kafka client a pipeline file may set: all but those that Millstream's guarantees rest on."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

_DELIVERY = "it follows from `delivery`; leave it out"
_COMMITS = "Millstream commits an event once its result is stored; how often is `commit_every`"
_OWNED = {
    "bootstrap.servers": "write the addresses under `kafka.bootstrap`",
    "metadata.broker.list": "write the addresses under `kafka.bootstrap`",
    "group.id": "write `group:` at the top of the file",
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "auto.offset.reset": "write `input.start`",
    "acks": _DELIVERY,
    "request.required.acks": _DELIVERY,
    "enable.idempotence": _DELIVERY,
    "enable.gapless.guarantee": _DELIVERY,
    "transactional.id": _DELIVERY,
    "partition.assignment.strategy": "the worker's handling of rebalances is made for its own; leave it out",
    "enable.partition.eof": "the worker reads no end-of-partition marks; leave it out",
}


def _free(name: str) -> str:
    """Return the property's name; raises ValueError where it is not the pipeline's to set."""
    if name in _OWNED:
        raise ValueError(f"Millstream sets {name} itself: {_OWNED[name]}.")
    if "_" in name or name in {"opaque", "logger"}:
        raise ValueError("only code can set this property, a file cannot. Leave it out.")
    return name


ClientProperty = Annotated[str, AfterValidator(_free)]
