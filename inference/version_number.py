"""Version numbers in the names of folders."""

import re

LARGEST_VERSION = 2**31 - 1  # largest that fits the prediction's schema (int)


def version_number(name: str) -> int | None:
    """The version number in a folder's name. None if it is above the largest or has leading zeros (`007`)."""
    return int(name) if re.fullmatch("0|[1-9][0-9]{0,9}", name) and int(name) <= LARGEST_VERSION else None
