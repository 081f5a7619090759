"""Asks for embeddings: one request for all events of a micro-batch."""

import time
from typing import Any

import numpy.typing as npt

from millstream.inference.errors import ExecutorUnavailable, ModelConfigError
from millstream.inference.executors.interface import Inputs, rows_of
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.openai.prompt import Prompt
from millstream.inference.executors.openai.requester import Requester
from millstream.inference.executors.openai.server_executor import OpenAIExecutor
from millstream.inference.outputs import named
from millstream.inference.repository import ModelVersion
from millstream.inference.request_section import RequestOptions

OUTPUT = "embedding"


class EmbeddingExecutor(OpenAIExecutor):
    """The task embedding."""

    def __init__(
        self,
        model: ModelVersion,
        options: RequestOptions,
        prompt: Prompt,
        requester: Requester,
        limits: RequestLimits,
        max_events: int,
    ) -> None:
        """Args:
        model: has the names of the outputs.
        options: the section `request`.
        prompt: makes the texts.
        requester: sends the requests.
        limits: of the requests; the caller keeps them.
        max_events: most texts of a request.

        Raises:
            ModelConfigError: there is no such output.
        """
        assert model.server is not None
        for index, output in enumerate(model.signature.outputs):
            if output.tensor != OUTPUT:
                raise ModelConfigError(
                    f"{model.server.file.at('outputs', index, 'tensor')}: expected {OUTPUT}, the only output of `task: "
                    f"embedding`, found {output.tensor}. Write {OUTPUT}."
                )
        super().__init__(model, prompt, requester, limits)
        self.batch_sizes = (1,)
        self.max_events = min(max_events, max(model.batch_sizes, default=max_events))
        self._size: int | None = None  # numbers of an embedding; None: not known yet
        self._fixed = {**options.parameters, "encoding_format": "float"}

    async def run(self, inputs: Inputs, timeout: float) -> dict[str, npt.NDArray[Any]]:
        """See `AsyncExecutor.run`."""
        until = time.monotonic() + timeout
        texts = [self._prompt.messages(inputs, row)[0]["content"] for row in range(rows_of(inputs))]
        body = {"input": texts, **self._fixed}
        embeddings, tokens = await self._requester.embeddings(body, len(texts), max(until - time.monotonic(), 0.001))
        if self._size not in {None, embeddings.shape[1]}:
            raise ExecutorUnavailable(
                f"{self._model.place}: expected embeddings of {self._size} numbers, as in the first answer, found "
                f"{embeddings.shape[1]}. The server has another model by now: load the former one, or start the workers again"
            )
        self._size = embeddings.shape[1]
        if self.on_tokens is not None and tokens is not None:
            self.on_tokens(tokens - self._prompt.estimate(inputs))
        return named(self._model.signature.outputs, {OUTPUT: embeddings}, self._model.place)
