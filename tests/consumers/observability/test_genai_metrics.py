"""What the metrics note of a request to a language model."""

import pytest

from millstream.consumers.observability.genai_metrics import (
    FIRST_TOKEN_SECONDS,
    OUTPUT_TOKEN_SECONDS,
    REQUEST_SECONDS,
    TOKEN_USAGE,
    observations,
)
from millstream.inference.executors.request_report import RequestReport


def test_a_streamed_completion() -> None:
    report = RequestReport("chat", "tiny", 2.0, time_to_first_token=0.5, input_tokens=7, output_tokens=4)
    labels = ("chat", "tiny")
    assert list(observations(report)) == [
        (REQUEST_SECONDS, 2.0, (*labels, "")),
        (FIRST_TOKEN_SECONDS, 0.5, labels),
        (OUTPUT_TOKEN_SECONDS, 0.5, labels),
        (TOKEN_USAGE, 7, (*labels, "input")),
        (TOKEN_USAGE, 4, (*labels, "output")),
    ]


@pytest.mark.parametrize("tokens", [None, 0, 1])
def test_fewer_than_two_tokens_have_no_time_between_them(tokens: int | None) -> None:
    assert RequestReport("chat", "tiny", 2.0, 0.5, output_tokens=tokens).time_per_output_token is None


def test_a_failure() -> None:
    report = RequestReport("embeddings", "tiny", 0.1, error="Throttled")
    assert list(observations(report)) == [(REQUEST_SECONDS, 0.1, ("embeddings", "tiny", "Throttled"))]
