"""Reading responses to requests for embeddings."""

from __future__ import annotations

import json

import pytest

from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.openai.embeddings import embeddings_of


def test_embeddings_are_in_the_order_of_the_texts() -> None:
    body = {
        "data": [{"embedding": [2, 3], "index": 1}, {"embedding": [0, 1], "index": 0}],
        "usage": {"prompt_tokens": 4},
    }
    embeddings, tokens = embeddings_of(json.dumps(body).encode(), 2, "there")
    assert embeddings.tolist() == [[0, 1], [2, 3]]
    assert tokens == 4


@pytest.mark.parametrize("tokens", [-5, 10**30, 1.5, "7"])
def test_impossible_numbers_of_tokens_count_as_none(tokens: object) -> None:
    body = {"data": [{"embedding": [1]}], "usage": {"prompt_tokens": tokens}}
    assert embeddings_of(json.dumps(body).encode(), 1, "there")[1] is None


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"data": [{"embedding": []}]}',
        b'{"data": [{"embedding": [1], "index": 1}]}',
        b'{"data": [{"embedding": [1], "index": -1}]}',
        b'{"data": [{"embedding": [1]}, {"embedding": [1]}]}',
        b'{"data": [{"embedding": [null]}]}',
        b'{"data": [{"embedding": [1e999]}]}',
    ],
)
def test_no_text_is_to_blame_for_a_response_that_does_not_fit(body: bytes) -> None:
    with pytest.raises(ExecutorUnavailable, match="there"):
        embeddings_of(body, 1, "there")
