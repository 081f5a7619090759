"""The checks that Millstream ships for every executor, on the executor `openai`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.servers.llama_server import LlamaServer, missing
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.contract import check_executor
from tests.inference.executors.openai.models import EMBEDDING, load, texts
from tests.inference.executors.openai.server import EMBEDDING_SIZE, OpenAIServer, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("jinja2", reason="needs the extra `openai`")

BAD = "word " * 3000


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.mark.parametrize("task", ["chat", "completion"])
@pytest.mark.parametrize("streaming", [True, False])
def test_completions(tmp_path: Path, server: OpenAIServer, task: str, *, streaming: bool) -> None:
    async def act(asked: Any) -> Any:
        return await (too_long("too many tokens") if asked.text == BAD else server.complete)(asked)

    server.always = act
    request = {"task": task, "prompt": "{{ text }}", "streaming": streaming}
    executor = open_executor(load(tmp_path, server.url, request, server={"timeout": "30s"}), max_events=8)
    executor.warm_up()
    expected = {"text": np.array([" pos", " neg", " pos"], object)}
    check_executor(executor, texts("a +", "b -", "c +"), expected, bad=texts(BAD))
    executor.close()


def test_embeddings(tmp_path: Path, server: OpenAIServer) -> None:
    model = load(tmp_path, server.url, EMBEDDING, outputs=("embedding",), server={"timeout": "30s"})
    executor = open_executor(model, max_events=64)
    executor.warm_up()
    expected = np.zeros((3, EMBEDDING_SIZE), np.float32)
    expected[:, 0] = [1, 3, 2]
    check_executor(executor, texts("a", "bbb", "cc"), {"embedding": expected})
    executor.close()


@pytest.mark.process
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_completions_of_a_real_server(tmp_path: Path) -> None:
    request = {"task": "completion", "prompt": "{{ text }}"}
    with LlamaServer() as server:
        executor = open_executor(load(tmp_path, server.url, request, server={"timeout": "60s"}), max_events=8)
        executor.warm_up()
        expected = {"text": np.array([" pos", " neg", " pos"], object)}
        check_executor(executor, texts("a +", "b -", "c +"), expected, bad=texts(BAD))
        executor.close()
