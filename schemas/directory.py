"""Schemas from folders of files named `<id>-<name>.avsc`, for use without a schema registry."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from millstream.schemas import git_lfs
from millstream.schemas.avro.limits import MAX_TEXT, definition_of
from millstream.schemas.errors import BadSchemaError, SchemaUnavailable, UnknownSchema
from millstream.schemas.store import LARGEST_ID, AvroType, Schema
from millstream.schemas.wording import meant

_FILE_NAME = re.compile(r"(?P<id>[1-9][0-9]*)-(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\.avsc")
_OWN_IDS = 1_000_000  # Millstream's own schemas have larger ids
_RESCAN_SECONDS = 1.0  # between two scans of folders that look unchanged: a file may be written after it was added


class DirectoryStore:
    """A `SchemaStore` over folders. It reads all files at once, and again when it needs an unknown ID.

    Raises BadSchemaError for a missing folder, a bad file name, a file that isn't an Avro schema, or an id used twice.
    """

    def __init__(self, *folders: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folders = folders
        self._clock = clock
        self._changed = _changes(folders)
        self._schemas = _scan(folders)
        self._scanned = clock()
        self._failure: str | None = None  # of the last scan

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema with this ID, also from a file that was added after the start."""
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        if not 0 < schema_id <= LARGEST_ID:
            raise UnknownSchema(
                f"no schema has the id {schema_id}: ids are from 1 to {LARGEST_ID}. The producer writes wrong bytes before the "
                "Avro body"
            )
        if self._clock() - self._scanned >= _RESCAN_SECONDS or _changes(self._folders) != self._changed:
            self._rescan()
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        if self._failure is not None:
            # Somebody may be writing or repairing a file. Records are not rejected for that: they wait.
            raise SchemaUnavailable(self._failure)
        own = self._folders[-1]  # the last folder is the user's; the others are Millstream's own
        raise UnknownSchema(
            f"no schema has the id {schema_id} in {own}: put the schema there that the record was written with, as "
            f"{schema_id}-<name>.avsc (there: {self._known()})"
        )

    def by_name(self, name: str) -> Schema:
        """Return the schema of this name; the one with the highest ID if there are several."""
        if ids := self.ids_of(name):
            return self._schemas[ids[-1]]
        near = meant(name, [schema.name for schema in self._schemas.values()])
        raise UnknownSchema(
            f"no schema is named '{name}' in {self._folders[-1]}: write it there as <id>-{name}.avsc, or use one of the names "
            f"there: {self._known()}.{near}"
        )

    def ids_of(self, name: str) -> list[int]:
        """The ids of the schemas of this name, in order."""
        return sorted(schema.id for schema in self._schemas.values() if schema.name == name)

    def register(self, name: str, definition: AvroType) -> int:
        """Return the ID of the file with this schema. A folder doesn't assign new IDs."""
        for schema in self._schemas.values():
            if schema.name == name and schema.definition == definition:
                return schema.id
        free = max((schema.id for schema in self._schemas.values() if schema.id < _OWN_IDS), default=0) + 1
        raise UnknownSchema(
            f"no file in {_listed(self._folders)} holds this schema of '{name}': write it to {free}-{name}.avsc there"
        )

    def _rescan(self) -> None:
        self._scanned, self._changed = self._clock(), _changes(self._folders)
        try:
            self._schemas, self._failure = _scan(self._folders), None
        except BadSchemaError as error:
            self._failure = str(error)

    def _known(self) -> str:
        """The schemas, without Millstream's own."""
        ids = sorted(schema_id for schema_id in self._schemas if schema_id < _OWN_IDS)
        return ", ".join(f"{schema_id}-{self._schemas[schema_id].name}" for schema_id in ids) or "none"


def _changes(folders: tuple[Path, ...]) -> list[int]:
    """When a file of each folder was added, renamed or removed last."""
    return [folder.stat().st_mtime_ns if folder.is_dir() else 0 for folder in folders]


def _scan(folders: tuple[Path, ...]) -> dict[int, Schema]:
    found: dict[int, tuple[Schema, Path]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise BadSchemaError(f"{folder}: expected a folder of schemas, found none: make it, or change the path")
        for path in sorted(folder.glob("*.avsc")):
            schema = _load(path)
            if schema.id in found:
                raise BadSchemaError(
                    f"{path}: the id {schema.id} is also that of {found[schema.id][1]}: rename the one that no record "
                    "was written with yet"
                )
            found[schema.id] = (schema, path)
    return {schema_id: schema for schema_id, (schema, _) in found.items()}


def _load(path: Path) -> Schema:
    match = _FILE_NAME.fullmatch(path.name)
    if match is None or int(match["id"]) > LARGEST_ID:
        raise BadSchemaError(
            f"{path}: expected a file name <id>-<name>.avsc with an id from 1 to {LARGEST_ID}: "
            "rename it, for example to 1-flight-departure.avsc"
        )
    try:
        if path.stat().st_size > 4 * MAX_TEXT:  # a character has at most 4 bytes
            raise BadSchemaError(
                f"{path}: expected a schema of at most {MAX_TEXT:,} characters, found more: shorten it"
            )
        text = path.read_text(encoding="utf-8")
        if text.startswith(git_lfs.HEAD):
            raise BadSchemaError(f"{path}: expected an Avro schema, found {git_lfs.FOUND}")
        definition = definition_of(str(path), text)
    except json.JSONDecodeError as error:
        raise BadSchemaError(
            f"{path}:{error.lineno}: expected JSON: {error.msg.removesuffix(' at')} at column {error.colno}: correct the file"
        ) from error
    except UnicodeDecodeError as error:
        raise BadSchemaError(f"{path}: expected UTF-8 text, found other bytes at {error.start}: save it so") from error
    except OSError as error:
        raise BadSchemaError(f"{path}: can't be read: {error.strerror}") from error
    return Schema(int(match["id"]), match["name"], definition)


def _listed(folders: tuple[Path, ...]) -> str:
    return " or ".join(str(folder) for folder in folders)
