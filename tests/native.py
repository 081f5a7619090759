"""Tests with Millstream's native parts and without."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.schemas.native import VARIABLE, Native, choose_native

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def choose_for_tests(environ: Mapping[str, str]) -> None:
    """The choice for this run: `try` is for a new version of confluent-kafka. `off` is chosen by the tests that are for it.

    Raises ValueError for any other value, and for `off`.
    """
    if environ.get(VARIABLE) == Native.OFF:
        raise ValueError(
            f"{VARIABLE}={Native.OFF}: unset it. Tests run both ways by themselves, and some are of the native parts alone."
        )
    choose_native(environ)


@contextmanager
def with_native(*, on: bool) -> Iterator[Mapping[str, str]]:
    """Native parts on (or tried, as this run does) or off, in this process; gives what a process is told for the same."""
    environ = {VARIABLE: (os.environ.get(VARIABLE) or Native.ON) if on else Native.OFF}
    choose_native(environ)
    try:
        yield environ
    finally:
        choose_native(os.environ)
