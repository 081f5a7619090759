"""What a peer is told to do: one JSON file, the same for all of them, in whatever language."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Job:
    """Read events from `input`, run them through the model in micro-batches, write predictions to `output`; until SIGTERM."""

    bootstrap: str
    group: str  # a new one, which starts at the topic's beginning
    input: str
    output: str
    dead: str  # topic of events that can't be decoded
    format: Literal["avro", "json", "kserve"]  # of events; predictions have the same
    nested: bool  # events of nested.py
    schema: str  # file `<id>-<name>.avsc` of the events
    prediction_schema: str  # file `<id>-<name>.avsc`
    model_file: str
    model: str
    version: int
    inputs: list[dict[str, Any]]  # of the model: tensor, dtype, shape of one event, and `field` (an array) or `fields`
    outputs: list[dict[str, str]]  # of the model: tensor, name in the prediction
    event_id: str  # field
    event_time: str  # field
    max_events: int  # of a micro-batch
    max_wait_ms: int  # for which a micro-batch's first event waits

    def write(self, folder: Path) -> Path:
        """Write `job.json`."""
        file = folder / "job.json"
        file.write_text(json.dumps(asdict(self), indent=2))
        return file


def given_job() -> Job:
    """The job whose file is this command's one argument."""
    return Job(**json.loads(Path(sys.argv[1]).read_text()))
