"""Serves folders as the Hugging Face Hub does: the requests that `HfFileSystem` sends to list and read a private repository.

    GET /api/models/REPOSITORY[/revision/main]                               whether it is there
    GET /api/models/REPOSITORY/tree/main[/PATH]?recursive=...[&cursor=...]   its files, with pages
    POST /api/models/REPOSITORY/paths-info/main                              some of its files, by their paths (earlier clients)
    GET, HEAD /REPOSITORY/resolve/main/PATH                                  a file, or the range of `Range`

Arguments: the port, the folder with REPOSITORY (two steps: `org/name`), and the token that may read.
"""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

PAGE = 1000  # entries of a listing in one answer, as the Hub has it
LARGE = 10_000  # bytes from which a file is in LFS here
_NAME = r"/api/models/([^/]+(?:/[^/]+)?)"  # earlier clients also ask for repositories without an organisation
_API = re.compile(rf"{_NAME}(?:/revision/main)?")
_TREE = re.compile(rf"{_NAME}/tree/main(?:/(.*))?")
_PATHS = re.compile(rf"{_NAME}/paths-info/main")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/main/(.+)")


class Handler(BaseHTTPRequestHandler):
    """See the module."""

    protocol_version = "HTTP/1.1"
    root: Path
    token: str

    def do_GET(self) -> None:
        """Answer a request."""
        parts = urlsplit(self.path)
        path = parts.path
        if path == "/":
            return self.send(200)
        given = self.headers.get("Authorization")
        if given not in {None, f"Bearer {self.token}"}:
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        patterns = ((_TREE, self.tree), (_FILE, self.file), (_PATHS, self.some), (_API, self.info))
        for pattern, answer in patterns:
            if (match := pattern.fullmatch(path)) is not None:
                folder = self.root / unquote(match[1])
                if (
                    given is None or not folder.is_dir()
                ):  # the Hub doesn't tell a private repository from one that is missing
                    return self.refuse(401 if given is None else 404, "RepoNotFound", "Repository not found")
                inside = unquote(match[2] or "") if pattern.groups > 1 else ""
                return answer(folder, inside, parse_qs(parts.query))
        return self.refuse(404, "", "no such page")

    do_HEAD = do_POST = do_GET  # noqa: N815

    def info(self, folder: Path, _: str, __: Mapping[str, list[str]]) -> None:
        """What the repository is."""
        self.send_json(
            {"id": folder.relative_to(self.root).as_posix(), "private": True, "sha": "0" * 40, "siblings": []}
        )

    def tree(self, folder: Path, inside: str, query: Mapping[str, list[str]]) -> None:
        """A page of a listing."""
        start = folder / inside
        if not start.is_dir():
            return self.refuse(404, "EntryNotFound", f"{inside} does not exist on main")
        recursive = query.get("recursive", ["false"])[0].lower() in {"true", "1"}
        paths = sorted(start.rglob("*") if recursive else start.iterdir())
        first = int(query.get("cursor", ["0"])[0])
        entries = [_entry(path, path.relative_to(folder).as_posix()) for path in paths[first : first + PAGE]]
        headers = {}
        if len(paths) > first + PAGE:
            more = urlencode({"recursive": str(recursive).lower(), "cursor": first + PAGE})
            headers["Link"] = f'<http://{self.headers["Host"]}{urlsplit(self.path).path}?{more}>; rel="next"'
        return self.send_json(entries, headers)

    def some(self, folder: Path, _: str, __: Mapping[str, list[str]]) -> None:
        """Files and folders by their paths; those that are missing are left out."""
        form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        self.send_json([_entry(folder / path, path) for path in form.get("paths", []) if (folder / path).exists()])

    def file(self, folder: Path, inside: str, _: Mapping[str, list[str]]) -> None:
        """A file, or a range of it."""
        path = folder / inside
        if not path.is_file():
            return self.refuse(404, "EntryNotFound", "Entry not found")
        content = path.read_bytes()
        headers = {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": "0" * 40, "Accept-Ranges": "bytes"}
        if (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) is None:
            return self.send(200, content, headers)
        first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        if first >= len(content):
            return self.send(416, headers=headers)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return self.send(206, content[first : last + 1], headers)

    def send_json(self, data: Any, headers: Mapping[str, str] | None = None) -> None:
        """Answer with JSON."""
        self.send(200, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})})

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error, as the Hub words it."""
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self.send(status, json.dumps({"error": message}).encode(), headers)

    def send(self, status: int, content: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _entry(path: Path, name: str) -> dict[str, Any]:
    if path.is_dir():
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
    content = path.read_bytes()
    entry: dict[str, Any] = {"type": "file", "oid": _oid(content), "size": len(content), "path": name}
    if len(content) >= LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


def _oid(content: bytes) -> str:
    """As git names a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


if __name__ == "__main__":
    port, root, Handler.token = sys.argv[1:]
    Handler.root = Path(root)
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
