"""Wrong files and wrong addresses: each message says what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.journeys.journey import json_lines

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
MODEL = """\
class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        return {"score": inputs["numbers"][:, 0]}
"""
SHADOW = "\nshadows:\n  - version: 2\n"
LABELS = """
labels:
  topic: flights-arrivals
  schema: flight-departure
  event_id: id
  value: carrier
"""
TORCH = "inputs: [{tensor: numbers, fields: [amount], dtype: float32}]\noutputs: [{tensor: score}]\n"
TEXTS = """\
inputs: [{tensor: numbers, field: title, tokenizer: tokenizer.json, dtype: int64, max_length: 8}]
outputs: [{tensor: score}]
"""


def travel(journey: Journey) -> None:
    journey.write("events.jsonl", json_lines([{"id": "a", "amount": 1.5}]))
    journey.write("model.py", MODEL)
    models(journey)
    samples(journey)
    journey.run("millstream init good")
    refused(journey, "millstream init good", "Choose another name.")
    pipeline_files(journey)
    addresses(journey)
    comparisons(journey)
    torch_files(journey)
    missing_extra(journey)


def models(journey: Journey) -> None:
    """Files that are no model."""
    init = "millstream init broken --sample events.jsonl --model"
    journey.write("model.onnx", POINTER)
    refused(journey, f"{init} model.onnx", "Get the model: git lfs pull")
    journey.write("model.pkl", "x\n")
    refused(journey, f"{init} model.pkl", "Convert it to ONNX where you trained it")
    refused(journey, f"{init} nothing.onnx", "Name the model's file, such as model.onnx.")


def samples(journey: Journey) -> None:
    """Files that are no events."""
    init = "millstream init broken --model model.py --sample"
    journey.write("empty.jsonl", "")
    refused(journey, f"{init} empty.jsonl", "Put some of your events there.")
    journey.write("broken.jsonl", '{"id": "a", "amount": }\n')
    refused(journey, f"{init} broken.jsonl", "broken.jsonl:1", "Correct the line.")


def pipeline_files(journey: Journey) -> None:
    """Mistakes in pipeline.yaml and in an event file."""
    check = "millstream check good --offline"
    journey.change("good/pipeline.yaml", "\n  topics:", "\n\ttopics:")
    refused(journey, check, "good/pipeline.yaml:14", "Replace it with spaces.")
    journey.change("good/pipeline.yaml", "\n\ttopics:", "\n  topics:")
    journey.change("good/pipeline.yaml", "max_wait", "max_wiat")
    refused(journey, check, "good/pipeline.yaml:34", "Did you mean max_wait?")
    journey.change("good/pipeline.yaml", "max_wiat", "max_wait")
    journey.change("good/pipeline.yaml", "# Will this", "\ufeff# Will this")  # as some editors on Windows save a file
    journey.run(check)
    journey.write("nan.jsonl", '{"id": NaN}\n')
    refused(journey, "millstream predict good nan.jsonl", "expected text, found nan", "no_event: correct these lines")


def addresses(journey: Journey) -> None:
    """Nothing listens there, or the host has no such name."""
    nobody = "KAFKA_BOOTSTRAP=127.0.0.1:1 millstream"
    start = (
        "Nothing listens there. Start a broker (`millstream broker`), or correct `kafka.bootstrap` in the pipeline file"
    )
    refused(journey, f"{nobody} topics show good", "127.0.0.1:1", start)
    refused(journey, f"{nobody} check good", "127.0.0.1:1", start)
    refused(journey, f"{nobody} lag good", "127.0.0.1:1", "Start a broker (`millstream broker`)")
    refused(
        journey,
        "KAFKA_BOOTSTRAP=no-such-host.invalid:9092 millstream topics show good",
        "no-such-host.invalid:9092",
        "Correct the host's name in `kafka.bootstrap`",
    )


def comparisons(journey: Journey) -> None:
    """A comparison without a shadow, and labels whose field is a text."""
    refused(journey, "millstream compare good", "there are no shadows to compare. Write `shadows:`")
    refused(journey, "millstream compare good --show", "there are no shadows to compare. Write `shadows:`")
    journey.change("good/pipeline.yaml", "\nbatch:\n", f"{SHADOW}{LABELS}\nbatch:\n")
    # A worker would start, because it doesn't read the labels.
    told = journey.run("millstream check good --offline")
    for text in (
        "field `carrier` of schema `flight-departure` is text",
        "write `task: multiclass` under `comparison:`",
    ):
        assert text in told, f"`check` doesn't say `{text}`:\n{told}"


def torch_files(journey: Journey) -> None:
    """A torch model, whose mapping has to be written, and whose author has to be trusted."""
    journey.write("model.pt2", "x\n")
    journey.run("millstream init scores --model model.pt2 --sample events.jsonl")
    refused(
        journey,
        "millstream check scores --offline",
        "models/scores/1/config.yaml:4",
        "the placeholder TODO. Fill it in.",
    )
    journey.write("scores/models/scores/1/config.yaml", TORCH)
    refused(journey, "millstream check scores --offline", "Write `trust: true` under `model:`")


def missing_extra(journey: Journey) -> None:
    """A model that takes texts, in an environment without the package tokenizers."""
    journey.run("millstream init texts --model model.py --sample events.jsonl")
    journey.write("texts/models/texts/1/config.yaml", TEXTS)
    journey.write("texts/models/texts/1/tokenizer.json", "{}\n")
    refused(journey, "millstream check texts --offline", "extra `text`")


def refused(journey: Journey, command: str, *expected: str) -> None:
    """The command fails, and its message has each of these texts; the last one is the next step."""
    message = journey.run(command, expect=1)
    for text in expected:
        assert text in message, f"{command} doesn't say `{text}`:\n{message}"
