"""A server with OpenAI's API that streams ten tokens as fast as it can: it has no model, so it shows what a client costs.

`python -m benchmarks.servers.counting_server` prints its URL, and runs until its standard input ends.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Self

from benchmarks.environments import ROOT

if TYPE_CHECKING:
    from types import TracebackType


class CountingServer:
    """The server, in a process of its own, until it is left. Its model is called `tiny`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the counting server ended with status {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=30)  # it closes the standard input


def main() -> None:
    from tests.inference.executors.openai.server import OpenAIServer  # noqa: PLC0415

    with OpenAIServer(keeps_requests=False) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
