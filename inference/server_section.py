"""The section `server` of a config.yaml: where the model's server is. The executor that config.yaml names knows its options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
)

from millstream.inference.config_file import ConfigFile, problems_of
from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.limits import RequestLimits
from millstream.schemas.secrets import read_secret
from millstream.schemas.units import PositiveDuration
from millstream.schemas.wording import shown

SECTION = "server"
MAX_CONCURRENCY = 4096  # a slip of the pen is larger
_PRINTABLE = re.compile(r"[\t -~]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ServerSection:
    """The section of one config.yaml. It may be missing."""

    file: ConfigFile
    environ: Mapping[str, str] = field(repr=False)  # the environment variables that secrets may be in

    def read(self, options: type[Options]) -> Options:
        """The section as these options. Their places may be `Secret`.

        Raises:
            ModelConfigError: a line for each mistake, with its place in the file.
        """
        content = self.file.data.get(SECTION)
        try:
            # A heading alone is an empty section, as in the pipeline file.
            return options.model_validate({} if content is None else content, context=self)
        except ValidationError as error:
            problems = problems_of(error, self.file, {SECTION: options}, (SECTION,))
        # Raised outside of `except`, so that the traceback doesn't show pydantic's error, which has the values.
        raise ModelConfigError("\n".join(problems))

    @property
    def is_there(self) -> bool:
        """Whether config.yaml has the section: the model is on a server."""
        return SECTION in self.file.data

    def at(self, *loc: str | int) -> str:
        """The place of an option, for the beginning of a message: `FILE:LINE: server.urls`."""
        return self.file.at(SECTION, *loc)


def _secret(value: object, info: ValidationInfo) -> SecretStr:
    if not isinstance(info.context, ServerSection):
        raise TypeError("secrets are read only with `ServerSection.read`")
    return SecretStr(read_secret(value, info.context.file.path.parent, info.context.environ))


Secret = Annotated[SecretStr, BeforeValidator(_secret)]
"""A single value, `{file: PATH}` (from the folder of config.yaml) or `{env: NAME}`. It is never printed."""


def _header_value(value: SecretStr) -> SecretStr:
    if not _PRINTABLE.fullmatch(value.get_secret_value()):
        raise ValueError(
            "expected a secret of one line of printable ASCII characters, found others. Look for a second line in its file"
        )
    return value


HeaderValue = Annotated[Secret, AfterValidator(_header_value)]
"""A `Secret` that can be the value of a header."""


def _header_names(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name in headers:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"expected names of headers such as X-Api-Key, found {shown(name)}")
    return headers


def shown_url(text: str) -> str:
    """A wrong URL for an error message. It is left out if it may contain a password or a token."""
    return "one that is not shown, because it may contain a secret" if set(text) & set("@?#") else shown(text)


def _concurrency(value: object) -> int | None:
    if value == "adaptive":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CONCURRENCY:
        raise ValueError(f"expected adaptive or a number from 1 to {MAX_CONCURRENCY}, found {shown(value)}")
    return value


Concurrency = Annotated[int | None, BeforeValidator(_concurrency)]
"""Requests at a time; None: adaptive."""


class ServerOptions(BaseModel):
    """The options that all servers have. An executor derives its own from them."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    timeout: PositiveDuration = 30.0
    concurrency: Concurrency = None
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    headers: Annotated[dict[str, HeaderValue], AfterValidator(_header_names)] = Field(default_factory=dict)

    @property
    def limits(self) -> RequestLimits:
        """The limits of an `AsyncExecutor`."""
        return RequestLimits(
            timeout=self.timeout,
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )

    def secret_headers(self) -> dict[str, str]:
        """The headers with their values. They contain secrets: never print them."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}
