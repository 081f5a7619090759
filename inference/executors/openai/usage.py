"""The tokens that a server reports. Pure."""

from typing import Any

import msgspec

_MOST = 1 << 40  # far above any model's context: a larger number would use up a quota for years


class Usage(msgspec.Struct):
    """The section `usage` of a response."""

    prompt_tokens: Any = None
    completion_tokens: Any = None


def token_count(reported: object) -> int | None:
    """The number of tokens; None: the server reports none, or something that can be none. A completion is good without it."""
    if isinstance(reported, bool) or not isinstance(reported, int):
        return None
    return reported if 0 <= reported <= _MOST else None
