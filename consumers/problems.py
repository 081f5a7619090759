"""Collects the problems of several checks, so that one failure doesn't hide the others."""

from typing import Self

from millstream.consumers.errors import PlanError, WorkerError
from millstream.inference.errors import InferenceError
from millstream.schemas.errors import SchemaError
from millstream.topics.errors import TopicsError


class Problems:
    """The messages of the checks that failed, each once. `with problems:` notes the error of a check, and swallows it."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        """Note the error, and go on behind the block."""
        if not isinstance(error, WorkerError | InferenceError | SchemaError | TopicsError):
            return False
        self.add(str(error))
        return True

    def add(self, message: str) -> None:
        """Note a problem. Some errors list several, one a line: some of these may be known already."""
        known = {line for each in self.messages for line in each.splitlines()}
        new = [line for line in message.splitlines() if line not in known]
        if new:
            self.messages.append("\n".join(new))

    def raise_all(self) -> None:
        """Raise PlanError with all messages, if there are any."""
        if self.messages:
            raise PlanError("\n".join(self.messages))
