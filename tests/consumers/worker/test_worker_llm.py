"""A worker whose model is on a server with OpenAI's API: every event has one result, whatever the server does."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.servers.llama_server import LlamaServer, missing
from millstream.consumers.observability import genai_metrics
from tests.consumers.llm_service import llm_service, send
from tests.consumers.processes import Worker
from tests.consumers.service import Service, value_of
from tests.inference.executors.openai.models import ANSWER, ANSWER_SCHEMA
from tests.inference.executors.openai.server import (
    COUNTING,
    OpenAIServer,
    by_text,
    once_set,
    raw,
    refuse,
    said,
    sse,
    too_long,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("jinja2", reason="needs the extra `openai`")


def outputs_of(service: Service) -> dict[str, Any]:
    """Event -> its outputs, in the order in which they were written. Each event has one prediction."""
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    assert max(Counter(row["event_id"] for row in rows).values(), default=1) == 1
    return {row["event_id"]: row["outputs"] for row in rows}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.durable)])
def test_64_requests_are_in_flight(tmp_path: Path, kafka: Broker, server: OpenAIServer, delivery: str) -> None:
    server.always = server.answer([" a", " b"], pause=0.1)
    outputs, concurrent = ("text", "output_tokens"), {"concurrency": 64}
    service = llm_service(tmp_path, kafka, server.url, server=concurrent, outputs=outputs, delivery=delivery)
    send(service, ["hi"] * 300)
    with Worker(service.file) as worker:
        worker.wait_ready()
        service.wait_written(300)
        service.wait_committed()
        served = worker.metrics()
        assert worker.stop() == 0
    assert outputs_of(service) == {f"e{at}": {"text": " a b", "output_tokens": 2} for at in range(300)}
    assert server.most_at_once == 64
    for metric in (
        genai_metrics.REQUEST_SECONDS,
        genai_metrics.FIRST_TOKEN_SECONDS,
        genai_metrics.OUTPUT_TOKEN_SECONDS,
    ):
        assert served[f"{metric.name}_count"] >= 300
    assert served[f"{genai_metrics.TOKEN_USAGE.name}_sum"] >= 300 * 3


def test_a_slow_answer_holds_up_only_its_own_key(tmp_path: Path, kafka: Broker, server: OpenAIServer) -> None:
    release = threading.Event()
    server.always = by_text({"slow": once_set(release, server.complete)}, server.complete)
    service = llm_service(tmp_path, kafka, server.url, server={"timeout": "5m"}, ordering="key")
    send(service, ["slow"], key="e39")
    send(service, ["hi"] * 40)
    with Worker(service.file) as worker:
        worker.wait_for(lambda: len(outputs_of(service)) == 39, 60, "done with all others")
        assert "e39" not in outputs_of(service)
        release.set()
        worker.wait_for(lambda: len(service.predictions()) == 41, 60, "done with all")
        service.wait_committed()
        assert worker.stop() == 0


def test_failures_of_any_kind_only_take_time(tmp_path: Path, kafka: Broker, server: OpenAIServer) -> None:
    service = llm_service(tmp_path, kafka, server.url)
    with Worker(service.file) as worker:
        worker.wait_ready()
        server.script.extend(
            [
                raw([said(" one")]),
                raw([said(" one"), b"data: [DONE]\n\n"]),
                raw([said(" one"), b'data: {"cho'], cut=True),
                raw([said(" one"), sse({"error": {"message": "out of blocks", "code": 500}})]),
                refuse(429, {"error": {"message": "slow down"}}, Retry_After="0"),
                refuse(429, {"error": {"message": "slow down"}}, retry_after_ms="50"),
                refuse(503, "no room"),
                refuse(500, "Internal Server Error"),
                refuse(408, ""),
                refuse(404, {"error": "model is loading"}),
                refuse(200, "<html>a login page</html>"),
            ]
        )
        send(service, ["hi"] * 40)
        service.wait_committed(60)
        assert worker.stop() == 0
    assert not server.script
    assert outputs_of(service) == {f"e{at}": {"text": COUNTING} for at in range(40)}
    assert service.dead_letters() == []


def test_events_at_fault_become_dead_letters_that_say_why(tmp_path: Path, kafka: Broker, server: OpenAIServer) -> None:
    pytest.importorskip("jsonschema_rs", reason="needs the extra `json-schema`")
    good = server.answer([ANSWER])
    server.always = by_text(
        {
            "endless": server.answer([ANSWER[:9]], "length"),
            "long": too_long("Requested tokens (2056) exceed context window of 1024"),
            "filtered": server.answer(["I"], "content_filter"),
            "chatty": server.answer(["It is a bug."]),
            "wrong": server.answer([ANSWER.replace("bug", "rant")]),
        },
        good,
    )
    request = {"prompt": "{{ text }}", "json_schema": ANSWER_SCHEMA, "max_prompt_chars": 1000}
    service = llm_service(tmp_path, kafka, server.url, request=request, outputs=("category", "count"))
    texts = ["good", "endless", "long", "filtered", "chatty", "wrong", "token " * 100_000, "{{ text }}"]
    send(service, texts)
    with Worker(service.file) as worker:
        worker.wait_ready()
        service.wait_written(len(texts))
        service.wait_committed()
        assert worker.stop() == 0
    assert outputs_of(service) == {name: {"category": "bug", "count": 3} for name in ("e0", "e7")}
    letters = {(letter.key or b"").decode(): letter for letter in service.dead_letters()}
    assert {letter.reason for letter in letters.values()} == {"model_rejected"}
    for name, why in {
        "e1": "ended with `length`",
        "e2": "the prompt is too long for the model: Requested tokens (2056)",
        "e3": "ended with `content_filter`",
        "e4": "expected JSON in the completion, found 'It is a bug.'",
        "e5": "category: expected `enum`",
        "e6": "expected a prompt of at most 1,000 characters",
    }.items():
        assert why in letters[name].error


def test_a_refused_key_is_an_outage_that_never_shows_the_key(tmp_path: Path, kafka: Broker) -> None:
    with OpenAIServer(key="sk-right") as server:
        section = {"api_key": {"env": "LLM_KEY"}}
        service = llm_service(tmp_path, kafka, server.url, server=section)
        send(service, ["hi"])
        with Worker(service.file, env={"LLM_KEY": "sk-wrong"}) as worker:
            worker.wait_for(lambda: "refuses the API key" in worker.log, 60, "refused")
            assert worker.get("/ready")[0] == 503
            server.accept("sk-wrong")
            service.wait_committed(60)
            assert worker.stop() == 0
            assert "sk-" not in worker.log
    assert outputs_of(service) == {"e0": {"text": COUNTING}}


@pytest.mark.durable
@pytest.mark.parametrize("kind", ["in this process", pytest.param("llama-cpp-python", marks=pytest.mark.full)])
def test_a_server_that_is_killed_in_the_middle_of_streams_costs_nothing_but_time(
    tmp_path: Path, kafka: Broker, kind: str
) -> None:
    if kind == "llama-cpp-python" and (why := missing()):
        pytest.skip(why)
    server: LlamaServer | OpenAIServer = LlamaServer() if kind == "llama-cpp-python" else OpenAIServer()
    with server:
        if isinstance(server, OpenAIServer):
            server.always = server.answer([f" {word}" for word in COUNTING.split()], pause=0.05)
        service = llm_service(tmp_path, kafka, server.url, server={"concurrency": 64}, delivery="exactly_once")
        send(service, ["hi"] * 200)
        with Worker(service.file) as worker:
            worker.wait_ready()
            for more in (20, 60):
                service.wait_written(more)
                server.kill()
                worker.wait_for(lambda: worker.get("/ready")[0] == 503, 60, "waiting for the server")
                server.start()
            service.wait_committed(120)
            assert worker.stop() == 0
    assert outputs_of(service) == {f"e{at}": {"text": COUNTING} for at in range(200)}
    assert service.dead_letters() == []
