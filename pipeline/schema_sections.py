"""The section of a pipeline file for the place of record schemas."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from millstream.pipeline.paths import FilePath
from millstream.pipeline.secret import Secret
from millstream.pipeline.sections import Section, Text
from millstream.schemas.wording import shown


def _registry_url(url: str) -> str:
    if "@" in url:
        raise ValueError("expected a URL without a user in it. Write `username` and `password` beside it.")
    # Logs and dead letters show the URL, so it must not contain a password; nor may this message show it.
    if "?" in url or "#" in url:
        raise ValueError(
            "expected a URL without `?` and `#`: it is shown in logs and dead letters, so it can't carry a key. "
            "Write `username` and `password` beside it."
        )
    if not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise ValueError(f"expected a URL that begins with http:// or https://, found {shown(url)}")
    return url


class Registry(Section):
    """A schema registry with Confluent's API."""

    url: Annotated[Text, AfterValidator(_registry_url)] = Field(
        description="Address of the registry.", examples=["https://registry.example:8081"]
    )
    username: Text | None = Field(None, description="User for basic authentication.")
    password: Secret | None = Field(
        None, description="Password for basic authentication: `{file: PATH}` or `{env: NAME}`."
    )
    ca: FilePath | None = Field(
        None, description="Certificate authorities (PEM) to trust in place of the system's, such as your company's own."
    )


class Schemas(Section):
    """The place of the record schemas."""

    registry: Registry | None = Field(None, description="A schema registry, in place of a folder.")
    directory: FilePath | None = Field(
        None,
        description="Folder of Avro schemas named `<id>-<name>.avsc`, for pipelines without a registry. A running worker finds "
        "new files.",
        json_schema_extra={"default": "schemas"},
    )

    @model_validator(mode="before")
    @classmethod
    def _folder_unless_registry(cls, value: object) -> object:
        section = {} if value is None else value
        if isinstance(section, dict) and section.get("registry") is None and "directory" not in section:
            return {**section, "directory": "schemas"}
        return section
