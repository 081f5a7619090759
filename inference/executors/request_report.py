"""What an asynchronous executor reports of each request, for metrics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestReport:
    """One request to a model that completes or embeds texts. Times are in seconds."""

    operation: str  # chat, text_completion or embeddings
    model: str  # its name on the server
    seconds: float  # from when the request was sent until the answer was whole, or failed
    time_to_first_token: float | None = (
        None  # until the first text that is not empty; None: the answer was not streamed
    )
    input_tokens: int | None = None  # None: the server didn't report tokens
    output_tokens: int | None = None
    error: str = ""  # the class of the error; empty: the server answered

    @property
    def time_per_output_token(self) -> float | None:
        """The mean time between two tokens after the first one; None: the answer has no such times."""
        first, tokens = self.time_to_first_token, self.output_tokens
        if first is None or tokens is None or tokens < 2:
            return None
        return (self.seconds - first) / (tokens - 1)
