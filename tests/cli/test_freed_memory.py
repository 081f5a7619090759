"""A worker uses freed memory again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from millstream.consumers.cli.work import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def fill():
    blocks = [np.ones(3 << 20, np.uint8) for _ in range(10)]
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(choice: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, choice], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_freed_memory_is_used_again() -> None:
    assert page_faults("keep") * 10 < page_faults("give back")
