"""Asks workers which model versions they serve, at their metrics ports."""

import http.client
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millstream.consumers.observability.metric import Metric
from millstream.consumers.observability.metrics import MODEL_RELOAD_ERROR, SERVING_MODEL
from millstream.inference.version_number import version_number
from millstream.pipeline.printable import printable

TIMEOUT = 5.0  # seconds
LARGEST = 1 << 24  # bytes of an answer
_SERIES = re.compile(r"^(\w+)\{(.*)\} 1(?:\.0)?$", re.MULTILINE)  # a gauge that is 1
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a worker doesn't change over to the version that it should."""

    model: str
    reason: str  # see `serving.errors.Reason`
    error: str


@dataclass(frozen=True, slots=True)
class Serving:
    """What a worker answered."""

    worker: str  # HOST:PORT
    models: tuple[tuple[str, int], ...]  # name and version of each that it serves
    error: str = ""  # why it isn't known; empty: it is
    refusals: tuple[Refusal, ...] = ()


def ask_workers(workers: Iterable[str]) -> list[Serving]:
    """What each of these workers serves."""
    return [_ask(worker) for worker in workers]


def _ask(worker: str) -> Serving:
    host, _, port = worker.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
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
    why = "" if models else "it doesn't tell: it starts, it is no worker, or it only runs models of tenants"
    return Serving(worker, models, why, refusals(text))


def served(metrics: str) -> tuple[tuple[str, int], ...]:
    """Name and version of each model in a worker's metrics."""
    found = []
    for labels in _labels(SERVING_MODEL, metrics):
        number = version_number(labels.get("version", ""))
        if number is not None:
            found.append((labels.get("model", ""), number))
    return tuple(found)


def refusals(metrics: str) -> tuple[Refusal, ...]:
    """Why a worker doesn't change over, from its metrics; empty: it serves the version that it should."""
    found = (
        Refusal(*(printable(labels.get(name, "")) for name in ("model", "reason", "error")))
        for labels in _labels(MODEL_RELOAD_ERROR, metrics)
    )
    return tuple(dict.fromkeys(found))  # the port of `millstream run` has the series of each worker


def _labels(metric: Metric, metrics: str) -> Iterator[dict[str, str]]:
    """The labels of each series of a gauge that is 1."""
    for series in _SERIES.finditer(metrics):
        if series[1] == metric.name:
            yield {name: _ESCAPE.sub(_unescaped, value) for name, value in _LABEL.findall(series[2])}


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
