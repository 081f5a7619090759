"""The records that Millstream writes: predictions, dead letters, comparisons, evaluations, rollouts and their evaluations.

Their schemas are in this folder.
"""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

OWN_SCHEMAS_FOLDER: Final = Path(str(resources.files("millstream.schemas")))


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """The schema of one kind of record that Millstream writes."""

    name: str  # with its version, as in the file name: prediction-v1
    reserved_id: int  # the schema ID if schemas are in a folder; a registry assigns its own IDs
    definition: dict[str, Any]  # the Avro schema, parsed from JSON


def _own_record(reserved_id: int, name: str) -> OwnRecord:
    text = (OWN_SCHEMAS_FOLDER / f"{reserved_id}-{name}.avsc").read_text(encoding="utf-8")
    return OwnRecord(name, reserved_id, json.loads(text))


PREDICTION: Final = _own_record(1_000_001, "prediction-v1")
INCLUDING_PREDICTION: Final = _own_record(1_000_005, "prediction-v2")
"""A prediction that includes fields of its event."""
ROLLOUT_PREDICTION: Final = _own_record(1_000_008, "prediction-v3")
"""A prediction of a pipeline with a rollout."""
DEAD_LETTER: Final = _own_record(1_000_002, "dead-letter-v1")
ROLLOUT_DEAD_LETTER: Final = _own_record(1_000_009, "dead-letter-v2")
"""A dead letter of a pipeline with a rollout."""
COMPARISON: Final = _own_record(1_000_003, "comparison-v1")
EVALUATION: Final = _own_record(1_000_006, "evaluation-v2")
PREDICTIONS: Final = {record.reserved_id: record for record in (PREDICTION, INCLUDING_PREDICTION, ROLLOUT_PREDICTION)}
"""The schemas of predictions, by their reserved IDs."""
DEAD_LETTERS: Final = {record.reserved_id: record for record in (DEAD_LETTER, ROLLOUT_DEAD_LETTER)}
"""The schemas of dead letters, by their reserved IDs."""
ROLLOUT: Final = _own_record(1_000_007, "rollout-v1")
ROLLOUT_EVALUATION: Final = _own_record(1_000_010, "rollout-evaluation-v1")
"""What is known of the variants of a rollout's step."""
