"""Keeps secrets out of messages that quote other programs."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

_LONGEST = 300  # characters of a quoted message
_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_SIGNED = re.compile(
    r"([?&](?:X-(?:Amz|Goog)-[A-Za-z-]+|sig|se|sp|sv|sr|Signature|AWSAccessKeyId|token|access_token)=)[^&\s'\"]+",
    re.IGNORECASE,
)
_NAMED = re.compile(r"((?:password|passwd|pwd)['\"]?\s*[=:]\s*['\"]?)[^\s,;'\"&]+", re.IGNORECASE)
# Pydantic quotes the value that it refuses: all options of a client, for example.
_INPUT = re.compile(r"input_value=.*?(?=, input_type=|$)")
_SHORTEST = 4  # characters; a shorter secret would black out words
_LINE = 16  # characters; a shorter part would black out words, too
_PARTS = re.compile(r"\n|\\n|\"|[;&](?:[A-Za-z]+=)?|^[A-Za-z]+=")


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text in one line, without these secrets, users in URLs, signatures of URLs, and what stands behind `password`."""
    line = " ".join(_SIGNED.sub(r"\1***", _IN_URL.sub("***@", text)).split())
    line = _NAMED.sub(r"\1***", _INPUT.sub("input_value=***", line))
    for form in sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True):
        if len(form) >= _SHORTEST:
            line = line.replace(form, "***")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _forms(secret: str) -> Iterator[str]:
    """A secret as it may stand in a line: itself, as `repr` writes it, in a URL, and its parts.

    Parts are the lines of a key file, also in JSON, and the values of a connection string.
    """
    yield from (secret, repr(secret)[1:-1], quote(secret), quote(secret, safe=""), quote_plus(secret))
    yield " ".join(secret.split())
    yield unquote(secret)
    yield from (part.strip() for part in _PARTS.split(secret) if len(part) >= _LINE and "://" not in part)
