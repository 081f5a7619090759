"""The errors of a pipeline file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.pipeline.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a pipeline file."""

    message: str  # what was expected, what was found, what to do
    line: int | None = None  # 1-based; None: the file as a whole
    place: str = ""  # the option, as in "batch.max_wait"
    excerpt: str = ""  # lines of the file, all printable

    def text(self, path: Path) -> str:
        """Return the problem as one line that begins with its place, for editors and terminals. Lines of the file follow it."""
        where = f"{path}:{self.line}" if self.line else f"{path}"
        text = f"{where}: {self.place}: {self.message}" if self.place else f"{where}: {self.message}"
        # Keys and names come from the file. Their line breaks and escape sequences must not reach the terminal.
        return "\n    ".join([printable(text), *self.excerpt.splitlines()])


class PipelineError(Exception):
    """A pipeline file cannot be used; raised by `load_pipeline` with every problem it found.

    Print the error (one line for each problem) and end: only its author can mend the file.
    """

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(problem.text(path) for problem in self.problems))

    def __reduce__(self) -> tuple[type[PipelineError], tuple[Path, tuple[Problem, ...]]]:
        return type(self), (self.path, self.problems)
