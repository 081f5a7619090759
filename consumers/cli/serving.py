"""Asks workers which model versions they serve, at their metrics ports."""

import http.client
import re
from collections.abc import Iterable
from dataclasses import dataclass

from millstream.inference.version_number import version_number

TIMEOUT = 5.0  # seconds
LARGEST = 1 << 24  # bytes of an answer
_SERVING = re.compile(r"^millstream_serving_model\{([^}]*)\} 1(?:\.0)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Serving:
    """What a worker answered."""

    worker: str  # HOST:PORT
    models: tuple[tuple[str, int], ...]  # name and version of each that it serves
    error: str = ""  # why it isn't known; empty: it is


def ask_workers(workers: Iterable[str]) -> list[Serving]:
    """What each of these workers serves."""
    return [_ask(worker) for worker in workers]


def _ask(worker: str) -> Serving:
    host, _, port = worker.rpartition(":")
    if not host or not port.isdecimal():
        return Serving(worker, (), "expected HOST:PORT")
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read(LARGEST).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return Serving(worker, (), f"it doesn't answer: {error}")
    finally:
        connection.close()
    models = served(text)
    return Serving(
        worker,
        models,
        ""
        if models
        else "it doesn't tell: it starts, it is no worker, or its pipeline file names the version by its number",
    )


def served(metrics: str) -> tuple[tuple[str, int], ...]:
    """Name and version of each model in a worker's metrics."""
    found = []
    for match in _SERVING.finditer(metrics):
        labels = dict(_LABEL.findall(match[1]))
        number = version_number(labels.get("version", ""))
        if number is not None:
            found.append((labels.get("model", ""), number))
    return tuple(found)
