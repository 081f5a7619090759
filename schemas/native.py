"""Whether this process uses Millstream's native parts (docs/native.md). The command line chooses once for the process."""

from collections.abc import Mapping
from enum import StrEnum

VARIABLE = "MILLSTREAM_NATIVE"


class Native(StrEnum):
    """The values of the environment variable."""

    ON = "on"  # the C extensions, and direct calls of librdkafka with tested versions of confluent-kafka
    OFF = "off"  # neither
    TRY = "try"  # as `on`, but with any version of confluent-kafka


_chosen = Native.ON


def choose_native(environ: Mapping[str, str]) -> None:
    """Take the choice from the environment, before records are read or written. Unset or empty means `on`.

    Raises:
        ValueError: the variable has another value.
    """
    global _chosen  # noqa: PLW0603  (the choice holds for the whole process)
    value = environ.get(VARIABLE) or Native.ON
    try:
        _chosen = Native(value)
    except ValueError:
        expected = ", ".join(Native)
        raise ValueError(
            f"environment variable {VARIABLE}: expected one of {expected}; found {value!r}. Unset it for the default, on; "
            f"`millstream docs native` says what the others do."
        ) from None


def native() -> Native:
    """The choice of this process."""
    return _chosen
