"""A stand-in for the Hugging Face Hub as a child process of the tests. No package serves the Hub's API on its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.stores.store_process import StoreProcess

TOKEN = "hf_token_of_these_tests"
REPOSITORY = "weather/models"


class Hub(StoreProcess):
    """See `StoreProcess`. Tests write into the folder `files`, which is the repository's branch `main`."""

    title = "hub"
    scheme, package, extra = "hf", "huggingface_hub", "hf"
    secrets = (TOKEN,)
    ready_at = "/"

    def __init__(self) -> None:
        super().__init__()
        self.files = self.folder / "data" / REPOSITORY
        self.files.mkdir(parents=True)

    @property
    def client(self) -> dict[str, str]:
        return {"endpoint": self.url, "token": TOKEN}

    def command(self) -> list[str]:
        program = Path(__file__).with_name("hub_server.py")
        return [sys.executable, "-I", str(program), str(self.port), str(self.folder / "data"), TOKEN]
