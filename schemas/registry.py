"""Schemas from a schema registry, over its REST interface."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.directory import check_avro
from schemas.errors import BadSchemaError, SchemaAccessDenied, SchemaError, SchemaUnavailable, UnknownSchema
from schemas.store import AvroType, Schema

_TIMEOUT_SECONDS = 5.0
_RETRIES = 1  # the caller retries too, with its partitions paused and polling going on
_ASK_AGAIN_SECONDS = 5.0  # for an id that the registry didn't know: records without end may carry it
# Workers that start at once register the same: to all but one a registry may say that there is something now (Apicurio does).
# Asked again it gives the id; what really conflicts goes on to.
_CONFLICTS = 3
_CONFLICT_SECONDS = 0.1
_NOT_FOUND = {40401, 40402, 40403}  # the registry's own codes; another 404 comes from something that is no registry


class RegistryStore:
    """A `SchemaStore` over a Confluent-compatible registry. What was found by id is kept for good: ids don't change.

    Raises SchemaUnavailable (with SchemaAccessDenied for refused credentials) when asked while the registry can't
    answer. `ca` is the file of certificates that the registry's is signed with.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        ca: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._clock = clock
        self._found: dict[int, Schema] = {}
        self._unknown: dict[int, float] = {}  # when asked
        self._client = _client(url, username, password, ca)

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema with this id."""
        if schema_id in self._found:
            return self._found[schema_id]
        asked = self._unknown.get(schema_id)
        if asked is None or self._clock() - asked >= _ASK_AGAIN_SECONDS:
            with self._asking(f"schema id {schema_id}", missing=lambda: self._note_unknown(schema_id)):
                self._found[schema_id] = self._parsed(schema_id, "", self._client.get_schema(schema_id))
                return self._found[schema_id]
        raise self._no_id(schema_id)

    def by_name(self, name: str) -> Schema:
        """Return the newest version of the subject of this name."""
        with self._asking(f"subject '{name}'", missing=lambda: self._no_subject(name)):
            self._client.clear_latest_caches()  # the client would give the version that it saw first for ever
            latest = self._client.get_latest_version(name)
        return self._parsed(latest.schema_id, name, latest.schema)

    def register(self, name: str, definition: AvroType) -> int:
        """Register the schema under the subject of this name, if it isn't yet, and return its id."""
        from confluent_kafka.schema_registry import Schema as RegistrySchema  # noqa: PLC0415  (see _client)

        schema = RegistrySchema(json.dumps(definition), "AVRO")
        with self._asking(f"registering subject '{name}'", missing=lambda: self._no_subject(name)):
            for _ in range(_CONFLICTS):
                try:
                    return int(self._client.register_schema(name, schema))
                except Exception as error:
                    if getattr(error, "http_status_code", None) != 409:
                        raise
                    time.sleep(_CONFLICT_SECONDS)
            return int(self._client.register_schema(name, schema))

    def _parsed(self, schema_id: int, name: str, found: Any) -> Schema:
        place = f"schema {schema_id} in {self._url}"
        if found.schema_type not in (None, "AVRO"):
            raise BadSchemaError(
                f"{place}: expected an Avro schema, found {found.schema_type}: write these records in Avro"
            )
        if found.references:
            names = ", ".join(str(reference.name) for reference in found.references)
            raise BadSchemaError(
                f"{place}: refers to other schemas ({names}), which isn't supported: register it with them inside"
            )
        try:
            definition = json.loads(found.schema_str)
        except ValueError:
            definition = found.schema_str  # a primitive's bare name
        check_avro(place, definition)
        return Schema(schema_id, name, definition)

    def _note_unknown(self, schema_id: int) -> UnknownSchema:
        if len(self._unknown) >= 1000:  # garbage has many ids
            self._unknown.clear()
        self._unknown[schema_id] = self._clock()
        return self._no_id(schema_id)

    def _no_id(self, schema_id: int) -> UnknownSchema:
        return UnknownSchema(
            f"{self._url} has no schema with the id {schema_id}: was the record written with another registry's schema?"
        )

    def _no_subject(self, name: str) -> UnknownSchema:
        return UnknownSchema(f"{self._url} has no subject '{name}': register the schema, or use a name that is there")

    @contextmanager
    def _asking(self, what: str, missing: Callable[[], UnknownSchema]) -> Iterator[None]:
        """Turn what the client raises into this package's errors."""
        try:
            yield
        except SchemaError:
            raise
        except Exception as error:  # the client lets its HTTP library's and the JSON parser's errors through
            status, code = getattr(error, "http_status_code", None), getattr(error, "error_code", None)
            if status == 404 and code in _NOT_FOUND:
                raise missing() from error
            raise self._failure(what, status, error) from error

    def _failure(self, what: str, status: int | None, error: Exception) -> SchemaError:
        said = str(error) or type(error).__name__
        if status in (401, 403):
            return SchemaAccessDenied(
                f"{self._url} refused access to {what} (HTTP {status}): check schemas.registry's username and password, "
                "and what this user may read"
            )
        if status in (409, 422):
            return BadSchemaError(f"{self._url} refused {what} (HTTP {status}): {said}")
        if status is not None and status < 500:
            return SchemaUnavailable(
                f"{self._url} answered {what} with HTTP {status}, unlike a schema registry: {said[:200]}: check the url"
            )
        return SchemaUnavailable(
            f"{self._url} can't give {what} now: {said[:200]}: check that the registry runs, and the url"
        )


def _client(url: str, username: str | None, password: str | None, ca: Path | None) -> Any:
    # Importing it takes a second, which pipelines without a registry don't pay.
    from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415

    settings: dict[str, Any] = {
        "url": url,
        "timeout": _TIMEOUT_SECONDS,
        "max.retries": _RETRIES,
        "retries.wait.ms": 100,
        "retries.max.wait.ms": 200,
    }
    if username is not None:
        settings["basic.auth.user.info"] = f"{username}:{password or ''}"
    if ca is not None:
        settings["ssl.ca.location"] = str(ca)
    try:
        return SchemaRegistryClient(settings)
    except (ValueError, OSError) as error:
        raise BadSchemaError(f"schemas.registry: {url} can't be used: {error}: check url and ca") from error
