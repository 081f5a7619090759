"""The key that an event is routed by: the key of its record; without one, the event's ID in UTF-8.

Rollouts choose an event's version by it, and shadows their sample. Evaluations take events of one key as alike.
"""

from collections.abc import Sequence

from millstream.schemas.packed import Packed, Texts


def routing_key(key: bytes | None, event_id: str) -> bytes:
    """The routing key of one event."""
    return event_id.encode() if key is None else key


def routing_keys(keys: Sequence[bytes | None], ids: Sequence[str]) -> Sequence[bytes]:
    """The routing keys of many events. `Packed` keys, of which none is null, are returned as they are."""
    if isinstance(keys, Packed):
        return keys
    if isinstance(ids, Texts):  # they are in UTF-8 already
        return [own if key is None else key for key, own in zip(keys, ids.utf8, strict=True)]
    return [routing_key(key, own) for key, own in zip(keys, ids, strict=True)]
