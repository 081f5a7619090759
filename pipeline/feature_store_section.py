"""The section of a pipeline file for features that are looked up in an online store."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic.config import JsonDict

from millstream.pipeline.paths import FilePath
from millstream.pipeline.secret import Secret
from millstream.pipeline.sections import Section, Text
from millstream.schemas.lookup_columns import LOOKUP_NAME
from millstream.schemas.units import PositiveDuration
from millstream.schemas.wording import shown

MAX_TIMEOUT = 10.0  # seconds
_URL = re.compile(r"(rediss?://([^\s,:/@\[\]]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[0-9]{1,4})?|unix:///\S+)")


def _redis_url(url: str) -> str:
    # Logs and errors show the URL, so it must not contain a password; nor may this message show it.
    if set(url) & set("@?#"):
        raise ValueError(
            "expected a URL without a user and without options: it is shown in logs. Write `username` and `password` beside it."
        )
    if not _URL.fullmatch(url):
        raise ValueError(f"expected redis://HOST:PORT/DATABASE, rediss://… (TLS) or unix:///PATH, found {shown(url)}")
    return url


def _lookup_name(name: str) -> str:
    if not LOOKUP_NAME.fullmatch(name):
        raise ValueError(f"expected letters, digits, - and _, found {shown(name)}")
    return name


def _key(value: object) -> object:
    if isinstance(value, str) and value:
        return value
    if (
        isinstance(value, dict)
        and value
        and all(isinstance(part, str) and part for pair in value.items() for part in pair)
    ):
        return value
    raise ValueError(
        f'expected a text such as "customer:{{customer.id}}", or for Feast a mapping, found {shown(value)}'
    )


def _timeout(seconds: float) -> float:
    if seconds > MAX_TIMEOUT:
        raise ValueError(f"expected at most {MAX_TIMEOUT:g}s, found {seconds:g}s")
    return seconds


_KEY_SCHEMA: JsonDict = {
    "$comment": "text or mapping",
    "anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}],
}


class LookupSection(Section):
    """One look-up: the features of one kind of entity."""

    name: Annotated[Text, AfterValidator(_lookup_name)] = Field(
        description="Name of the look-up. A field in the model's `config.yaml` names it with `from`: "
        "`{from: customer, field: orders}`.",
        examples=["customer"],
    )
    key: Annotated[Any, BeforeValidator(_key), WithJsonSchema(_KEY_SCHEMA)] = Field(
        description="What names the entity of an event. Redis: the key, with paths of event fields in braces "
        '(`{{` is a plain brace): `"customer:{customer.id}"`. Feast: each join key with the path of the event field that has its '
        "value: `{customer_id: customer.id}`.",
        examples=['"customer:{customer.id}"'],
    )
    value: Literal["hash", "json"] = Field(
        "hash",
        description="What Redis has under the key: a hash with the features as its fields, or a string with a JSON object.",
    )
    view: Text | None = Field(
        None, description="Feast: the feature view that has the features.", examples=["customer_stats"]
    )
    updated: Text | None = Field(
        None,
        description="Redis: path of the field that says when an entry was written. Without it, the age of features isn't known. "
        "Feast knows it.",
        examples=["updated_at"],
    )
    updated_format: Literal["iso8601", "seconds", "milliseconds", "microseconds"] = Field(
        "seconds",
        description="Form of `updated`: text in ISO 8601, or a number of seconds, milliseconds or microseconds since 1970.",
    )
    max_age: PositiveDuration | None = Field(
        None,
        description="How old an entry may be. The features of an older one count as missing. At most 30 days. Without it, any "
        "age. With Redis, it needs `updated`.",
    )
    include_age: bool = Field(
        False,
        description="Whether each prediction has the age of its entry in seconds, under `event` as `[NAME] age`; null if it "
        "isn't known. With Redis, it needs `updated`.",
    )


class FeatureStore(Section):
    """The online store."""

    type: Literal["redis", "feast"] = Field(
        "redis",
        description="Kind of store: a Redis server (extra `redis`), or any online store of Feast (extra `feast`).",
    )
    url: Annotated[Text, AfterValidator(_redis_url)] | None = Field(
        None,
        description="Redis: address of the server, `redis://HOST:PORT/DATABASE`, `rediss://…` with TLS, or `unix:///PATH`.",
        examples=["redis://127.0.0.1:6379/0"],
    )
    username: Text | None = Field(None, description="Redis: user of the server's access control lists.")
    password: Secret | None = Field(None, description="Redis: password, `{file: PATH}` or `{env: NAME}`.")
    ca: FilePath | None = Field(
        None,
        description="Redis: certificate authorities (PEM) to trust in place of the system's, such as your company's own.",
    )
    repository: FilePath | None = Field(
        None, description="Feast: folder with `feature_store.yaml`.", examples=["features"]
    )
    timeout: Annotated[PositiveDuration, AfterValidator(_timeout)] = Field(
        "500ms",
        validate_default=True,
        description="How long a request may take: Redis up to 256 keys, Feast all keys of a block of events. At most 10s. After "
        "it the store counts as away.",
    )
    on_outage: Literal["wait", "missing"] = Field(
        "wait",
        description="What happens while the store is away. `wait`: events wait, and nothing is lost. `missing`: all features "
        "count as missing, and each field needs a value for it (`missing` in `config.yaml`); the store is asked again after a "
        "growing time, up to 10 s.",
    )
    lookups: tuple[LookupSection, ...] = Field(min_length=1, description="The look-ups, one for each kind of entity.")
