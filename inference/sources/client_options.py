"""What fsspec's clients are given: the options of `model.client`, and bounds of their own waits, in place of minutes."""

import importlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONNECT_TIMEOUT = 5  # seconds
READ_TIMEOUT = 20  # seconds without a byte


def client_options(scheme: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The options that fsspec's client of a scheme gets. Raises ValueError."""
    given = nested(options)
    match scheme:
        case "s3":
            retries = {"max_attempts": 2}
            bounds = {"connect_timeout": CONNECT_TIMEOUT, "read_timeout": READ_TIMEOUT, "retries": retries}
            return {"config_kwargs": bounds, **given}
        case "gs" | "gcs":
            logging.getLogger("gcsfs").addFilter(_without_traceback)
            aiohttp = importlib.import_module("aiohttp")
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
            return {"requests_timeout": timeout, "retry_timeout": CONNECT_TIMEOUT, **given, **_google_key(given)}
        case "az" | "abfs" | "abfss":
            return {"connection_timeout": CONNECT_TIMEOUT, "read_timeout": READ_TIMEOUT, **given}
        case _:
            return given


def ready(scheme: str, store: Any) -> None:
    """Make an open client ready for a call. It raises what the client raises."""
    match scheme:
        case "gs" | "gcs":
            # A request whose login is refused is sent again for half a minute, and the store would look as if it were away.
            store.credentials.maybe_refresh()
        case "hf":
            # Without it, a listing waits forever for a hub that hangs.
            session = importlib.import_module("huggingface_hub").get_session()
            session.timeout = READ_TIMEOUT


def nested(options: Mapping[str, str]) -> dict[str, Any]:
    """Options as a client takes them: `client_kwargs.region_name` is a mapping in a mapping; `true` and `false` are no texts."""
    made: dict[str, Any] = {}
    for name, value in options.items():
        *outer, last = name.split(".")
        within = made
        for step in outer:
            within = within.setdefault(step, {})
        within[last] = {"true": True, "false": False}.get(value, value)
    return made


def _google_key(options: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a key file, as `token: {file: PATH}` gives it. Raises ValueError: `token` is the path of no file.

    gcsfs would take both for an access token, and send it to Google.
    """
    token = options.get("token")
    if not isinstance(token, str):
        return {}
    if token.lstrip().startswith("{"):
        return {"token": json.loads(token)}
    if token.startswith(("/", ".", "~")) or token.endswith(".json"):
        path = Path(token).expanduser()
        if not path.is_file():
            raise ValueError("`token` is the path of a key file, and there is no such file")
        return {"token": str(path)}
    return {}


def _without_traceback(record: logging.LogRecord) -> bool:
    """gcsfs logs each error with its traceback, and raises it too. The error's message is enough."""
    return record.exc_info is None
