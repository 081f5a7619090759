"""The file aliases.yaml beside a model's versions: `champion: 3`. Registries keep aliases themselves."""

import re
from collections.abc import Mapping

from millstream.inference.config_file import told
from millstream.inference.errors import ModelConfigError
from millstream.inference.version_number import LARGEST_VERSION
from millstream.schemas.wording import shown
from millstream.schemas.yaml_file import Fault, NodeReader, YamlError, composed, decoded

ALIASES_FILE = "aliases.yaml"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,199}")


def parsed_aliases(content: bytes, place: str) -> Mapping[str, int]:
    """Alias -> version. `place`: the file's, for messages. Raises ModelConfigError."""
    reader = NodeReader()
    try:
        root = composed(decoded(content))
        data = None if root is None else reader.read(root)
    except YamlError as error:
        raise ModelConfigError(told(place, error.fault)) from None
    if reader.faults:
        raise ModelConfigError("\n".join(told(place, fault) for fault in reader.faults))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ModelConfigError(
            f"{place}:1: expected a line for each alias, such as `champion: 3`, found {shown(data)}."
        )
    faults = [
        told(place, Fault(problem, reader.lines[(name,)], name))
        for name, version in data.items()
        if (problem := _problem(name, version))
    ]
    if faults:
        raise ModelConfigError("\n".join(faults))
    return data


def _problem(name: str, version: object) -> str:
    """Why an entry is no alias of a version; empty: it is one."""
    if not _NAME.fullmatch(name) or name == "latest":
        return "expected the name of an alias (letters, digits, `.`, `_` and `-`; no digit first; not `latest`), found another."
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= LARGEST_VERSION:
        return f"expected the number of a version, found {shown(version)}."
    return ""
