"""The executor `openai` on a server in this process, which answers as a real one and fails as real ones do."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, ModelRejected, Throttled
from millstream.inference.executors.interface import AsyncExecutor
from millstream.inference.executors.loop_thread import LoopThread
from millstream.inference.executors.request_report import RequestReport
from millstream.inference.ragged import Ragged
from tests.inference.executors.openai.models import ANSWER, ANSWER_SCHEMA, EMBEDDING, TEXT_INPUT, opened, texts
from tests.inference.executors.openai.server import (
    COUNTING,
    OpenAIServer,
    by_text,
    hang,
    hang_up,
    raw,
    refuse,
    said,
    sse,
    too_long,
)

T = TypeVar("T")
Wait = Callable[[Coroutine[Any, Any, T]], T]
Open = Callable[..., AsyncExecutor]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def wait() -> Iterator[Wait[Any]]:
    """Runs a coroutine on the loop of the test."""
    thread = LoopThread("test")
    yield lambda coroutine: thread.wait_for(coroutine, 30)
    thread.close()


@pytest.fixture
def open_model(tmp_path: Path, wait: Wait[Any]) -> Iterator[Open]:
    """Opens executors, and closes them after the test."""
    executors: list[AsyncExecutor] = []

    def open_one(*arguments: Any, **options: Any) -> AsyncExecutor:
        executors.append(opened(tmp_path, *arguments, **options))
        return executors[-1]

    yield open_one
    for executor in executors:
        wait(executor.close())


@pytest.fixture
def ask(wait: Wait[Any]) -> Callable[..., dict[str, Any]]:
    def run(executor: AsyncExecutor, *given: str, timeout: float = 5.0) -> dict[str, Any]:
        outputs = wait(executor.run(texts(*given), timeout))
        return {name: array.tolist() for name, array in outputs.items()}

    return run


Ask = Callable[..., dict[str, Any]]


# -- completions


def test_a_chat_answers_with_the_text(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    assert ask(open_model(server.url), "hi") == {"text": [COUNTING]}
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_messages_parameters_and_headers_are_sent(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    request = {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say {{ text }}"}],
        "parameters": {"temperature": 0, "max_tokens": 64, "stop": ["\n"]},
        "streaming": False,
    }
    more = {"api_key": "sk-secret", "headers": {"X-Team": "blue"}}
    ask(open_model(server.url, request, server=more), "hi")
    (asked,) = server.asked
    assert asked.body == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hi"}],
        **request["parameters"],  # type: ignore[dict-item]
    }
    assert asked.headers["Authorization"] == "Bearer sk-secret"
    assert asked.headers["X-Team"] == "blue"


@pytest.mark.parametrize("streaming", [True, False])
def test_a_completion_answers_with_the_text(
    open_model: Open, server: OpenAIServer, ask: Ask, *, streaming: bool
) -> None:
    request = {"task": "completion", "prompt": "{{ text }} ->", "streaming": streaming}
    outputs = ("text", "finish_reason", "input_tokens", "output_tokens")
    found = ask(open_model(server.url, request, outputs=outputs), "hi")
    assert found == {"text": [COUNTING], "finish_reason": ["stop"], "input_tokens": [2], "output_tokens": [10]}
    assert server.asked[0].path == "/v1/completions"
    assert server.asked[0].body["prompt"] == "hi ->"


def test_tokens_of_a_server_that_reports_none_in_streams_come_without_streaming(open_model: Open, ask: Ask) -> None:
    with OpenAIServer(usage_in_streams=False) as server:
        executor = open_model(server.url, outputs=("text", "output_tokens"))
        assert ask(executor, "hi") == {"text": [COUNTING], "output_tokens": [10]}
        assert ask(executor, "+") == {"text": [" pos"], "output_tokens": [1]}
        assert ["stream" in asked.body for asked in server.asked] == [True, False, False]


def test_a_stream_that_is_cut_behind_its_text_does_not_end_streaming(
    open_model: Open, server: OpenAIServer, ask: Ask
) -> None:
    executor = open_model(server.url, outputs=("text", "output_tokens"))
    server.script.append(raw([said(COUNTING, "stop")], cut=True))  # the tokens would have come behind it
    assert ask(executor, "hi") == {"text": [COUNTING], "output_tokens": [10]}
    assert ask(executor, "+") == {"text": [" pos"], "output_tokens": [1]}
    assert ["stream" in asked.body for asked in server.asked] == [True, False, True]


def test_a_text_that_is_cut_off_is_rejected_unless_that_is_accepted(
    open_model: Open, server: OpenAIServer, ask: Ask
) -> None:
    request = {"prompt": "{{ text }}", "parameters": {"max_tokens": 3}}
    with pytest.raises(ModelRejected, match="ended with `length`"):
        ask(open_model(server.url, request), "hi")
    accepting = open_model(server.url, {**request, "accept_finish_reasons": ["length"]})
    assert ask(accepting, "hi") == {"text": [" one two three"]}


def test_several_events_are_asked_for_one_by_one(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    executor = open_model(server.url)
    assert executor.max_events == 1
    assert ask(executor, "+", "-", "+") == {"text": [" pos", " neg", " pos"]}


def test_64_requests_are_in_flight(open_model: Open, server: OpenAIServer, wait: Wait[Any]) -> None:
    server.always = server.answer([" a", " b"], pause=0.2)
    executor = open_model(server.url)

    async def all_at_once() -> Any:
        return await asyncio.gather(*(executor.run(texts(f"{at}"), 20) for at in range(64)))

    assert [one["text"].tolist() for one in wait(all_at_once())] == [[" a b"]] * 64
    assert server.most_at_once == 64


def test_numbers_and_lists_are_values_of_the_template(open_model: Open, server: OpenAIServer, wait: Wait[Any]) -> None:
    inputs = [
        {"tensor": "pair", "fields": ["a", "b"], "dtype": "float32"},
        {"tensor": "lines", "field": "lines", "dtype": "string", "max_length": 5},
    ]
    request = {"prompt": "{{ pair[0] }} {{ pair | length }} {{ lines | join('/') }}"}
    executor = open_model(server.url, request, inputs=inputs)
    lines = Ragged.of_lengths(np.array(["x", "y"], object), np.array([2]))
    inputs_of_one: dict[str, Any] = {"pair": np.array([[0.1, 2]], np.float32), "lines": lines}
    wait(executor.run(inputs_of_one, 5))
    assert server.asked[0].text == "0.1 2 x/y"


# -- answers in JSON


def json_request(**more: Any) -> dict[str, Any]:
    pytest.importorskip("jsonschema_rs", reason="needs the extra `json-schema`")
    return {"prompt": "{{ text }}", "json_schema": ANSWER_SCHEMA, **more}


def test_values_of_the_answer_are_outputs(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    server.always = server.answer([ANSWER[:20], ANSWER[20:]])
    found = ask(open_model(server.url, json_request(), outputs=("category", "count", "place.city")), "it crashes")
    assert found == {"category": ["bug"], "count": [3], "place.city": ["Oslo"]}
    form = server.asked[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"] == ANSWER_SCHEMA


def test_the_schema_may_be_in_a_file(open_model: Open, tmp_path: Path, server: OpenAIServer, ask: Ask) -> None:
    pytest.importorskip("jsonschema_rs", reason="needs the extra `json-schema`")
    folder = tmp_path / "llm" / "1"
    folder.mkdir(parents=True)
    (folder / "answer.json").write_text(
        '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    )
    server.always = server.answer(['{"a": 7}'])
    request = {"prompt": "{{ text }}", "json_schema": "answer.json", "response_format": "json_object"}
    assert ask(open_model(server.url, request, outputs=("a",)), "x") == {"a": [7]}
    assert server.asked[0].body["response_format"]["type"] == "json_object"


def test_an_answer_that_does_not_fit_is_rejected(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    executor = open_model(server.url, json_request(response_format="none"), outputs=("category",))
    with pytest.raises(ModelRejected, match="expected JSON in the completion, found '"):
        ask(executor, "it crashes")
    assert "response_format" not in server.asked[0].body
    assert len(server.asked) == 1


def test_a_repair_is_tried_once_with_the_fault(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    outputs = ("category", "output_tokens")
    executor = open_model(server.url, json_request(repair=True), outputs=outputs)
    server.script.extend([server.answer(["a bug"]), server.answer([ANSWER[:5], ANSWER[5:]])])
    assert ask(executor, "it crashes") == {"category": ["bug"], "output_tokens": [3]}
    first, second = server.asked
    assert second.body["messages"][:2] == [*first.body["messages"], {"role": "assistant", "content": "a bug"}]
    assert "expected JSON in the completion" in second.text
    server.script.extend([server.answer(["a bug"]), server.answer(["still a bug"])])
    with pytest.raises(ModelRejected, match="expected JSON in the completion, found '"):
        ask(executor, "it crashes")
    assert len(server.asked) == 4


# -- embeddings


def test_embeddings_of_a_micro_batch_come_in_one_request(
    open_model: Open, server: OpenAIServer, wait: Wait[Any]
) -> None:
    executor = open_model(server.url, EMBEDDING, outputs=("embedding",), max_events=64)
    assert executor.max_events == 64
    found = wait(executor.run(texts("a", "bbb", "cc"), 5))["embedding"]
    assert found.dtype == np.float32
    assert found.shape == (3, 384)
    assert found[:, 0].tolist() == [1, 3, 2]
    assert [asked.body["input"] for asked in server.asked] == [["a", "bbb", "cc"]]


@pytest.mark.parametrize(
    "body",
    [
        {"data": []},
        {"data": [{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}]},
        {"data": [{"embedding": [1.0], "index": 0}, {"embedding": [1.0], "index": 0}]},
        {"data": [{"embedding": "AACAPw=="}, {"embedding": "AACAPw=="}]},
        {"choices": []},
    ],
)
def test_a_response_that_has_no_embedding_for_each_text_is_an_outage(
    open_model: Open, server: OpenAIServer, ask: Ask, body: Any
) -> None:
    server.script.append(refuse(200, body))
    with pytest.raises(ExecutorUnavailable, match="embedding"):
        ask(open_model(server.url, EMBEDDING, outputs=("embedding",)), "a", "b")


# -- what goes wrong


@pytest.mark.parametrize(
    "act",
    [
        raw([said(" one")]),
        raw([said(" one"), b"data: [DONE]\n\n"]),
        raw([said(" one"), b'data: {"choi'], cut=True),
        refuse(500, "Internal Server Error"),
        refuse(302, "", Location="http://elsewhere/"),
    ],
    ids=["truncated", "interrupted", "cut", "500", "redirect"],
)
def test_an_answer_that_is_not_whole_is_an_outage(open_model: Open, server: OpenAIServer, ask: Ask, act: Any) -> None:
    executor = open_model(server.url)
    server.script.append(act)
    with pytest.raises(ExecutorUnavailable):
        ask(executor, "hi")
    assert ask(executor, "hi") == {"text": [COUNTING]}


def test_connections_are_used_again(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    executor = open_model(server.url)
    for _ in range(5):
        ask(executor, "hi")
    assert len({asked.request.transport for asked in server.asked}) == 1


def test_a_stream_without_anything_is_asked_for_again_without_streaming(
    open_model: Open, server: OpenAIServer, ask: Ask
) -> None:
    executor = open_model(server.url)
    server.script.extend([raw([], cut=True), refuse(400, {"error": {"message": "exceed context window"}})])
    with pytest.raises(ModelRejected, match="the prompt is too long for the model: exceed context window"):
        ask(executor, "hi")
    assert ["stream" in asked.body for asked in server.asked] == [True, False]


def test_a_connection_that_was_closed_while_it_was_idle_is_no_outage(
    open_model: Open, server: OpenAIServer, ask: Ask
) -> None:
    executor = open_model(server.url)
    ask(executor, "hi")
    server.script.append(hang_up)
    assert ask(executor, "+") == {"text": [" pos"]}


def test_a_server_that_answers_something_else_is_an_outage(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    server.always = refuse(200, "<html>a login page</html>")
    with pytest.raises(ExecutorUnavailable, match=r"something other than a completion .*server\.urls"):
        ask(open_model(server.url), "hi")


def test_pieces_comments_and_carriage_returns_make_no_difference(
    open_model: Open, server: OpenAIServer, ask: Ask
) -> None:
    whole = b": ping\r\n\r\n" + sse({"choices": [{"delta": {"content": "æøå"}}]}, b"\r\n\r\n") + said("", "stop")
    server.script.append(raw([whole[at : at + 1] for at in range(len(whole))]))
    assert ask(open_model(server.url), "hi") == {"text": ["æøå"]}


def test_a_slow_server_is_an_outage(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    server.script.append(hang(30))
    with pytest.raises(ExecutorUnavailable, match=r"did not answer within 0.3 s.*`server.timeout`"):
        ask(open_model(server.url), "hi", timeout=0.3)


def test_a_stream_that_stands_still_is_an_outage(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    server.script.append(raw([said(" a"), said(" b"), said(" c")], pause=0.3))
    with pytest.raises(ExecutorUnavailable, match=r"did not answer within 0\.5 s"):
        ask(open_model(server.url), "hi", timeout=0.5)


def test_a_server_that_is_away_is_an_outage(open_model: Open, ask: Ask) -> None:
    with OpenAIServer() as server:
        url = server.url
    with pytest.raises(ExecutorUnavailable, match=f"{url} does not answer"):
        ask(open_model(url), "hi")


def test_another_server_answers_while_one_is_away(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    with OpenAIServer() as other:
        away = other.url
    executor = open_model([away, server.url])
    assert [ask(executor, "+") for _ in range(5)] == [{"text": [" pos"]}] * 5


def test_a_prompt_that_no_server_takes_leaves_none_out(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    # Its streams are empty, as those of llama-cpp-python are if the prompt is too long.
    server.always = by_text({"long": too_long("too many tokens")}, server.complete)
    with OpenAIServer() as other:
        executor = open_model([server.url, other.url])
        for text in ("long", "hi", "long"):
            if text == "hi":
                assert ask(executor, text) == {"text": [COUNTING]}
            else:
                with pytest.raises(ModelRejected, match="too long"):
                    ask(executor, text)
        assert not other.asked, "the first server has no requests in flight, so it gets them all"


def test_a_busy_server_says_when_to_ask_again(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    server.script.append(refuse(429, {"error": {"message": "slow down"}}, Retry_After="3"))
    with pytest.raises(Throttled, match="slow down") as caught:
        ask(open_model(server.url), "hi")
    assert caught.value.retry_after == 3.0


def test_a_prompt_that_is_no_unicode_text_is_rejected(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    with pytest.raises(ModelRejected, match="surrogate"):
        ask(open_model(server.url), "half \ud800")


def test_a_prompt_that_is_too_long_is_rejected(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    executor = open_model(server.url)
    server.script.append(refuse(400, {"error": {"message": "Requested tokens exceed context window of 1024"}}))
    with pytest.raises(ModelRejected, match="the prompt is too long for the model: Requested tokens"):
        ask(executor, "hi")
    with pytest.raises(ModelRejected, match="expected a prompt of at most 100,000 characters"):
        ask(executor, "token " * 100_000)
    assert len(server.asked) == 1


# -- the start


async def _two(executor: AsyncExecutor) -> None:
    """Two requests at a time: each server gets one."""
    await asyncio.gather(*(executor.run(texts("hi"), 5.0) for _ in range(2)))


def test_the_warm_up_asks_once(open_model: Open, server: OpenAIServer, wait: Wait[Any]) -> None:
    executor = open_model(server.url)
    wait(executor.warm_up())
    assert [asked.text for asked in server.asked] == ["test"]
    assert isinstance(executor.sample_result, dict)
    assert executor.sample_result["text"].tolist() == [COUNTING], "so the worker need not ask again"


def test_each_server_is_asked_once_and_one_that_was_away_before_it_gets_events(
    open_model: Open, server: OpenAIServer, wait: Wait[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.inference.executors.endpoints.PAUSES", (0.01, 0.01))
    with OpenAIServer() as other:
        other.kill()
        executor = open_model([server.url, other.url])
        wait(executor.warm_up())
        other.start()
        deadline = time.monotonic() + 20
        while not any(asked.text == "hi" for asked in other.asked):
            assert time.monotonic() < deadline, "it gets no events"
            wait(_two(executor))
        assert other.asked[0].text == "test"


def test_a_key_that_is_refused_is_said_without_the_key(open_model: Open, wait: Wait[Any]) -> None:
    with OpenAIServer(key="sk-right") as server:
        executor = open_model(server.url, server={"api_key": {"env": "KEY"}}, environ={"KEY": "sk-wrong"})
        with pytest.raises(ExecutorUnavailable, match=r"refuses the API key.*`server.api_key`") as caught:
            wait(executor.warm_up())
        assert "sk-" not in str(caught.value)
        wait(open_model(server.url, server={"api_key": "sk-right"}).warm_up())


def test_a_model_that_the_server_does_not_have_is_waited_for(
    open_model: Open, server: OpenAIServer, wait: Wait[Any]
) -> None:
    server.script.append(refuse(404, {"error": {"message": "The model `tiny` does not exist"}}))
    executor = open_model(server.url)
    expected = (
        r"expected in `server.model` a model that the server has \(there: tiny\), found tiny.*still loading it, wait"
    )
    with pytest.raises(ExecutorUnavailable, match=expected):
        wait(executor.warm_up())
    wait(executor.warm_up())


def test_a_server_that_answers_for_another_model_is_warned_of(
    open_model: Open, wait: Wait[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAIServer(models=["other"]) as server, caplog.at_level(logging.WARNING):
        wait(open_model(server.url).warm_up())
    assert "its list of models does not have it (there: other)" in caplog.text


@pytest.mark.parametrize("models", [None, [], ["tiny:latest"], ["a", "tiny"]])
def test_a_server_without_a_list_or_with_the_model_is_fine(
    open_model: Open, wait: Wait[Any], caplog: pytest.LogCaptureFixture, models: list[str] | None
) -> None:
    with OpenAIServer(models=models) as server, caplog.at_level(logging.WARNING):
        wait(open_model(server.url).warm_up())
    assert caplog.text == ""


def test_parameters_that_the_server_refuses_end_the_start(
    open_model: Open, server: OpenAIServer, wait: Wait[Any]
) -> None:
    server.script.append(refuse(400, {"error": {"message": "Unsupported parameter: 'max_tokens'"}}))
    with pytest.raises(ModelConfigError, match=r"Unsupported parameter: 'max_tokens'. Correct `request.parameters`"):
        wait(open_model(server.url).warm_up())


def test_a_sample_that_is_no_prediction_is_only_warned_of(
    open_model: Open, server: OpenAIServer, wait: Wait[Any], caplog: pytest.LogCaptureFixture
) -> None:
    executor = open_model(server.url, json_request(), outputs=("category",))
    with caplog.at_level(logging.WARNING):
        wait(executor.warm_up())
    assert "the answer to a sample event is no prediction: expected JSON in the completion" in caplog.text


# -- tokens and reports


def test_estimates_of_tokens_are_corrected(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    executor = open_model(server.url, {"prompt": "{{ text }}", "parameters": {"max_tokens": 64}})
    noted: list[int] = []
    executor.on_tokens = noted.append
    estimate = executor.tokens(texts("hello " * 40))
    assert 64 + 40 <= estimate <= 64 + 80
    ask(executor, "hello " * 40)
    assert estimate + noted[0] == 40 + 10
    server.script.append(server.answer([" one"], "length"))
    with pytest.raises(ModelRejected, match="ended with `length`"):
        ask(executor, "hello " * 40)
    assert estimate + noted[1] == 40 + 1


def test_each_request_is_reported(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    server.script.extend([server.answer([" a", " b", " c"], pause=0.02), refuse(500, "")])
    executor = open_model(server.url)
    reports: list[RequestReport] = []
    executor.on_request = reports.append
    ask(executor, "hi")
    with pytest.raises(ExecutorUnavailable):
        ask(executor, "hi")
    good, bad = reports
    assert (good.operation, good.model, good.input_tokens, good.output_tokens, good.error) == ("chat", "tiny", 1, 3, "")
    assert good.time_to_first_token is not None
    assert 0.04 <= good.time_to_first_token < good.seconds
    assert good.time_per_output_token == pytest.approx((good.seconds - good.time_to_first_token) / 2)
    assert (bad.error, bad.time_to_first_token, bad.time_per_output_token) == ("ExecutorUnavailable", None, None)


# -- config.yaml


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": ("tekst",)}, r"config.yaml:\d+: outputs\[0\].tensor: expected one of text, .*found tekst"),
        ({"request": {}}, r"request: .*expected a `prompt`.*found neither"),
        ({"request": {"prompt": "hi"}}, r"inputs\[0\]: tensor `text` is in no template of the prompt"),
        (
            {"inputs": [{**TEXT_INPUT, "tensor": "my-text"}]},
            r"inputs\[0\].tensor: expected a name that a template can have, .*found 'my-text'",
        ),
        ({"request": {"prompt": "{{ tex }}"}}, r"request.prompt: .*found tex\. Did you mean `text`"),
        (
            {"request": {"prompt": "{{ text }}", "promt": 1}},
            r"config.yaml:\d+: request.promt: unknown key. Did you mean prompt",
        ),
        (
            {"request": {"messages": [{"role": "boss", "content": "x"}]}},
            r"request.messages\[0\].role: expected system, ",
        ),
        ({"request": {"messages": [{"role": "user", "text": "x"}]}}, r"request.messages\[0\].text: unknown key"),
        ({"request": {"prompt": "{{ text }}", "parameters": {"stream": True}}}, "`stream` in `parameters`"),
        ({"request": {"prompt": "{{ text }}", "repair": True}}, "`repair`: stands beside `json_schema`"),
        ({"request": {"task": "embedding", "streaming": True}, "outputs": ("embedding",)}, "`streaming`: not for"),
        ({"request": {"task": "embedding"}, "outputs": ("text",)}, "expected embedding, the only output"),
        ({"server": {"urls": ["vllm:8000"]}}, r"server.urls.*expected a URL such as http://vllm:8000/v1"),
        ({"server": {"urls": ["http://v llm/v1"]}}, r"server.urls.*expected a URL such as http://vllm:8000/v1"),
        ({"server": {"urls": []}}, r"server.urls: expected at least one"),
        ({"server": {"urls": ["http://a:b@vllm/v1"]}}, r"expected a URL without a password"),
        ({"server": {"api_key": {"env": "NO_SUCH_KEY"}}}, r"server.api_key: .*NO_SUCH_KEY, which is not set"),
        ({"server": {"api_key": "one\ntwo"}}, r"server.api_key: expected a secret of one line"),
        ({"server": {"modell": "x"}}, r"server.modell: unknown key. Did you mean model"),
        (
            {"inputs": [TEXT_INPUT, {"tensor": "mask", "mask": True, "dtype": "int64"}]},
            "inputs",
        ),
    ],
)
def test_mistakes_are_reported_with_their_place(open_model: Open, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        open_model("http://server/v1", options.pop("request", None), **options)


@pytest.mark.parametrize(
    "url", ["me:hunter2@vllm", "ftp://me:hunter2@vllm", "http://me:hunter2@vllm:99999", "http://vllm/v1?key=hunter2"]
)
def test_a_wrong_url_with_a_secret_is_not_shown(open_model: Open, url: str) -> None:
    with pytest.raises(ModelConfigError, match=r"server.urls") as caught:
        open_model("http://server/v1", server={"urls": [url]})
    assert "hunter2" not in str(caught.value)


def test_the_section_request_is_only_for_this_executor(open_model: Open) -> None:
    with pytest.raises(
        ModelConfigError, match="request: only the executor openai has this section, found `executor: kserve`"
    ):
        open_model("http://server/v1", executor="kserve")


def test_urls_of_an_endpoint_lose_its_path(open_model: Open, server: OpenAIServer, ask: Ask) -> None:
    assert ask(open_model(f"{server.url}/chat/completions"), "+") == {"text": [" pos"]}
    assert ask(open_model(f"{server.url}/"), "+") == {"text": [" pos"]}
