"""The executor on a real server, and on the one in this process: both answer alike, so the latter stands for the former."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.servers.llama_server import LlamaServer, missing
from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, ModelRejected
from millstream.inference.executors.interface import AsyncExecutor
from millstream.inference.executors.loop_thread import LoopThread
from tests.inference.executors.openai.models import EMBEDDING, opened, texts
from tests.inference.executors.openai.server import COUNTING, OpenAIServer, by_text, too_long

pytest.importorskip("jinja2", reason="needs the extra `openai`")

REAL = pytest.mark.skipif(missing() is not None, reason=str(missing()))
LONG = "word " * 3000
REFUSAL = "This model's maximum context length is 1024 tokens. However, you requested 15018 tokens"
ALL = ("text", "finish_reason", "input_tokens", "output_tokens")
Open = Callable[..., AsyncExecutor]
Wait = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(
    scope="module", params=["in this process", pytest.param("llama-cpp-python", marks=[REAL, pytest.mark.process])]
)
def server(request: pytest.FixtureRequest) -> Iterator[LlamaServer | OpenAIServer]:
    if request.param == "llama-cpp-python":
        with LlamaServer() as real:
            yield real
        return
    with OpenAIServer(usage_in_streams=False) as running:
        running.always = by_text({LONG: too_long(REFUSAL)}, running.complete)
        yield running


@pytest.fixture
def wait() -> Iterator[Wait]:
    thread = LoopThread("test")
    yield lambda coroutine: thread.wait_for(coroutine, 60)
    thread.close()


@pytest.fixture
def open_model(tmp_path: Path, wait: Wait) -> Iterator[Open]:
    executors: list[AsyncExecutor] = []

    def open_one(*arguments: Any, **options: Any) -> AsyncExecutor:
        executors.append(opened(tmp_path, *arguments, server={"timeout": "60s"}, **options))
        return executors[-1]

    yield open_one
    for executor in executors:
        wait(executor.close())


@pytest.mark.parametrize("task", ["chat", "completion"])
@pytest.mark.parametrize("streaming", [True, False])
def test_texts_are_completed(
    server: LlamaServer | OpenAIServer, open_model: Open, wait: Wait, task: str, *, streaming: bool
) -> None:
    request = {"task": task, "prompt": "{{ text }}", "streaming": streaming, "parameters": {"temperature": 0}}
    executor = open_model(server.url, request)
    wait(executor.warm_up())
    found = wait(executor.run(texts("hi"), 60))["text"].tolist()
    assert [text.strip() for text in found] == [COUNTING.strip()]


def test_the_text_decides_the_answer(server: LlamaServer | OpenAIServer, open_model: Open, wait: Wait) -> None:
    executor = open_model(server.url, {"task": "completion", "prompt": "{{ text }}"})
    assert [wait(executor.run(texts(text), 60))["text"].tolist() for text in ("x +", "x -")] == [[" pos"], [" neg"]]


def test_tokens_come_without_streaming(server: LlamaServer | OpenAIServer, open_model: Open, wait: Wait) -> None:
    executor = open_model(server.url, outputs=ALL)
    found = wait(executor.run(texts("hi"), 60))
    assert found["finish_reason"].tolist() == ["stop"]
    assert found["output_tokens"].tolist() == [10]
    assert found["input_tokens"][0] > 0


def test_a_text_that_is_cut_off_is_rejected(server: LlamaServer | OpenAIServer, open_model: Open, wait: Wait) -> None:
    executor = open_model(server.url, {"prompt": "{{ text }}", "parameters": {"max_tokens": 3}})
    with pytest.raises(ModelRejected, match=r"ended with `length`"):
        wait(executor.run(texts("hi"), 60))


def test_a_prompt_that_is_too_long_is_rejected(
    server: LlamaServer | OpenAIServer, open_model: Open, wait: Wait
) -> None:
    with pytest.raises(
        ModelRejected, match=r"the prompt is too long for the model: .*maximum context length is 1024 tokens"
    ):
        wait(open_model(server.url).run(texts(LONG), 60))


def test_64_requests_are_in_flight(server: LlamaServer | OpenAIServer, open_model: Open, wait: Wait) -> None:
    executor = open_model(server.url)

    async def all_at_once() -> Any:
        return await asyncio.gather(*(executor.run(texts(f"{at}"), 60) for at in range(64)))

    assert {one["text"].tolist()[0].strip() for one in wait(all_at_once())} == {COUNTING.strip()}


@REAL
@pytest.mark.process
def test_a_stream_that_another_request_interrupts_is_an_outage_and_no_short_answer(
    open_model: Open, wait: Wait
) -> None:
    with LlamaServer(interrupts=True) as server:
        executor = open_model(server.url)

        async def all_at_once() -> Any:
            requests = (executor.run(texts(f"{at}"), 60) for at in range(32))
            return await asyncio.gather(*requests, return_exceptions=True)

        found = wait(all_at_once())
    outages = [one for one in found if isinstance(one, ExecutorUnavailable)]
    whole = [one["text"].tolist()[0].strip() for one in found if isinstance(one, dict)]
    assert len(outages) + len(whole) == 32
    assert outages
    assert set(whole) <= {COUNTING.strip()}


@REAL
@pytest.mark.process
def test_a_json_schema_constrains_a_real_server(open_model: Open, wait: Wait) -> None:
    pytest.importorskip("jsonschema_rs", reason="needs the extra `json-schema`")
    schema = {"type": "object", "properties": {"team": {"enum": ["billing", "bug"]}}, "required": ["team"]}
    request = {"prompt": "{{ text }}", "json_schema": schema, "response_format": "json_object", "streaming": False}
    with LlamaServer() as server:
        executor = open_model(server.url, request, outputs=("team",))
        assert wait(executor.run(texts("hi"), 60))["team"].tolist()[0] in {"billing", "bug"}


@REAL
@pytest.mark.process
def test_embeddings_of_a_micro_batch(open_model: Open, wait: Wait) -> None:
    with LlamaServer(embedding=True) as server:
        executor = open_model(server.url, EMBEDDING, outputs=("embedding",))
        wait(executor.warm_up())
        found = wait(executor.run(texts("one", "two", "one"), 60))["embedding"]
        assert (found.shape, found.dtype) == ((3, 384), np.dtype(np.float32))
        assert np.allclose(found[0], found[2])
        assert not np.allclose(found[0], found[1])


@REAL
@pytest.mark.process
def test_a_server_of_embeddings_completes_nothing(open_model: Open, wait: Wait) -> None:
    with LlamaServer() as server, pytest.raises((ExecutorUnavailable, ModelRejected, ModelConfigError)):
        wait(open_model(server.url, EMBEDDING, outputs=("embedding",)).run(texts("one"), 60))
