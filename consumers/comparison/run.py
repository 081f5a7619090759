"""Runs the Faust app in this process until a signal stops it, without Faust's own command line."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from millstream.consumers.comparison.errors import ComparisonError
from millstream.consumers.comparison.transport import cause_of
from millstream.consumers.resilience.signals import stop_on_signals
from millstream.consumers.resilience.watchdog import Subject, end_process, watch
from millstream.topics.partitions import PERMISSIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import faust

    from millstream.consumers.observability.health import Health

log = logging.getLogger("millstream")

STEP_TIMEOUT = 10.0  # seconds for each step of the shutdown
HEARTBEAT = 1.0  # seconds
JOB_ENDS = "The comparison job ends: all its state is in Kafka, so start it again."


def run_until_stopped(app: faust.App, health: Health) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP, then shut down cleanly. Call it once per process: Faust leaves tasks behind.

    If the loop or the updates stand still for twice `health.stall_after`, the process ends like a crash.

    Raises:
        ComparisonError: the job can't continue. All its state is in Kafka, so it can be started again.
    """
    threading.excepthook = _log_thread_error
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_log_loop_error)
    try:
        # Faust's own `stop` may wait for the tables for ever (faust-streaming 0.15.3). So its tasks are left running.
        loop.run_until_complete(_run(app, loop, health))
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)


async def _run(app: Any, loop: asyncio.AbstractEventLoop, health: Health) -> None:
    told: asyncio.Future[str] = loop.create_future()  # how the user stopped the job
    at_once = asyncio.Event()
    # A signal's handler runs between two steps of the loop, and wakes the loop.
    stop_on_signals(
        lambda name: loop.call_soon_threadsafe(told.set_result, name),
        lambda _name: loop.call_soon_threadsafe(at_once.set),
    )
    app.finalize()
    running, beats = asyncio.create_task(_start_and_wait(app)), asyncio.create_task(_beat(health))
    ends: list[asyncio.Future[Any]] = [running, told]
    stopping = threading.Event()
    watch(partial(_watched, health, stopping), 2 * health.stall_after, partial(end_process, ends=JOB_ENDS))
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    beats.cancel()
    app.is_ending = True
    crashed = app.crash_reason or (running.exception() if running.done() else None)
    if crashed is None:
        log.info(
            "stopping: the job commits, leaves the group and sends its last records, for at most %g s. A second %s stops it "
            "at once: then the next job reads some records again",
            3 * STEP_TIMEOUT,
            told.result() if told.done() else "Ctrl-C",
        )
        await _step(app.consumer.commit(), "commit", at_once)
    await _step(app.consumer.stop(), "leave the group", at_once)
    await _step(app.producer.stop(), "send what is left", at_once)
    if crashed is not None or not told.done():
        raise ComparisonError(
            f"the comparison job can't continue: {type(crashed).__name__}: {crashed}. {_next_step(crashed)}"
        )


def _next_step(crashed: BaseException | None) -> str:
    """What to do about the error that ended the job."""
    if crashed is not None and isinstance(
        cause_of(crashed), TopicAuthorizationFailedError | GroupAuthorizationFailedError
    ):
        return (
            f"Grant the user of `kafka.client` the missing permission ({PERMISSIONS}), and start the job again: all its state is "
            "in Kafka."
        )
    return "All its state is in Kafka: start it again."


async def _beat(health: Health) -> None:
    """Note that the loop turns while the tables are restored. Later, the updates note their own progress."""
    while True:
        if not health.ready:
            health.turn()
        await asyncio.sleep(HEARTBEAT)


def _watched(health: Health, stopping: threading.Event) -> Subject | None:
    """What the watchdog watches. While the broker is away, the updates may stand still; a shutdown has time limits of its own."""
    return None if stopping.is_set() or health.broker_away is not None else (health.loop, health.turned)


async def _start_and_wait(app: Any) -> None:
    await app.start()
    await app.wait_until_stopped()


async def _step(work: Awaitable[object], what: str, at_once: asyncio.Event) -> None:
    """One step of the shutdown. If it fails, nothing is lost: records whose offsets aren't committed are read again."""
    step, hurry = asyncio.ensure_future(work), asyncio.ensure_future(at_once.wait())
    await asyncio.wait({step, hurry}, timeout=STEP_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not step.done():
        step.cancel()
        log.warning(
            "shutdown: did not wait to %s%s", what, "" if at_once.is_set() else f" for more than {STEP_TIMEOUT:g} s"
        )
    elif step.cancelled():  # one of Faust's threads has ended
        log.warning("shutdown: could not %s", what)
    elif (error := step.exception()) is not None:
        log.warning("shutdown: could not %s: %s: %s", what, type(error).__name__, error)


def _log_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in one line an error of a task that no code waits for."""
    error = context.get("exception")
    log.warning("%s%s", context["message"], f": {type(error).__name__}: {error}" if error else "")


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    """Log in one line the error that ended one of Faust's threads. Its end also ends the job."""
    log.warning("thread %s: %s: %s", args.thread and args.thread.name, args.exc_type.__name__, args.exc_value)
