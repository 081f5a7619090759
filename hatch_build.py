"""Compiles the pages of C when Millstream is built or installed. Without a C compiler they are left out, and said so."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = {
    "consumers/source/fetched.c": "consumers/source/libfetched.so",
    "consumers/sink/bulk.c": "consumers/sink/libbulk.so",
    "consumers/rollout/hashes.c": "consumers/rollout/libhashes.so",
    "schemas/avro/avro_columns.c": "schemas/avro/libavro_columns.so",
    "schemas/interleave.c": "schemas/libinterleave.so",
    "schemas/json/json_columns.c": "schemas/json/libjson_columns.so",
    "schemas/texts.c": "schemas/libtexts.so",
}
FLAGS = "-O3", "-shared", "-fPIC"


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the libraries to the wheel, which then is of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Called before each build."""
        for name in LIBRARIES.values():
            Path(self.root, name).unlink(missing_ok=True)
        try:
            for source, name in LIBRARIES.items():
                compile_library(Path(self.root, source), Path(self.root, name))
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or error
            self.app.display_warning(f"{source} is not compiled, so records are handled one by one: {said}")
            for name in LIBRARIES.values():
                Path(self.root, name).unlink(missing_ok=True)
            return
        build_data["artifacts"] += [f"/{name}" for name in LIBRARIES.values()]
        # Nothing in them knows Python: they are of a platform, not of a version.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform}"


def compile_library(source: Path, library: Path, *flags: str) -> None:
    """With the compiler that CC names, or Python was made with.

    Raises OSError where there is none, and CalledProcessError where it fails.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    subprocess.run([*compiler, *FLAGS, *flags, "-o", library, source], check=True, capture_output=True, text=True)
