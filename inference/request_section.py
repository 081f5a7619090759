"""The section `request` of a config.yaml: what a model that completes or embeds texts is asked for each event."""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from millstream.inference.config_file import ConfigFile, problems_of
from millstream.inference.entries import file_beside
from millstream.inference.errors import ModelConfigError
from millstream.schemas.json.json_schema import MAX_TEXT
from millstream.schemas.wording import shown

SECTION = "request"
SET_BY_MILLSTREAM = (
    *("model", "messages", "prompt", "input", "n", "best_of", "echo", "stream", "stream_options", "encoding_format"),
    *("tools", "tool_choice", "functions", "function_call"),
)
"""Parameters of a request that the option `parameters` can't set."""
MAX_PROMPT_CHARS = 100_000  # by default: about 25,000 tokens


def _schema(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError(f"expected the name of a file or a JSON Schema, found {shown(value)}")
    return value


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # see `pipeline.sections.Section`


class Message(_Options):
    """An entry of `messages`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class RequestOptions(_Options):
    """The section."""

    task: Literal["chat", "completion", "embedding"] = "chat"
    prompt: str | None = None
    messages: list[Message] | None = Field(default=None, min_length=1)
    parameters: dict[str, Any] = Field(default_factory=dict)
    json_schema: Annotated[Any, BeforeValidator(_schema)] = None
    response_format: Literal["json_schema", "json_object", "none"] | None = None
    repair: bool = False
    max_prompt_chars: int = Field(default=MAX_PROMPT_CHARS, ge=1)
    accept_finish_reasons: list[Literal["length", "content_filter"]] = Field(default_factory=list)
    streaming: bool = True

    @model_validator(mode="after")
    def _fit_together(self) -> "RequestOptions":
        for problem, is_there in self._problems():
            if is_there:
                raise ValueError(problem)
        return self

    def _problems(self) -> list[tuple[str, bool]]:
        """Each possible problem, and whether it is there."""
        embeds = self.task == "embedding"
        fixed = [name for name in self.parameters if name in SET_BY_MILLSTREAM]
        beside = [name for name in ("response_format", "repair") if name in self.model_fields_set]
        of_text = ("messages", "json_schema", *beside, "accept_finish_reasons", "streaming")
        needless = [name for name in of_text if embeds and name in self.model_fields_set]
        return [
            (f"{_quoted(needless)}: not for `task: embedding`. Leave it out", bool(needless)),
            (
                "expected one of `prompt` and `messages`, found both",
                self.prompt is not None and self.messages is not None,
            ),
            (
                "expected a `prompt`, or with `task: chat` also `messages`, found neither. Write a text with the names of the "
                'tensors, such as `prompt: "Is this friendly? {{ text }}"`',
                not embeds and self.prompt is None and self.messages is None,
            ),
            (
                "`messages` are for `task: chat`. Write a `prompt`",
                self.task == "completion" and self.messages is not None,
            ),
            (f"{_quoted(beside)}: stands beside `json_schema`. Add one", self.json_schema is None and bool(beside)),
            ("`repair` sends a second message, so it is for `task: chat`", self.task == "completion" and self.repair),
            (f"{_quoted(fixed)} in `parameters`: Millstream itself sets or excludes it. Leave it out", bool(fixed)),
            (
                "`response_format` in `parameters`: `json_schema` sets it. Leave one out",
                self.json_schema is not None and "response_format" in self.parameters,
            ),
        ]


def read_request(file: ConfigFile) -> RequestOptions:
    """The section of a config.yaml. Raises ModelConfigError: a line for each mistake."""
    content = file.data.get(SECTION)
    try:
        return RequestOptions.model_validate({} if content is None else content)
    except ValidationError as error:
        allowed: Mapping[str, type[BaseModel]] = {SECTION: RequestOptions, f"{SECTION}.messages": Message}
        problems = problems_of(error, file, allowed, (SECTION,))
    # Raised outside of `except`, so that the traceback doesn't show pydantic's error too.
    raise ModelConfigError("\n".join(problems))


def schema_text(options: RequestOptions, file: ConfigFile) -> tuple[str, str] | None:
    """The name for messages and the text of the JSON Schema; None: there is none. Raises ModelConfigError."""
    given = options.json_schema
    if given is None:
        return None
    place = file.at(SECTION, "json_schema")
    if isinstance(given, dict):
        return "in config.yaml", json.dumps(given)
    path = file_beside(given, file.path.parent, place)
    try:
        with path.open("rb") as opened:
            return given, opened.read(4 * MAX_TEXT + 1).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelConfigError(f"{place}: expected UTF-8 text in {path}. Save it as UTF-8.") from None
    except OSError as error:
        raise ModelConfigError(f"{place}: {path} can't be read: {error.strerror}.") from None


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
