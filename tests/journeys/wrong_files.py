"""Wrong files and wrong addresses: each message says what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
SAMPLE = '{"id": "a", "amount": 1.5}\n'
# A word of the next step that the message must tell, in lower case.
NEXT_STEP = (
    "write",
    "put",
    "export",
    "run",
    "git lfs",
    "set",
    "install",
    "check",
    "remove",
    "use",
    "name",
    "replace",
    "correct",
    "did you mean",
)


def travel(journey: Journey) -> None:
    journey.write("events.jsonl", SAMPLE)
    journey.write("model.onnx", POINTER)
    refused(journey, "millstream init pointer --model model.onnx --sample events.jsonl", "git lfs")
    journey.write("model.pkl", "x")
    refused(journey, "millstream init pickle --model model.pkl --sample events.jsonl", "onnx")
    refused(journey, "millstream init missing --model nothing.onnx --sample events.jsonl", "nothing.onnx")
    journey.write("empty.jsonl", "")
    journey.write("model.py", "class Model:\n    def predict(self, inputs):\n        return inputs\n")
    refused(journey, "millstream init empty --model model.py --sample empty.jsonl", "empty.jsonl")
    journey.write("broken.jsonl", '{"id": "a", "amount": }\n')
    refused(journey, "millstream init broken --model model.py --sample broken.jsonl", "broken.jsonl")
    journey.run("millstream init good")
    journey.run("millstream init good", expect=1)
    pipeline = (journey.folder / "good" / "pipeline.yaml").read_text()
    journey.write("good/pipeline.yaml", pipeline.replace("\n  topics:", "\n\ttopics:"))
    refused(journey, "millstream check good --offline", "tab")
    journey.write("good/pipeline.yaml", pipeline.replace("max_wait", "max_wiat"))
    refused(journey, "millstream check good --offline", "max_wait")
    journey.write("good/pipeline.yaml", "\ufeff" + pipeline)
    journey.run("millstream check good --offline")
    journey.write("good/pipeline.yaml", pipeline)
    journey.write("nan.jsonl", '{"id": NaN}\n')
    refused(journey, "millstream predict good nan.jsonl", "nan")
    for command in ("topics show", "check", "lag"):
        refused(journey, f"KAFKA_BOOTSTRAP=127.0.0.1:1 millstream {command} good", "127.0.0.1:1")
    refused(journey, "KAFKA_BOOTSTRAP=no-such-host.invalid:9092 millstream topics show good", "no-such-host")
    refused(journey, "millstream compare good", "shadow")


def refused(journey: Journey, command: str, word: str) -> None:
    """The command fails, and its message names the word and a next step."""
    message = journey.run(command, expect=1).lower()
    assert word in message, f"{command} doesn't name `{word}`:\n{message}"
    assert any(step in message for step in NEXT_STEP), f"{command} tells no next step:\n{message}"
