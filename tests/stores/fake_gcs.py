"""fake-gcs-server as a child process of the tests: Google Cloud Storage's API. Go builds it once (60 MB, some minutes).

It accepts any credentials. `refusing` is a server that accepts none.
"""

from __future__ import annotations

import os

from tests.stores.go_programs import go_program
from tests.stores.store_process import HOST, StoreProcess

VERSION = "v1.56.1"
# gcsfs reads it once: whether it asks by gRPC what kind of bucket it reads. The fake has no gRPC, so each request would wait.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


class FakeGcs(StoreProcess):
    """See `StoreProcess`."""

    title = "fake-gcs-server"
    scheme, package, extra = "gs", "gcsfs", "gcs"
    ready_at = "/_internal/healthcheck"

    @property
    def client(self) -> dict[str, str]:
        return {"endpoint_url": self.url, "token": "anon"}

    def command(self) -> list[str]:
        program = go_program("github.com/fsouza/fake-gcs-server", VERSION, self.title)
        address = ["-scheme", "http", "-host", HOST, "-port", str(self.port), "-public-host", f"{HOST}:{self.port}"]
        return [str(program), *address, "-backend", "filesystem", "-filesystem-root", str(self.folder / "data")]
