"""Keeps secrets out of messages that quote other programs."""

import re
from collections.abc import Iterable

_LONGEST = 300  # characters of a quoted message
_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_SIGNED = re.compile(
    r"([?&](?:X-Amz-[A-Za-z-]+|sig|se|sp|sv|sr|Signature|AWSAccessKeyId|token|access_token)=)[^&\s'\"]+", re.IGNORECASE
)
_SHORTEST = 4  # characters; a shorter secret would black out words


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text in one line, without these secrets, without users in URLs and without signatures of URLs."""
    line = " ".join(_SIGNED.sub(r"\1***", _IN_URL.sub("***@", text)).split())
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            line = line.replace(secret, "***")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
