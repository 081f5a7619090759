"""MinIO as a child process of the tests: a real object store with S3's API. Go builds it once (150 MB, some minutes)."""

from __future__ import annotations

from millstream.topics.local.ports import free_ports
from tests.stores.go_programs import go_program
from tests.stores.store_process import HOST, StoreProcess

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
USER, PASSWORD = "test-user", "test-password-1"


class Minio(StoreProcess):
    """See `StoreProcess`."""

    title = "MinIO"
    scheme, package, extra = "s3", "s3fs", "s3"
    secrets = (PASSWORD,)
    ready_at = "/minio/health/ready"

    def __init__(self) -> None:
        super().__init__()
        (self._console,) = free_ports(1)

    @property
    def client(self) -> dict[str, str]:
        return {"endpoint_url": self.url, "key": USER, "secret": PASSWORD}

    def command(self) -> list[str]:
        addresses = ["--address", f"{HOST}:{self.port}", "--console-address", f"{HOST}:{self._console}"]
        program = go_program("github.com/minio/minio", VERSION, self.title)
        return [str(program), "server", "--quiet", *addresses, str(self.folder / "data")]

    def environ(self) -> dict[str, str]:
        return {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD}
