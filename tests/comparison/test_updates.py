"""An update deletes rows and summaries once Kafka has what was made of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.consumers.comparison.transport import FoldingApp
from millstream.consumers.comparison.updates import Updates
from millstream.consumers.observability.health import Health
from millstream.consumers.schema_store import open_store
from tests.comparison.closing_job import ClosingJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

TopicAuthorizationFailedError = pytest.importorskip("aiokafka.errors").TopicAuthorizationFailedError
pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")

TURNS = 1000  # of the event loop, in which an update does all that waits for nothing


class Topic:
    """Faust's topic: the result of `send` is another awaitable, which waits for Kafka's acknowledgement."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[None]] = []
        self.values: list[bytes] = []

    async def send(self, *, value: bytes, **_: Any) -> Awaitable[None]:
        self.values.append(value)
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    def acknowledge(self) -> None:
        for each in self.sent:
            each.set_result(None)
        self.sent.clear()

    def refuse(self, error: type[Exception] = OSError) -> None:
        for each in self.sent:
            each.set_exception(error("not authorized"))
        self.sent.clear()


class Table:
    def __init__(self, data: dict[bytes, bytes]) -> None:
        self.data = data

    def send_changelog(self, *_: Any, **__: Any) -> Awaitable[None]:
        return asyncio.sleep(0)


class Faust:
    """The app: it stops after one update."""

    rebalancing = False
    is_ending = False
    crashed: Exception | None = None

    def __init__(self, update_every: float) -> None:
        self._update_every = update_every
        self._updates = 0
        self.consumer = SimpleNamespace(assignment=set)
        self.conf = SimpleNamespace(id="group")

    @property
    def should_stop(self) -> bool:
        return self._updates > 1

    async def crash(self, error: Exception) -> None:
        self.crashed = error

    async def give_up(self, error: Exception) -> None:
        await FoldingApp.give_up(cast("FoldingApp", self), error)

    async def sleep(self, seconds: float) -> None:
        self._updates += seconds == self._update_every


class World:
    """An update of partition 0 alone, with a closed window in its join or its merge."""

    def __init__(self, folder: Path) -> None:
        self.job = ClosingJob(folder)
        (folder / "schemas").mkdir()
        self.chunks, self.parts = Table(self.job.chunks[0]), Table(self.job.parts)
        self.evaluations, self.by_pair = Topic(), Topic()

    def start(self) -> asyncio.Task[None]:
        self.faust = Faust(self.job.pipeline.comparison.update_every)
        streams: Any = SimpleNamespace(
            faust=self.faust,
            evaluations=self.evaluations,
            by_pair=self.by_pair,
            chunks=self.chunks,
            parts=self.parts,
            comparisons="comparisons",
            assigned=lambda _: [0],
            partition_of=lambda _: 0,
        )
        job = self.job
        self.updates = Updates(
            job.pipeline,
            open_store(job.pipeline),
            streams,
            joins=job.joins[0],
            merges=job.merges,
            compared=lambda: 0,
            metrics=job.metrics,
            health=Health(60),
        )
        return asyncio.get_running_loop().create_task(self.updates.run())


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def with_closed_part(folder: Path) -> World:
    """Its merge has a window that all partitions have deleted, and a newer one."""
    world = World(folder)
    job = world.job
    for window in (1, 50):
        for source in range(3):
            job.compare(source, window)
    job.close_everywhere(10, newer=50)
    return world


def with_closed_rows(folder: Path) -> World:
    """Its join has a window that is due for deletion, and a newer one."""
    world = World(folder)
    job = world.job
    job.compare(0, 1)
    job.compare(0, 50)
    job.close(0, 10)
    return world


@pytest.mark.parametrize("answer", [Topic.acknowledge, Topic.refuse])
def test_summaries_stay_until_kafka_has_or_refuses_their_results(
    tmp_path: Path, answer: Callable[[Topic], None]
) -> None:
    async def check() -> None:
        world = with_closed_part(tmp_path)
        update = world.start()
        await turns()
        assert len(world.evaluations.sent) == 2
        assert world.job.windows_kept() == [1, 50]
        answer(world.evaluations)
        await turns()
        assert world.job.windows_kept() == [50]
        world.by_pair.acknowledge()
        await update
        assert world.job.left_out("undelivered") == (2 if answer is Topic.refuse else 0)

    asyncio.run(check())


def test_missing_permission_to_write_results_ends_the_job_and_their_summaries_stay(tmp_path: Path) -> None:
    async def check() -> None:
        world = with_closed_part(tmp_path)
        update = world.start()
        await turns()
        world.evaluations.refuse(TopicAuthorizationFailedError)
        await turns()
        assert isinstance(world.faust.crashed, TopicAuthorizationFailedError)
        assert not update.done(), "Faust would commit past what is in progress"
        assert world.job.windows_kept() == [1, 50]
        assert world.job.left_out("undelivered") == 0
        update.cancel()

    asyncio.run(check())


@pytest.mark.parametrize("answer", [Topic.acknowledge, Topic.refuse])
def test_rows_stay_until_kafka_has_or_refuses_their_summaries(tmp_path: Path, answer: Callable[[Topic], None]) -> None:
    async def check() -> None:
        world = with_closed_rows(tmp_path)
        update = world.start()
        await turns()
        assert len(world.by_pair.sent) == 2
        assert len(world.chunks.data) == 2
        answer(world.by_pair)
        await update
        assert len(world.chunks.data) == 1
        assert world.job.left_out("undelivered") == (2 if answer is Topic.refuse else 0)

    asyncio.run(check())


def test_nothing_is_deleted_if_the_partitions_move_while_an_update_waits(tmp_path: Path) -> None:
    async def check(world: World, waits_for: Topic) -> None:
        before = dict(world.chunks.data), dict(world.parts.data)
        update = world.start()
        await turns()
        assert len(waits_for.sent) == 2
        world.updates.clear()
        waits_for.acknowledge()
        await update
        assert (world.chunks.data, world.parts.data) == before

    for number, make in enumerate((with_closed_part, with_closed_rows)):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = make(folder)
        asyncio.run(check(world, world.by_pair if number else world.evaluations))


def test_log_says_of_how_many_windows_an_update_has_written_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("millstream.consumers.comparison.many_windows.MANY_WINDOWS", 2)

    async def check() -> None:
        world = with_closed_part(tmp_path)
        update = world.start()
        await turns()
        world.evaluations.acknowledge()
        await turns()
        world.by_pair.acknowledge()
        await update

    asyncio.run(check())
    assert "there are 2 windows" in caplog.text
