"""Asks for completions: one request for each event."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, ModelRejected
from millstream.inference.executors.interface import Inputs, rows_of
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.openai.completion import Completion, EndedEarly, check_finished
from millstream.inference.executors.openai.prompt import Messages, Prompt
from millstream.inference.executors.openai.requester import Requester
from millstream.inference.executors.openai.response_schema import ResponseSchema
from millstream.inference.executors.openai.server_executor import OpenAIExecutor
from millstream.inference.outputs import named
from millstream.inference.repository import ModelVersion
from millstream.inference.request_section import RequestOptions, schema_text

log = logging.getLogger(__name__)

OUTPUTS: dict[str, Any] = {"text": object, "finish_reason": object, "input_tokens": np.int64, "output_tokens": np.int64}
"""Outputs of every completion -> their types."""
_TOKENS = {"input_tokens", "output_tokens"}
_REPAIR = "Your answer is not valid: {fault}. Answer again, with nothing but JSON that fits the schema."


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came of one event."""

    completion: Completion
    json: Any  # None: there is no schema


class TextExecutor(OpenAIExecutor):
    """The tasks chat and completion."""

    batch_sizes = (1,)
    max_events = 1  # each event has its own request, so a slow one holds up only its own key

    def __init__(
        self, model: ModelVersion, options: RequestOptions, prompt: Prompt, requester: Requester, limits: RequestLimits
    ) -> None:
        """Args:
        model: has the names of the outputs.
        options: the section `request`.
        prompt: makes the prompts.
        requester: sends the requests.
        limits: of the requests; the caller keeps them.

        Raises:
            ModelConfigError: there is no such output, or the JSON Schema is wrong.
        """
        super().__init__(model, prompt, requester, limits)
        self._is_chat = options.task == "chat"
        self._accepted = frozenset(options.accept_finish_reasons)
        self._repairs = options.repair
        self._schema = _response_schema(model, options)
        self._fixed = {**options.parameters, **_response_format(self._schema, options)}
        self._streams = options.streaming
        self._needs_tokens = not _TOKENS.isdisjoint(model.signature.output_tensors)

    async def run(self, inputs: Inputs, timeout: float) -> dict[str, npt.NDArray[Any]]:
        """See `AsyncExecutor.run`."""
        until = time.monotonic() + timeout
        if (events := rows_of(inputs)) == 1:
            answers = [await self._answer(inputs, 0, until)]
        else:
            answers = await _all([self._answer(inputs, row, until) for row in range(events)])
        return named(self._model.signature.outputs, self._tensors(answers), self._model.place)

    async def _answer(self, inputs: Inputs, row: int, until: float) -> _Answer:
        """The answer to one event. `until`: when it must be there, seconds on the monotonic clock."""
        messages = self._prompt.messages(inputs, row)
        completion = await self._complete(messages, until)
        self._note_tokens(completion, estimate=self._prompt.estimate(inputs, row))
        check_finished(completion, self._accepted)
        if self._schema is None:
            return _Answer(completion, None)
        try:
            return _Answer(completion, self._schema.answer(completion.text))
        except ModelRejected as fault:
            if not self._repairs:
                raise
            repair = {"role": "user", "content": _REPAIR.format(fault=fault)}
            again = await self._complete([*messages, {"role": "assistant", "content": completion.text}, repair], until)
            self._note_tokens(again, estimate=0)
            check_finished(again, self._accepted)
            return _Answer(_both(completion, again), self._schema.answer(again.text))

    async def _complete(self, messages: Messages, until: float) -> Completion:
        body = {**({"messages": messages} if self._is_chat else {"prompt": messages[0]["content"]}), **self._fixed}
        completion = await self._streamed(body, until) if self._streams else None
        return completion or await self._requester.completion(body, _remaining(until))

    async def _streamed(self, body: Mapping[str, Any], until: float) -> Completion | None:
        """The completion of a streamed request; None: only a request that is not streamed tells all that is needed."""
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            completion = await self._requester.completion(streamed, _remaining(until))
        except EndedEarly as error:
            # llama-cpp-python writes the status 200 before it looks at the prompt, and ends the stream if it is too long.
            if error.empty:
                return None
            raise
        if completion.input_tokens is not None or not self._needs_tokens:
            return completion
        if completion.cut:  # the tokens come behind the text, so this says nothing about other streams
            return None
        if self._streams:  # of the requests in flight, the first one says it
            self._streams = False
            log.warning(
                "%s: the server reports no tokens in streams, and the outputs have them: requests are not streamed any more",
                self._model.place,
            )
        return None

    def _note_tokens(self, completion: Completion, *, estimate: int) -> None:
        """Report the tokens, as far as they were not estimated before the request."""
        if self.on_tokens is not None and completion.input_tokens is not None:
            self.on_tokens(completion.input_tokens + (completion.output_tokens or 0) - estimate)

    def _tensors(self, answers: Sequence[_Answer]) -> dict[str, npt.NDArray[Any]]:
        """The outputs by tensor, [events]."""
        wanted = self._model.signature.output_tensors
        values = {name: [getattr(answer.completion, name) for answer in answers] for name in wanted if name in OUTPUTS}
        if any(None in values.get(name, ()) for name in _TOKENS):
            raise ExecutorUnavailable(
                f"{self._model.place}: the server reports no tokens. Take input_tokens and output_tokens out of `outputs`"
            )
        tensors = {name: np.array(each, OUTPUTS[name]) for name, each in values.items()}
        return tensors if self._schema is None else tensors | self._schema.outputs([each.json for each in answers])


def _response_schema(model: ModelVersion, options: RequestOptions) -> ResponseSchema | None:
    assert model.server is not None
    file = model.server.file
    found = schema_text(options, file)
    for index, output in enumerate(model.signature.outputs):
        if found is None and output.tensor not in OUTPUTS:
            raise ModelConfigError(
                f"{file.at('outputs', index, 'tensor')}: expected one of {', '.join(OUTPUTS)}, found {output.tensor}. For values "
                f"of a JSON answer, write `request.json_schema`."
            )
    if found is None:
        return None
    paths = {
        output.tensor: file.at("outputs", index, "tensor")
        for index, output in enumerate(model.signature.outputs)
        if output.tensor not in OUTPUTS
    }
    return ResponseSchema(*found, paths, file.at("request", "json_schema"), reserved=OUTPUTS)


def _response_format(schema: ResponseSchema | None, options: RequestOptions) -> dict[str, Any]:
    """The parameter that makes the server complete only what fits the schema."""
    if schema is None or options.response_format == "none":
        return {}
    if options.response_format == "json_object":
        return {"response_format": {"type": "json_object", "schema": schema.definition}}
    form = {"name": "answer", "schema": schema.definition, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _both(first: Completion, second: Completion) -> Completion:
    """The second completion with the tokens of both."""
    if first.input_tokens is None or second.input_tokens is None:
        return second
    return Completion(
        second.text,
        second.finish_reason,
        first.input_tokens + second.input_tokens,
        (first.output_tokens or 0) + (second.output_tokens or 0),
        first.first_token,
    )


def _remaining(until: float) -> float:
    return max(until - time.monotonic(), 0.001)


async def _all(coroutines: Sequence[Any]) -> list[Any]:
    """The results of all. If one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
