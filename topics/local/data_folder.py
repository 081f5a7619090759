"""The folder that keeps a broker's data: whose it is, and of which version of Kafka."""

from __future__ import annotations

import fcntl
import json
import os
import re
from typing import TYPE_CHECKING

from millstream.topics.errors import BrokerError
from millstream.topics.local.kafka_jars import KAFKA_VERSION

if TYPE_CHECKING:
    from pathlib import Path

_MARK = "millstream-broker.json"
_CHOOSE = "Choose another folder with --data, or delete this one: its topics and events are then lost."


def lock(folder: Path) -> int:
    """Keep other brokers off the folder until the returned file descriptor is closed. It is created if it is missing.

    Raises:
        BrokerError: it can't be created or read, or another broker uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise BrokerError(
            f"{folder}: another broker uses this data folder{_owner(folder)}. End it, or choose another folder with --data."
        ) from None
    return descriptor


def _owner(folder: Path) -> str:
    """Who marked the folder last, behind a message; empty: nobody has marked it yet."""
    try:
        return f": pid {json.loads((folder / _MARK).read_text())['pid']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def stored_cluster(folder: Path) -> str | None:
    """The ID of the cluster whose data the folder keeps; None if it is empty.

    Raises:
        BrokerError: it can't be written, or holds anything but the data of a `millstream broker` with this version of Kafka.
    """
    try:
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
        if not any(folder.iterdir()):
            return None
        stored = json.loads((folder / _MARK).read_text())
        cluster, version = stored["cluster_id"], stored["kafka"]
        meta = (folder / "data" / "meta.properties").read_text()
    except FileNotFoundError:
        raise BrokerError(
            f"{folder}: expected an empty folder or one that `millstream broker --data` made, found other files. Choose another "
            "folder."
        ) from None
    except OSError as error:
        raise _unusable(folder, error) from None
    except (ValueError, KeyError, TypeError):
        raise BrokerError(f"{folder}: its file {_MARK} is damaged. {_CHOOSE}") from None
    if version != KAFKA_VERSION:
        raise BrokerError(
            f"{folder}: its data is of Apache Kafka {version}, but this version of Millstream runs {KAFKA_VERSION}. To use the "
            f"data, run the broker with the version of Millstream that wrote it. {_CHOOSE}"
        )
    if re.search(rf"^cluster\.id={re.escape(cluster)}$", meta, re.MULTILINE) is None:
        raise BrokerError(f"{folder}: its data is of another cluster than {cluster}, which {_MARK} names. {_CHOOSE}")
    return str(cluster)


def _unusable(folder: Path, error: OSError) -> BrokerError:
    return BrokerError(f"{folder}: the data folder can't be used: {error.strerror}. Choose one you can write to.")


def mark(folder: Path, cluster_id: str) -> None:
    """Note whose data the folder keeps, and that this process uses it."""
    (folder / _MARK).write_text(
        json.dumps({"cluster_id": cluster_id, "kafka": KAFKA_VERSION, "pid": os.getpid()}) + "\n"
    )
