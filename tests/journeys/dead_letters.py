"""Avro with a folder of schemas: dead letters are shown, their cause is mended, and they are replayed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.journeys.journey import Journey


def travel(journey: Journey) -> None:
    journey.run("millstream init flights")
    events = journey.rows("flights/events.jsonl")
    broken = {str(row["id"]) for row in events[:5]}
    for row in events[:5]:
        row["distance"] = float("inf")
    (journey.folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in events))
    journey.run("cat flights/pipeline.yaml")
    journey.run("millstream topics create flights --partitions 2")
    journey.run("millstream produce flights events.jsonl")
    output = journey.run("millstream work flights --until-idle")
    assert f"{len(events) - 5} predicted, 5 dead letters" in output
    advised = re.search("millstream dead-letters list .*", output)
    assert advised, output
    assert "5" in journey.run(advised[0]).splitlines()[-1]
    listed = journey.run("millstream dead-letters list flights --json")
    letters = [json.loads(line) for line in listed.splitlines() if line.startswith("{")]
    assert len(letters) == 5
    assert {letter["reason"] for letter in letters} == {"unfit"}
    journey.run(f"millstream dead-letters show flights {letters[0]['position']}")
    journey.run("millstream dead-letters replay flights --reason unfit --dry-run")
    journey.change("flights/pipeline.yaml", "model:\n", "model:\n  allow_nan: true\n")
    journey.run("millstream dead-letters replay flights --reason unfit --yes")
    assert "5 predicted" in journey.run("millstream work flights --until-idle")
    journey.run(
        f"millstream tail flights --from-beginning --limit {len(events)} --timeout 20 --json > predictions.jsonl"
    )
    found = [str(row["value"]["event_id"]) for row in journey.rows("predictions.jsonl")]
    assert sorted(found) == sorted(str(row["id"]) for row in events)
    assert broken < set(found)
    journey.checked(f"each of the {len(events)} events has exactly one prediction, the 5 replayed ones, too")
    left = journey.run("millstream dead-letters list flights")
    assert "unfit" not in left, left
