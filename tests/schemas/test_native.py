"""Native parts are as the environment says, and the C extensions follow."""

import pytest

from millstream.schemas.compiled import compiled
from millstream.schemas.interleave import LIBRARY
from millstream.schemas.native import VARIABLE, Native, choose_native, native
from tests.native import with_native


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, Native.ON), ({VARIABLE: ""}, Native.ON), *(({VARIABLE: value.value}, value) for value in Native)],
)
def test_environment_chooses(environ: dict[str, str], expected: Native) -> None:
    with with_native(on=expected is not Native.ON):  # which has another choice
        choose_native(environ)
        assert native() is expected


@pytest.mark.parametrize("value", ["no", "OFF", "0", " off"])
def test_value_that_is_unknown_is_refused_with_those_that_are_known(value: str) -> None:
    with pytest.raises(ValueError, match=f"{VARIABLE}: expected one of on, off, try; found '{value}'"):
        choose_native({VARIABLE: value})
    assert native() is not Native.OFF


def test_nothing_that_is_compiled_is_used_when_native_parts_are_off() -> None:
    with with_native(on=True):
        compiled(LIBRARY, "interleave")  # a machine that runs this has a compiler
    with with_native(on=False), pytest.raises(LookupError, match=f"{VARIABLE}=off"):
        compiled(LIBRARY, "interleave")
