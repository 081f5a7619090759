"""Runs the Faust app in this process until it is told to stop, without Faust's own command line."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any

from millstream.consumers.comparison.errors import ComparisonError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import faust

log = logging.getLogger("millstream")

STEP_TIMEOUT = 10.0  # seconds that each step of the end may take


def run_until_stopped(app: faust.App) -> None:
    """Run; SIGTERM and SIGINT end it in order. Once in a process: what Faust leaves behind ends with that.

    Raises:
        ComparisonError: it can't go on. Everything it knew is in Kafka, so it may be started again.
    """
    threading.excepthook = _say_of_thread
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_say)
    try:
        # The app's own `stop` may wait for its tables for ever (faust-streaming 0.15.3), so its tasks are left where they are.
        loop.run_until_complete(_run(app, loop))
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)


async def _run(app: Any, loop: asyncio.AbstractEventLoop) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    app.finalize()
    running = asyncio.create_task(_start_and_wait(app))
    stopping = asyncio.create_task(told.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    crashed = app.crash_reason or (running.exception() if running.done() else None)
    if crashed is None:
        log.info("stopping")
        await _step(app.consumer.commit(), "commit")
    await _step(app.consumer.stop(), "leave the group")
    await _step(app.producer.stop(), "send what is left")
    if crashed is not None or not told.is_set():
        raise ComparisonError(
            f"the comparison job can't go on: {type(crashed).__name__}: {crashed}. What it knew is in Kafka: start it again."
        )


async def _start_and_wait(app: Any) -> None:
    await app.start()
    await app.wait_until_stopped()


async def _step(work: Awaitable[object], what: str) -> None:
    """One step of the end. What fails is no harm: the offsets are committed after what they stand for, so it is read again."""
    try:
        await asyncio.wait_for(work, STEP_TIMEOUT)
    except Exception as error:
        log.warning("could not %s at the end: %s: %s", what, type(error).__name__, error)


def _say(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waited for, in one line."""
    error = context.get("exception")
    log.warning("%s%s", context["message"], f": {type(error).__name__}: {error}" if error else "")


def _say_of_thread(args: threading.ExceptHookArgs) -> None:
    """What ended one of Faust's threads, in one line; that it ended ends the job."""
    log.warning("thread %s: %s: %s", args.thread and args.thread.name, args.exc_type.__name__, args.exc_value)
