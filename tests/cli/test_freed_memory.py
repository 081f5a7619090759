"""A worker uses freed memory again."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.consumers.cli.work import ARENAS

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


THREADS = """
import ctypes, sys, threading
from millstream.consumers.cli.work import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier(4)
def allocate():
    together.wait()  # an arena of a thread that has ended is used again
    libc.malloc(100_000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def arenas(choice: str, file: Path) -> int:
    subprocess.run([sys.executable, "-c", THREADS, choice, str(file)], check=True)
    return file.read_text().count("<heap ")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_threads_share_the_memory_that_they_free(tmp_path: Path) -> None:
    assert arenas("keep", tmp_path / "info") == ARENAS
    assert arenas("give back", tmp_path / "info") > ARENAS
