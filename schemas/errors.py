"""The errors of schemas, and of records written with them."""

from typing import ClassVar, Literal

from millstream.schemas.failures import Failure

Reason = Literal["undecodable", "unknown_schema", "schema_incompatible"]


class SchemaError(Exception):
    """Base of this package's errors; the message names the place, what was found and what to do."""

    failure: ClassVar[Failure] = "reject"  # see `schemas.failures`


# The names without "Error" are verdicts on a record, or states of a registry: expected, and handled.
class NotWireFormat(SchemaError, ValueError):  # noqa: N818
    """A value has no schema-registry head. Raised by `wire`; the record is at fault: dead-letter it, don't retry."""


class UnknownSchema(SchemaError):  # noqa: N818
    """No schema has this id or name. Raised by schema stores; dead-letter the record, or stop if it is a setting."""


class SchemaUnavailable(SchemaError):  # noqa: N818
    """A schema can't be read at present. Raised by schema stores; nothing is wrong with the record: wait and retry."""

    failure = "wait"
    row = 0  # index of the first value that needs it; set by decoders


class SchemaAccessDenied(SchemaUnavailable):
    """The registry refused the credentials. Raised by `RegistryStore`; retry at run time: an operator may be changing them."""


class BadSchemaError(SchemaError):
    """A schema is invalid or of a kind not supported. Raised by stores and decoders; somebody has to change it."""


class BadFieldError(SchemaError):
    """A wanted field isn't in the reader schema or can't be a column. Raised by decoders' constructors; stop."""

    failure = "stop"


class ContradictingPaths(BadFieldError):  # noqa: N818
    """Two paths need different types of one value. Raised by decoders' constructors; the caller adds where the path stands."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path  # the one to correct


class BadPathError(BadFieldError):
    """The text of a path can't be parsed. Raised by `paths`; somebody has to change it."""


class Unreadable(SchemaError):  # noqa: N818
    """At least one of these records can't be read. Raised inside the decoders, which then find and report the ones at fault."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason  # code of `decoded.BadRecord`
