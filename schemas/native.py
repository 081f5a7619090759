"""Whether this process uses Millstream's native parts (docs/native.md). One choice for the process, made by the command line."""

from collections.abc import Mapping
from enum import StrEnum

VARIABLE = "MILLSTREAM_NATIVE"


class Native(StrEnum):
    """The values of the environment variable."""

    ON = "on"  # the C extensions, and librdkafka called directly in the versions of confluent-kafka that are known
    OFF = "off"  # neither
    TRY = "try"  # as `on`, and in any version of confluent-kafka


_chosen = Native.ON


def choose_native(environ: Mapping[str, str]) -> None:
    """Take the choice from the environment, before anything is read or written; unset or empty is `on`.

    Raises:
        ValueError: the variable has another value. The message says which ones there are.
    """
    global _chosen  # noqa: PLW0603  (what is compiled is of the process, too)
    value = environ.get(VARIABLE) or Native.ON
    try:
        _chosen = Native(value)
    except ValueError:
        expected = ", ".join(Native)
        raise ValueError(
            f"environment variable {VARIABLE}: expected one of {expected}; found {value!r}. Unset it for the default, on; "
            f"docs/native.md says what the others do."
        ) from None


def native() -> Native:
    """The choice of this process."""
    return _chosen
