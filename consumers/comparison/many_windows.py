"""Says when there are too many windows, for the job's log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.consumers.comparison.join import join_settings
from millstream.consumers.comparison.metrics import LEFT_OUT
from millstream.schemas.units import written_duration

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline

MANY_WINDOWS: Final = 500


def many_windows(pipeline: Pipeline, windows: int) -> str:
    """A sentence or two about this number of windows; empty if they aren't too many."""
    if windows < MANY_WINDOWS:
        return ""
    updates = "Updates" if pipeline.labels is None else "Each has few labels, and updates"
    sentences = [
        f"there are {windows:,} windows. {updates} of the results take long: write a larger `comparison.window` "
        f"(now {written_duration(pipeline.comparison.window)}) into {pipeline.path.name}"
    ]
    most = join_settings(pipeline, None).most_windows
    if windows >= most:
        sentences.append(
            f"A partition has at most {most:,} open windows. Comparisons of older windows are left out: "
            f"{LEFT_OUT.name} counts them with the reason late"
        )
    return ". ".join(sentences)
