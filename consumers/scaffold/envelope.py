"""Knows the envelopes of Kafka Connect's events and of Debezium's. Pure."""

from collections.abc import Mapping

from millstream.consumers.scaffold.survey import Found


def content_first(found: Mapping[str, Found]) -> dict[str, Found]:
    """The fields without `schema`, which describes `payload`, and with those of the row before its change behind all others."""
    tops = {path.partition(".")[0] for path in found}
    own = {path: one for path, one in found.items() if "payload" not in tops or not path.startswith("schema.")}
    after, before = (tuple(f"{outer}{name}." for outer in ("", "payload.")) for name in ("after", "before"))
    if not any(path.startswith(after) for path in own):
        return own
    former = {path: one for path, one in own.items() if path.startswith(before)}
    return {path: one for path, one in own.items() if path not in former} | former
