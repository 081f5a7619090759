"""Puts a completion together from the server's response, whole or in chunks. Pure."""

from typing import Any

import msgspec

from millstream.inference.errors import ExecutorUnavailable, InferenceError, ModelRejected
from millstream.inference.executors.openai.errors import ServerMessage, message_of, refusal
from millstream.inference.executors.openai.server_sent_events import ServerSentEvent
from millstream.inference.executors.openai.usage import Usage, token_count

DONE = b"[DONE]"
MAX_TEXT_CHARS = 16 << 20  # of one completion
SHOWN_REFUSAL = 200  # characters of a refusal that a message shows
# The server gave up on the request: vLLM writes `abort` when it shuts down.
_UNFINISHED = {"abort", "error"}
REFUSABLE = ("length", "content_filter", "tool_calls", "function_call")
"""Finish reasons of completions that are no whole text. Such an event is rejected, unless config.yaml accepts the reason."""
_ADVICE = {
    "length": "its text is cut off at `max_tokens` or at the model's context: allow more tokens",
    "content_filter": "the server's content filter cut it off",
    "tool_calls": "the model calls a tool in place of a text: take the tools out of `parameters`",
    "function_call": "the model calls a function in place of a text: take the functions out of `parameters`",
}


class EndedEarly(ExecutorUnavailable):
    """The response ended before the completion did. The server may answer if it is asked again."""

    def __init__(self, where: str, *, empty: bool) -> None:
        """Args:
        where: how messages name the server.
        empty: whether nothing at all came.
        """
        super().__init__(f"{where} ended its answer before the completion was whole")
        self.empty = empty


class Completion(msgspec.Struct, frozen=True):
    """What the server answered to one request."""

    text: str
    finish_reason: str
    input_tokens: int | None = None  # None: the server did not say
    output_tokens: int | None = None
    first_token: float | None = None  # when the first text came, seconds on the monotonic clock; None: it came whole
    cut: bool = False  # whether the stream may have ended early, behind the text: the tokens may have been lost


class _Part(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    delta: _Part | None = None  # chat, in chunks
    message: _Part | None = None  # chat, whole
    text: str | None = None  # completion, in chunks and whole
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] | None = None  # some servers write null beside the usage
    usage: Usage | None = None
    error: Any = None
    object: str | None = None  # `error` in chunks of vLLM


_DECODER = msgspec.json.Decoder(_Body)


class CompletionBuilder:
    """Collects the text of one completion."""

    def __init__(self, where: str) -> None:
        """Args:
        where: how messages name the server.
        """
        self._where = where
        self._texts: list[str] = []
        self._empty = True
        self._chars = 0
        self._refusal = ""
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._first_token: float | None = None
        self.done = False
        """Whether the server said that nothing more comes."""
        self.cut = False
        """Whether the stream may have been cut off. It doesn't count if the server said that nothing more comes."""

    def add(self, event: ServerSentEvent, now: float) -> None:
        """Add a chunk.

        Args:
            event: from the stream.
            now: when it came, seconds on the monotonic clock.

        Raises:
            ModelRejected: the server rejects the request.
            ExecutorUnavailable: the server reports another error, or the chunk is no completion.
        """
        if event.data.strip() == DONE:
            self.done = True
            return
        if event.kind == b"error":
            raise self._reported(event.data)
        before = self._chars
        self._add(event.data)
        if self._first_token is None and self._chars > before:
            self._first_token = now

    def add_whole(self, body: bytes) -> None:
        """Add a response that is not in chunks. Raises as `add`."""
        self._add(body)

    def completion(self) -> Completion:
        """What the server answered.

        Raises:
            EndedEarly: the response ended before the completion did.
            ModelRejected: the model refuses to answer.
        """
        if self._finish_reason is None or self._finish_reason in _UNFINISHED:
            raise EndedEarly(self._where, empty=self._empty)
        if self._refusal:
            raise ModelRejected(f"the model refuses to answer: {self._refusal:.{SHOWN_REFUSAL}}")
        usage = self._usage or Usage()
        return Completion(
            "".join(self._texts),
            self._finish_reason,
            token_count(usage.prompt_tokens),
            token_count(usage.completion_tokens),
            self._first_token,
            self.cut and not self.done,
        )

    def _add(self, body: bytes) -> None:
        try:
            found = _DECODER.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ExecutorUnavailable(
                f"{self._where} answers something other than a completion ({error}). Check `server.urls` in config.yaml"
            ) from None
        if found.error is not None or found.object == "error":
            raise self._reported(body)
        self._empty = False
        if found.usage is not None:
            self._usage = found.usage
        for choice in (found.choices or ())[:1]:
            part = choice.delta or choice.message or _Part()
            self._take(part.content or choice.text)
            if part.refusal and len(self._refusal) < SHOWN_REFUSAL:
                self._refusal += part.refusal[:SHOWN_REFUSAL]
            self._finish_reason = choice.finish_reason or self._finish_reason

    def _take(self, text: str | None) -> None:
        if text:
            self._texts.append(text)
            self._chars += len(text)
            if self._chars > MAX_TEXT_CHARS:
                raise ModelRejected(
                    f"expected a completion of at most {MAX_TEXT_CHARS:,} characters, found a longer one"
                )

    def _reported(self, body: bytes) -> InferenceError:
        """The error that the server reports in place of a chunk, after the status 200."""
        said = message_of(body)
        if _is_client_error(said):
            return refusal(said, 400)
        return ExecutorUnavailable(
            f"{self._where} can't answer: {said.text or 'it reports an error without a message'}"
        )


def _is_client_error(said: ServerMessage) -> bool:
    return said.code in {"400", "413", "422", "BadRequestError", "invalid_request_error"}


def check_finished(completion: Completion, accepted: frozenset[str]) -> None:
    """Check that the completion is a whole text. `accepted`: reasons of `REFUSABLE` that are accepted. Raises ModelRejected."""
    reason = completion.finish_reason
    if reason in REFUSABLE and reason not in accepted:
        raise ModelRejected(
            f"the completion ended with `{reason}`: {_ADVICE[reason]}, or write `accept_finish_reasons: "
            f"[{reason}]` under `request` in config.yaml"
        )
