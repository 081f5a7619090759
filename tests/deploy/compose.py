"""docker-compose.yml: its services, and their commands as they run here."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from tests.deploy.declared import DEPLOY

ROOT = DEPLOY.parent


@cache
def services() -> dict[str, dict[str, Any]]:
    """Name -> service."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    return found


def ours() -> list[str]:
    """The services that run our image."""
    return [name for name, service in services().items() if service["image"] == "millstream"]


def command_of(name: str) -> list[str]:
    """What the container runs: `millstream` is the image's entry point."""
    service = services()[name]
    return [*service.get("entrypoint", ["millstream"]), *service.get("command", [])]


def path_here(inside: str, name: str) -> str:
    """A path of the container in the checkout; a word that is none stays."""
    for volume in services()[name]["volumes"]:
        outside, mounted, *_ = volume.split(":")
        if inside == mounted or inside.startswith(f"{mounted}/"):
            return str((ROOT / outside).resolve()) + inside.removeprefix(mounted)
    return inside
