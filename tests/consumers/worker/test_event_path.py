"""docs/event-path.md names the files and functions that an event passes, and can be read in one go."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events
from millstream.consumers.sink.bulk import LIBRARY as BULK
from millstream.consumers.source.fetched import LIBRARY as FETCHED
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from tests.broker.choice import Broker

PROGRAM = Path(__file__).with_name("traced_worker.py")
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "event-path.md"
ROW = re.compile(r"^\|[^|]+\| \[[^]]+\]\(\.\./(?P<file>[^)]+)\) \| (?P<functions>`[^|]+`) \|$", re.MULTILINE)
MOST_FILES, MOST_FUNCTIONS = 20, 50


def steps() -> dict[str, list[str]]:
    """The functions that the page names, by file."""
    found = ROW.finditer(PAGE.read_text(encoding="utf-8"))
    return {step["file"]: re.findall(r"`([^`]+)`", step["functions"]) for step in found}


def test_path_can_be_read_in_one_go() -> None:
    path = steps()
    assert 15 <= len(path) <= MOST_FILES
    assert sum(map(len, path.values())) <= MOST_FUNCTIONS


def test_c_functions_of_the_path_exist() -> None:
    for file, functions in steps().items():
        if file.endswith(".c"):
            text = (ROOT / file).read_text(encoding="utf-8")
            for function in functions:
                assert re.search(rf"^\S.*\b{function}\([^;]*\{{$", text, re.MULTILINE), f"{file} has no {function}"


@pytest.mark.durable
@pytest.mark.skipif(not (FETCHED.exists() and BULK.exists()), reason="without a C compiler, events take another path")
def test_worker_calls_each_function_of_the_path(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, delivery="exactly_once")
    load = vector_events(600, seed=1)
    produce(kafka.bootstrap, service.inputs[0], [(None, value) for value in load.values])
    notes = tmp_path / "called"
    with Worker(service.file, "--until-idle", program=[sys.executable, str(PROGRAM), str(notes)]) as worker:
        assert worker.wait() == 0, worker.log
    assert len(service.predictions()) == 600
    called = set(map(tuple, (line.split("\t") for line in notes.read_text(encoding="utf-8").splitlines())))
    named = {(file, name) for file, names in steps().items() if file.endswith(".py") for name in names}
    assert not named - called
