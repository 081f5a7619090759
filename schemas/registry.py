"""Schemas from a schema registry, over its REST interface.

Whoever may write to an input topic chooses the IDs that are looked up, so every look-up is bounded. Those that find no schema
share a budget of time. An ID that the registry fails to answer while it answers others holds its records up for a minute at
most. Caches forget what was used least recently. Only a registry that is away as a whole is waited for without limit.
"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from millstream.schemas.avro.limits import definition_of
from millstream.schemas.errors import BadSchemaError, SchemaAccessDenied, SchemaError, SchemaUnavailable, UnknownSchema
from millstream.schemas.failures import Failure, failure_of
from millstream.schemas.recently_used import RecentlyUsed
from millstream.schemas.registry_http import Answer, NoAnswerError, RegistryHttp
from millstream.schemas.store import LARGEST_ID, AvroType, Schema
from millstream.schemas.time_budget import TimeBudget
from millstream.schemas.wording import meant

_PROBE_INTERVAL = 5.0
_RETRY_INTERVAL = 5.0  # seconds between two look-ups of an ID without a usable schema
_LOOK_UP_BUDGET = {"share": 0.02, "burst": 0.25, "least": 0.01}  # for look-ups that find no usable schema
# For waiting for IDs for which the registry fails, although it answers for others.
_WAIT_BUDGET = {"share": 0.1, "burst": 60.0}
_MAX_STEP = 30.0  # most seconds between two failures of an ID that count as waiting for it
MAX_CACHED_CHARACTERS = 8 << 20  # characters of all cached schemas; as objects they take about ten times as much
_MAX_REFUSED_IDS = 1000  # ids
# Workers that start together register the same schema. A registry may report a conflict to all but one (Apicurio does). A retry
# then returns the ID; a real conflict remains.
_CONFLICT_TRIES = 3
_CONFLICT_WAIT = 0.1
# The registry's own codes. A 404 with another code comes from a server that is not a registry.
_NOT_FOUND_CODES = {40401, 40402, 40403}


class RegistryStore:
    """A `SchemaStore` over a Confluent-compatible registry. A schema that was found by ID is kept: IDs don't change.

    Threads may share it. A schema that is kept is returned at once, whatever other threads do. Look-ups take turns, because
    they share the budgets: a thread that needs one waits until the one under way ends.

    `by_id` raises:
        SchemaUnavailable: the registry can't answer now (SchemaAccessDenied: it refuses the credentials).
        UnknownSchema: there is no schema of this ID, or the budget for looking it up is used up.
        BadSchemaError: the schema can't be used.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        ca: Path | None = None,
        kind: Literal["AVRO", "JSON"] = "AVRO",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        url: without user, query and fragment.
        username: for basic authentication.
        password: for basic authentication.
        ca: file of certificate authorities to trust in place of the system's.
        kind: what schemas this store gives. Others are BadSchemaErrors. The definition of a JSON Schema is its text.
        clock: seconds.
        """
        self._url = url
        self._kind = kind
        self._clock = clock
        self._http = RegistryHttp(url, username, password, ca)
        self._found = RecentlyUsed[int, Schema](MAX_CACHED_CHARACTERS)
        self._found_lock = threading.Lock()  # for `_found`; held for no longer than reading or writing it takes
        self._look_up_lock = threading.Lock()  # for all that follows; held while the registry is asked
        self._refused = RecentlyUsed[int, tuple[float, SchemaError]](_MAX_REFUSED_IDS)  # when asked, and what it gave
        self._failed = RecentlyUsed[int, float](_MAX_REFUSED_IDS)  # ids that failed alone, and when last
        self._look_ups = TimeBudget(**_LOOK_UP_BUDGET)
        self._waits = TimeBudget(**_WAIT_BUDGET)
        self._known: int | None = None  # an id that this registry has
        self._is_away = False

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema with this id."""
        found = self._kept(schema_id)
        if found is not None:
            return found
        with self._look_up_lock:
            found = self._kept(schema_id)  # another thread may have found it by now
            return found if found is not None else self._looked_up(schema_id)

    def by_name(self, name: str) -> Schema:
        """Return the newest version of the subject of this name."""
        what = f"subject '{name}'"
        answer = self._answer(what, "GET", f"/subjects/{quote(name, safe='')}/versions/latest")
        found, schema_id = answer.json(), _field(answer, "id", int)
        if answer.status == 200 and schema_id is not None and isinstance(found.get("schema"), str):
            schema = self._parsed(schema_id, name, found)
            self._known = schema_id
            return schema
        raise self._no_subject(name) if _says_not_found(answer) else self._failure(what, answer)

    def register(self, name: str, definition: AvroType) -> int:
        """Register the schema under the subject of this name, if it isn't yet, and return its id."""
        what = f"registering subject '{name}'"
        path, body = f"/subjects/{quote(name, safe='')}/versions", {"schema": json.dumps(definition)}
        answer = self._answer(what, "POST", path, body)
        for _ in range(_CONFLICT_TRIES):
            if answer.status != 409:
                break
            time.sleep(_CONFLICT_WAIT)
            answer = self._answer(what, "POST", path, body)
        schema_id = _field(answer, "id", int)
        if answer.status == 200 and schema_id is not None:
            return schema_id
        raise self._no_subject(name) if _says_not_found(answer) else self._failure(what, answer)

    def _kept(self, schema_id: int) -> Schema | None:
        with self._found_lock:
            return self._found.get(schema_id)

    def _looked_up(self, schema_id: int) -> Schema:
        """Ask for an id that isn't kept, as far as the budget allows. The caller holds `_look_up_lock`."""
        if schema_id > LARGEST_ID:
            raise UnknownSchema(
                f"no schema registry gives out the id {schema_id}; the largest is {LARGEST_ID}: is the record written by a "
                "schema-registry serializer?"
            )
        began = self._clock()
        refused = self._refused.get(schema_id)
        # During an outage, records wait instead of being rejected.
        may_ask = self._is_away or self._look_ups.allows(began)
        if refused is not None and (not may_ask or began - refused[0] < _RETRY_INTERVAL):
            raise type(refused[1])(str(refused[1]))
        if not may_ask:
            raise UnknownSchema(
                f"{self._url} was not asked for the schema with the id {schema_id}: the look-up budget is used up, "
                "because too many records carry ids without a schema"
            )
        try:
            schema, size = self._asked(schema_id, began)
        except SchemaUnavailable:
            raise
        except SchemaError as error:
            self._look_ups.spend(self._clock(), self._clock() - began)
            self._refused.put(schema_id, (began, error))
            raise
        with self._found_lock:
            self._found.put(schema_id, schema, size)
        self._refused.drop(schema_id)
        return schema

    def _asked(self, schema_id: int, began: float) -> tuple[Schema, int]:
        """The schema, and its number of characters."""
        what = f"schema id {schema_id}"
        try:
            answer = self._http.call("GET", f"/schemas/ids/{schema_id}")
        except NoAnswerError as error:
            self._is_away = not self._answers_others()
            if self._is_away:
                raise self._no_answer(what, error) from error
            raise self._failed_alone(schema_id, began, error.failure, str(error)) from error
        found = answer.json()
        if answer.status == 200 and isinstance(found, dict) and isinstance(found.get("schema"), str):
            self._is_away, self._known = False, schema_id
            self._failed.drop(schema_id)
            return self._parsed(schema_id, "", found), len(found["schema"])
        if _says_not_found(answer):
            self._is_away = False
            raise UnknownSchema(
                f"{self._url} has no schema with the id {schema_id}: was the record written with another registry's schema?"
            )
        self._is_away = not self._answers_others()
        if self._is_away:
            raise self._failure(what, answer)
        raise self._failed_alone(schema_id, began, failure_of(answer.status), f"HTTP {answer.status}: {_said(answer)}")

    def _answers_others(self) -> bool:
        """Whether the registry answers for another schema, one that it has. That needs the same rights and the same storage."""
        path = "/schemas/types" if self._known is None else f"/schemas/ids/{self._known}"
        try:
            answer = self._http.call("GET", path, seconds=_PROBE_INTERVAL)
        except NoAnswerError:
            return False
        return (answer.status == 200 and answer.json() is not None) or _says_not_found(answer)

    def _failed_alone(self, schema_id: int, began: float, failure: Failure, said: str) -> SchemaError:
        """The exception for an ID that fails although the registry answers for others. Its records may wait for some time."""
        text = f"{self._url} answers other questions, but not the one for the schema with the id {schema_id}: {said}"
        if failure != "wait":
            return UnknownSchema(f"{text}: look at what is registered under this id")
        now, last = self._clock(), self._failed.get(schema_id)
        since = began if last is None else max(last, now - _MAX_STEP)
        self._failed.put(schema_id, now)
        self._waits.spend(now, now - since)
        if self._waits.allows(now):
            return SchemaUnavailable(
                f"{text}: its records wait for up to {_WAIT_BUDGET['burst']:g} s, then they are given up"
            )
        return UnknownSchema(f"{text}: given up after waiting: look at the registry's log")

    def _parsed(self, schema_id: int, name: str, found: dict[str, Any]) -> Schema:
        place = f"schema {schema_id} in {self._url}"
        kind, references = found.get("schemaType"), found.get("references")
        if (kind or "AVRO") != self._kind:
            expected, advice = ("an Avro schema", "Avro") if self._kind == "AVRO" else ("a JSON Schema", "JSON")
            raise BadSchemaError(
                f"{place}: expected {expected}, found {kind or 'AVRO'!s:.40}: write these records in {advice}"
            )
        if references:
            raise BadSchemaError(
                f"{place}: refers to other schemas ({_names(references)}), which isn't supported: "
                "register it with them inside"
            )
        if self._kind == "JSON":
            return Schema(schema_id, name, found["schema"])
        return Schema(schema_id, name, definition_of(place, found["schema"], bare_name=True))

    def _answer(self, what: str, method: str, path: str, body: object = None) -> Answer:
        try:
            return self._http.call(method, path, body)
        except NoAnswerError as error:
            raise self._no_answer(what, error) from error

    def _no_answer(self, what: str, error: NoAnswerError) -> SchemaUnavailable:
        return SchemaUnavailable(
            f"{self._url} can't give {what} now: {error!s:.200}: check that the registry runs, and the url"
        )

    def _failure(self, what: str, answer: Answer) -> SchemaError:
        status = answer.status
        if status in (401, 403):
            return SchemaAccessDenied(
                f"{self._url} refused access to {what} (HTTP {status}): check schemas.registry's username and password, "
                "and what this user may read"
            )
        if status in (409, 422):
            return BadSchemaError(f"{self._url} refused {what} (HTTP {status}): {_said(answer)}")
        if failure_of(status) == "reject":
            return SchemaUnavailable(
                f"{self._url} answered {what} with HTTP {status}, unlike a schema registry: {_said(answer)}: check the url"
            )
        return SchemaUnavailable(
            f"{self._url} can't give {what} now: HTTP {status}: {_said(answer)}: check that the registry runs, and the url"
        )

    def _no_subject(self, name: str) -> UnknownSchema:
        near = meant(name, self._subjects())
        return UnknownSchema(
            f"{self._url} has no subject '{name}': register the schema, or use a name that is there.{near}"
        )

    def _subjects(self) -> list[str]:
        """The names of all subjects; none if the registry doesn't tell them."""
        try:
            found = self._http.call("GET", "/subjects").json()
        except NoAnswerError:
            return []
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _field(answer: Answer, name: str, kind: type[int]) -> int | None:
    found = answer.json()
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _says_not_found(answer: Answer) -> bool:
    return answer.status == 404 and _field(answer, "error_code", int) in _NOT_FOUND_CODES


def _said(answer: Answer) -> str:
    """The message in an error response, short and on one line."""
    found = answer.json()
    message = found.get("message") if isinstance(found, dict) else None
    text = message if isinstance(message, str) else answer.body[:1000].decode(errors="replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text[:1000]).split())[:200]


def _names(references: Any) -> str:
    names = (
        [str(one.get("name")) for one in references if isinstance(one, dict)] if isinstance(references, list) else []
    )
    return ", ".join(names)[:200]
