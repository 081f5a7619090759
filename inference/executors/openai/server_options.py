"""The section `server` of a config.yaml with `executor: openai`."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from millstream.inference.server_section import Concurrency, HeaderValue, ServerOptions, shown_url
from millstream.schemas.units import PositiveDuration

_SPACE = re.compile(r"\s")
_ENDPOINT = re.compile(r"/(chat/completions|completions|embeddings|models)$")


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not _SPACE.search(text)
        )
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"expected a URL such as http://vllm:8000/v1, found {shown_url(text)}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("expected a URL without a password: put it into `server.api_key` or `server.headers`")
    if parts.query or parts.fragment:
        raise ValueError("expected a URL without ? and #, such as http://vllm:8000/v1")
    return _ENDPOINT.sub("", text.rstrip("/"))


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class OpenAIServer(ServerOptions):
    """The section."""

    urls: Annotated[tuple[Annotated[str, AfterValidator(_url)], ...], BeforeValidator(_listed), Field(min_length=1)]
    model: Annotated[str, Field(min_length=1)] | None = None
    api_key: HeaderValue | None = None
    timeout: PositiveDuration = 60.0
    # Fixed by default. These servers batch and queue requests themselves, and a completion takes as long as its text is: latency
    # says little about load.
    concurrency: Concurrency = 64

    def request_headers(self) -> dict[str, Any]:
        """The headers of all requests. They contain secrets: never print them."""
        key = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key.get_secret_value()}"}
        return {**key, **self.secret_headers()}
