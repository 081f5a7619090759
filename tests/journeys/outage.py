"""An outage: the broker is killed and comes back while a worker runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.topics.local.kafka import LocalKafka
from tests.journeys.journey import json_lines

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

CACHE = Path(__file__).parents[2] / ".cache"
MODEL = """\
class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        return {"score": inputs["numbers"][:, 0] * 2}
"""


def travel(journey: Journey) -> None:
    """`millstream broker` deletes its data when it ends, so the journey starts a broker that keeps them."""
    journey.write("model.py", MODEL)
    journey.write("events.jsonl", json_lines([{"id": f"e{i}", "amount": i / 2} for i in range(2000)]))
    with LocalKafka(CACHE) as kafka:
        journey.variables["KAFKA_BOOTSTRAP"] = kafka.bootstrap
        journey.run("millstream init outage --model model.py --sample events.jsonl")
        config = "outage/models/outage/1/config.yaml"
        journey.write(
            config, "inputs: [{tensor: numbers, fields: [amount], dtype: float64}]\noutputs: [{tensor: score}]\n"
        )
        journey.run("millstream topics create outage --partitions 2")
        worker = journey.start("exec millstream work outage")
        worker.wait_for("ready")
        journey.run("head -1000 events.jsonl | millstream produce outage")
        kafka.kill()
        journey.run("millstream lag outage", expect=1)
        kafka.start()
        journey.run("tail -1000 events.jsonl | millstream produce outage")
        journey.run("millstream tail outage --from-beginning --limit 2000 --timeout 60 --json > predictions.jsonl")
        assert "2,000 predicted" in worker.stop().replace("2000 predicted", "2,000 predicted")
    # At least once: a result whose commit the outage cut off may be there twice, and is the same then.
    expected = {f"e{i}": float(i) for i in range(2000)}
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]))
