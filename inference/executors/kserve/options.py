"""The options of the section `server` in config.yaml, for the executor kserve."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from millstream.inference.server_section import ServerOptions, shown_url

_URL = re.compile(r"(grpc|grpcs|http|https)://([^\s,:/@\[\]]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})/?")
_LOCAL = re.compile(r"grpcs?://(localhost|127\.[0-9.]+|\[::1\]):")


def _url(value: str) -> str:
    if "@" in value:  # it may be a password, so the message doesn't show it
        raise ValueError("expected a URL without a user in it. Write `headers: {Authorization: {env: TOKEN}}`.")
    found = _URL.fullmatch(value)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise ValueError(
            f"expected grpc://HOST:PORT, grpcs://…, http://… or https://…, without a path, found {shown_url(value)}"
        )
    return value.rstrip("/")


def _some(urls: tuple[str, ...]) -> tuple[str, ...]:
    if not urls:
        raise ValueError("expected at least one URL, found an empty list")
    return urls


def _version(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Url = Annotated[str, AfterValidator(_url)]


class KServeOptions(ServerOptions):
    """Where the servers are, and which of their models runs."""

    urls: Annotated[tuple[Url, ...], AfterValidator(_some)]
    model: Annotated[str, Field(min_length=1)] | None = None  # None: the name in the repository
    version: Annotated[str | None, BeforeValidator(_version)] = (
        None  # None: the number of the version's folder; empty: the server's models have no versions
    )
    shared_memory: bool = False  # whether requests have large tensors in shared memory

    @field_validator("shared_memory")
    @classmethod
    def _only_here(cls, value: bool, info: ValidationInfo) -> bool:
        away = [url for url in info.data.get("urls", ()) if not _LOCAL.match(url)]
        if value and away:
            raise ValueError(
                f"expected only servers of this machine over gRPC, such as grpc://localhost:8001, because no other machine can "
                f"read its memory; found {away[0]} in `urls`. Leave the option out."
            )
        return value
