"""Declares the metrics of requests to models that complete or embed texts, after OpenTelemetry's conventions for generative AI.

The conventions are still in development, so their names, labels and buckets are in this file only:
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-metrics.md
"""

from collections.abc import Iterator

from millstream.consumers.observability.metric import Metric
from millstream.inference.executors.request_report import RequestReport

_LABELS = ("gen_ai_operation_name", "gen_ai_request_model")
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304)

REQUEST_SECONDS = Metric(
    "millstream_gen_ai_client_operation_duration_seconds",
    "histogram",
    "Time of a request for a completion or for embeddings, until the answer was whole or the request failed (`error_type`).",
    (*_LABELS, "error_type"),
    _SECONDS,
)
FIRST_TOKEN_SECONDS = Metric(
    "millstream_gen_ai_client_operation_time_to_first_chunk_seconds",
    "histogram",
    "Time from a request until the first text that is not empty, of streamed completions.",
    _LABELS,
    _FIRST,
)
OUTPUT_TOKEN_SECONDS = Metric(
    "millstream_gen_ai_client_operation_time_per_output_token_seconds",
    "histogram",
    "Time per token after the first one, of a streamed completion: (duration - time to the first one) / (tokens - 1).",
    _LABELS,
    _TOKEN_SECONDS,
)
TOKEN_USAGE = Metric(
    "millstream_gen_ai_client_token_usage",
    "histogram",
    "Tokens of a request, as the server reports them: input or output (`gen_ai_token_type`).",
    (*_LABELS, "gen_ai_token_type"),
    _TOKENS,
)

Observation = tuple[Metric, float, tuple[str, ...]]
"""A metric, a value, and the values of its labels."""


def observations(report: RequestReport) -> Iterator[Observation]:
    """What the metrics note of a request."""
    labels = report.operation, report.model
    yield REQUEST_SECONDS, report.seconds, (*labels, report.error)
    if report.time_to_first_token is not None:
        yield FIRST_TOKEN_SECONDS, report.time_to_first_token, labels
    if report.time_per_output_token is not None:
        yield OUTPUT_TOKEN_SECONDS, report.time_per_output_token, labels
    if report.input_tokens is not None:
        yield TOKEN_USAGE, report.input_tokens, (*labels, "input")
    if report.output_tokens is not None:
        yield TOKEN_USAGE, report.output_tokens, (*labels, "output")
