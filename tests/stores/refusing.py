"""An HTTP server that refuses every request, as a store refuses wrong credentials."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from tests.inference.executors.remote_models import serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def refusing(status: int, answer: Any) -> Iterator[str]:
    """Its URL. It answers everything with this status and JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url
