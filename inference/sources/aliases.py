"""The file aliases.yaml beside a model's versions: `champion: 3`. Registries keep aliases themselves."""

import re
from collections.abc import Mapping

from yaml import YAMLError, safe_load

from millstream.inference.errors import ModelConfigError
from millstream.schemas.wording import shown

ALIASES_FILE = "aliases.yaml"
MAX_BYTES = 1 << 20  # of the file
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,199}")


def parsed_aliases(content: bytes, place: str) -> Mapping[str, int]:
    """Alias -> version. `place`: the file's, for messages. Raises ModelConfigError."""
    try:
        data = safe_load(content[:MAX_BYTES].decode())
    except (YAMLError, UnicodeDecodeError):
        data = "something else"
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ModelConfigError(f"{place}: expected a line for each alias, such as `champion: 3`, found {shown(data)}.")
    for name, version in data.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "latest":
            raise ModelConfigError(
                f"{place}: expected the name of an alias (letters, digits, `.`, `_` and `-`; not `latest`), found {shown(name)}."
            )
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ModelConfigError(f"{place}: {name}: expected the number of a version, found {shown(version)}.")
    return data
