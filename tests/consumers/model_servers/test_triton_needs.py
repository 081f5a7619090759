from dataclasses import replace

import pytest

from millstream.consumers.model_servers.triton import Machine, lacks

GOOD = Machine(system="linux", processor="x86_64", python=(3, 12), glibc=(2, 35), libpython=True)


def test_machine_that_can_run_it_lacks_nothing() -> None:
    assert lacks(GOOD) is None


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (replace(GOOD, system="darwin", processor="arm64"), "it needs Linux on x86_64, found darwin on arm64"),
        (replace(GOOD, processor="aarch64"), "it needs Linux on x86_64, found linux on aarch64"),
        (replace(GOOD, glibc=(2, 31)), "it needs glibc 2.35 or later, found 2.31"),
        (replace(GOOD, glibc=()), "it needs glibc 2.35 or later, found another C library"),
        (replace(GOOD, python=(3, 13)), "found Python 3.13"),
        (replace(GOOD, libpython=False), "it needs Python's shared library"),
    ],
    ids=["macOS", "ARM", "old glibc", "musl", "new Python", "static Python"],
)
def test_other_machine_is_told_what_it_lacks(machine: Machine, said: str) -> None:
    found = lacks(machine)
    assert found is not None
    assert said in found
