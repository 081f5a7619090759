"""Secrets in YAML files: a value, or where it is: in a file or in an environment variable. No message shows a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.schemas.wording import shown
from millstream.schemas.yaml_file import unusable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_BYTES = 1 << 20  # of a secret's file


def read_secret(value: object, folder: Path, environ: Mapping[str, str]) -> str:
    """The secret that `value` is or points to.

    Args:
        value: a single value, `{file: PATH}` or `{env: NAME}`.
        folder: which a relative path starts from.
        environ: the environment variables.

    Raises:
        ValueError: it names where the secret should be, and never what it is.
    """
    match value:
        case {"file": str(name), **rest} if not rest:
            return _usable(_from_file(name, folder), f"the file {name}")
        case {"env": str(name), **rest} if not rest:
            secret = environ.get(name)
            if not secret:
                raise ValueError(f"expected a secret in the environment variable {name}, which is not set. Set it.")
            return _usable(secret, f"the environment variable {name}")
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
    found = "other keys" if isinstance(value, dict) else shown(value)
    raise ValueError(f"expected a single value, {{file: PATH}} or {{env: NAME}}, found {found}.")


def _usable(secret: str, where: str) -> str:
    if problem := unusable(secret):
        raise ValueError(f"the secret in {where} {problem}")
    return secret


def _from_file(name: str, folder: Path) -> str:
    path = folder / name
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # a device such as /dev/zero has no end
        secret = content.decode().replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    except OSError as error:
        raise ValueError(f"cannot read the secret's file {path}: {error.strerror}. Check the path.") from None
    except ValueError:  # not UTF-8, or a name with a NUL; the decoder's own message would quote the secret's bytes
        raise ValueError(f"expected UTF-8 text in the secret's file {path}. Check which file it is.") from None
    if len(content) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES:,} bytes in the secret's file {path}. Check which file it is.")
    if not secret:
        raise ValueError(f"the secret's file {path} is empty. Write the secret into it.")
    return secret
