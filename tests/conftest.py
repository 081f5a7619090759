"""What all tests share: the broker, the schema registry, topics with names of their own, Hypothesis profiles."""

from __future__ import annotations

import logging
import os
import re
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import settings

from benchmarks.servers.redis_server import MISSING, RedisServer
from millstream.consumers.source import fetched
from millstream.topics.embedded import EmbeddedBroker
from tests.broker.choice import Broker, Choice, choose, running
from tests.broker.clients import create_topic, ensure_topic
from tests.native import choose_for_tests, with_native
from tests.registry.apicurio import Apicurio, missing_for_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# No deadlines: machines that run tests are busy. In CI the same examples each time, so a failure is the change's.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
# For the quick look between two edits (`make test-unit`): properties try a quarter of the examples; `make test` tries all.
settings.register_profile("quick", deadline=None, max_examples=25)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# What a shell starts in the background ignores SIGINT, what `nohup` starts SIGHUP, and children inherit this. Tests send both.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

FULL = os.environ.get("MILLSTREAM_FAULTS", "") == "full"
"""Whether `make faults` runs: also the tests marked `full`, and the others that have a longer form in that form."""
PROCESS_FOLDERS = {"cli", "comparison", "deploy", "examples", "fuzz", "harness", "producers"}
"""Folders of tests that start processes: commands, jobs, servers."""
_CHOICE = pytest.StashKey[Choice]()


@pytest.fixture(autouse=True)
def _log_level_as_before() -> Iterator[None]:
    """Commands set the level of Millstream's log for their process, which is that of the tests after them, too."""
    logger = logging.getLogger("millstream")
    level = logger.level
    yield
    logger.setLevel(level)


class MakeTopic(Protocol):
    """Creates a topic with a name of its own and returns the name."""

    def __call__(self, partitions: int = 4, **config: str) -> str:
        """Settings are written with underscores: `make_topic(cleanup_policy="compact")`."""


def pytest_configure(config: pytest.Config) -> None:
    try:
        config.stash[_CHOICE] = choose(os.environ)
        choose_for_tests(os.environ)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    choice = config.stash[_CHOICE]
    read = "as columns" if fetched.LIBRARY.exists() else "one by one (the pages of C are not compiled: no C compiler)"
    return [f"kafka: {choice.kind} broker ({choice.why})", f"records: read {read}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by what it needs, so that `-m unit` runs in seconds, and skip what the mock can't promise."""
    choice = config.stash[_CHOICE]
    for item in items:
        for kind in _kinds(item):
            item.add_marker(kind)
        if not FULL and item.get_closest_marker("full") is not None:
            item.add_marker(pytest.mark.skip(reason="takes long: only in `make faults`"))
        if not choice.durable and item.get_closest_marker("durable") is not None:
            item.add_marker(pytest.mark.skip(reason=f"needs a durable broker; this run has a mock: {choice.why}"))


def _kinds(item: pytest.Item) -> Iterator[str]:
    """What a test needs; `unit` is one that needs nothing and runs in this process."""
    parts = item.path.relative_to(Path(__file__).parent).parts
    fixtures = set(getattr(item, "fixturenames", ()))
    kinds = {
        "faults": parts[0] == "faults",
        "process": parts[0] in PROCESS_FOLDERS
        or "redis_server" in fixtures
        or item.get_closest_marker("process") is not None,
        "broker": bool(fixtures & {"kafka", "registry"})
        or any(item.get_closest_marker(name) is not None for name in ("broker", "durable")),
    }
    yield from (kind for kind, holds in kinds.items() if holds)
    if not any(kinds.values()):
        yield "unit"


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """The broker of this run, started when the first test asks for it."""
    with running(pytestconfig.stash[_CHOICE]) as broker:
        yield broker


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether a test runs in its longer form."""
    return FULL


@pytest.fixture(params=["native on", "native off"])
def native_environ(request: pytest.FixtureRequest) -> Iterator[Mapping[str, str]]:
    """Runs the test with native parts and without; gives the environment that makes a process do the same."""
    with with_native(on=request.param == "native on") as environ:
        yield environ


@pytest.fixture(scope="session")
def registry() -> Iterator[Apicurio]:
    """A real schema registry, started when the first test asks for it; tests use subjects of their own."""
    if (missing := missing_for_registry()) is not None:
        pytest.skip(f"no schema registry: {missing}")
    with Apicurio() as apicurio:
        yield apicurio


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A real Redis server, empty at first."""
    pytest.importorskip("redis", reason="needs the package redis: pip install 'millstream[redis]'")
    if MISSING is not None:
        pytest.skip(MISSING)
    with RedisServer() as server:
        yield server


@pytest.fixture
def make_topic(kafka: Broker, request: pytest.FixtureRequest) -> MakeTopic:
    """Topics are left behind: their names never meet again, and the broker ends with the run."""
    test = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:100]

    def make(partitions: int = 4, **config: str) -> str:
        topic = f"{test}-{uuid.uuid4().hex[:8]}"
        if not kafka.durable and (config or partitions != EmbeddedBroker.partitions):
            pytest.skip(f"the mock's topics have {EmbeddedBroker.partitions} partitions and no settings")
        if kafka.durable:
            settings_ = {name.replace("_", "."): value for name, value in config.items()}
            create_topic(kafka.bootstrap, topic, partitions, settings_)
        else:
            ensure_topic(kafka.bootstrap, topic)
        return topic

    return make
