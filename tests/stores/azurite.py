"""Azurite as a child process of the tests: Microsoft's emulator of Azure Blob Storage. npm fetches it once (100 MB)."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.broker.maven import CACHE
from tests.made_once import digest_of, made_once
from tests.stores.store_process import HOST, StoreProcess

_NODE = Path(__file__).parent / "node"
_FETCH_TIMEOUT_S = 600
ACCOUNT = "devstoreaccount1"
# Microsoft publishes this key for the emulator.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Azurite(StoreProcess):
    """See `StoreProcess`."""

    title = "Azurite"
    scheme, package, extra = "az", "adlfs", "azure"
    secrets = (KEY,)
    ends_by = signal.SIGTERM  # a kill would lose its index
    ready_at = f"/{ACCOUNT}?comp=list"

    @property
    def client(self) -> dict[str, str]:
        return {"connection_string": self.connection_string()}

    def connection_string(self, key: str = KEY) -> str:
        """How clients log in."""
        endpoint = f"{self.url}/{ACCOUNT}"
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={endpoint};"

    def command(self) -> list[str]:
        address = ["--blobHost", HOST, "--blobPort", str(self.port), "--location", str(self.folder / "data")]
        return ["node", str(_blob_server()), *address, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]


def _blob_server() -> Path:
    """The program, with the packages that package-lock.json pins; skips the test where Node is missing."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"no Azurite: {tool} is not installed, and Azurite needs Node 20 or later (https://nodejs.org)")

    def fetch(folder: Path) -> None:
        for file in _NODE.iterdir():
            shutil.copy(file, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(folder / "npm")]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S
        )
        shutil.rmtree(folder / "npm", ignore_errors=True)
        assert done.returncode == 0, done.stderr

    made = made_once(CACHE / "stores" / f"azurite-{digest_of(sorted(_NODE.iterdir()))}", fetch)
    return made / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
