"""Models on servers with OpenAI's API, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from millstream.inference.executors.openai.executor import open_openai
from millstream.inference.repository import ModelVersion, load_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from millstream.inference.executors.interface import AsyncExecutor

TEXT_INPUT = {"tensor": "text", "fields": ["text"], "dtype": "string"}
CHAT = {"prompt": "{{ text }}"}
EMBEDDING = {"task": "embedding"}
ANSWER_SCHEMA = {
    "type": "object",
    "properties": {
        "category": {"enum": ["billing", "bug"]},
        "urgent": {"type": "boolean"},
        "score": {"type": "number"},
        "count": {"type": "integer"},
        "place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string"},
    },
    "required": ["category", "urgent", "score", "count", "place", "tags"],
    "additionalProperties": False,
}
ANSWER = '{"category": "bug", "urgent": true, "score": 1, "count": 3, "place": {"city": "Oslo"}, "tags": ["a", "b"]}'


def write_config(
    repository: Path,
    url: str | list[str],
    request: Mapping[str, Any] | None = None,
    *,
    outputs: tuple[str, ...] = ("text",),
    server: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Write `llm/1/config.yaml`. `server`: its section besides the URLs and the model."""
    folder = repository / "llm" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "executor": "openai",
        "server": {"urls": [url] if isinstance(url, str) else url, "model": "tiny", "timeout": "5s", **(server or {})},
        "request": {**CHAT} if request is None else {**request},
        "inputs": [TEXT_INPUT],
        "outputs": [{"tensor": name} for name in outputs],
        **options,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return folder


def load(repository: Path, *arguments: Any, environ: Mapping[str, str] | None = None, **options: Any) -> ModelVersion:
    """A model version. The other arguments are those of `write_config`."""
    write_config(repository, *arguments, **options)
    return load_version(repository, "llm", environ=environ)


def opened(repository: Path, *arguments: Any, max_events: int = 256, **options: Any) -> AsyncExecutor:
    """An executor. The other arguments are those of `load`."""
    return open_openai(load(repository, *arguments, **options), max_events)


def texts(*values: str) -> dict[str, Any]:
    """Inputs with these texts."""
    return {"text": np.array(values, object).reshape(-1, 1)}
