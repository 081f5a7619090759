"""What the commands that write a page have in common."""

from datetime import UTC, datetime
from pathlib import Path

from millstream.consumers.cli.say import say
from millstream.consumers.errors import WorkerError
from millstream.pipeline.pipeline import Pipeline


def about_page(level: float | None = None) -> list[str]:
    """The sentences below a page's heading. `level`: `rollout.level` if the page may show a rollout, whose intervals differ."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    return [f"Written by millstream on {now} UTC. All times are UTC. {_intervals(level)}"]


def _intervals(level: float | None) -> str:
    if level is None:
        return "Intervals are 95 %."
    return (
        f"Intervals are 95 %, except those of the rollout's verdicts: they hold at all looks at once, with `rollout.level: "
        f"{level:g}`."
    )


def refuse_unknown_segment(pipeline: Pipeline, segment: str | None) -> None:
    """Check that predictions have the field. Raises WorkerError."""
    if segment is not None and segment not in pipeline.output.include:
        has = ", ".join(pipeline.output.include) or "none"
        raise WorkerError(
            f"--segment {segment}: expected a field that predictions include, found another one. "
            f"{pipeline.at('output', 'include')}: {has}. Name it there, and restart the workers: later predictions have it."
        )


def refuse_unwritable(file: Path) -> None:
    """Check before the work that the page can be written. Raises WorkerError."""
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise WorkerError(f"{file}: expected a file in a folder that exists. Name another file.")


def write_page(file: Path, text: str) -> None:
    """Write the page, and say where it is. Raises WorkerError."""
    try:
        file.write_text(text, encoding="utf-8", errors="replace")  # a text from JSON may have half of a character
    except OSError as error:
        raise WorkerError(f"{file} can't be written: {error.strerror}. Name another file.") from None
    say(f"{file} written")
