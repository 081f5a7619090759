from collections.abc import Iterator

import pytest

from tests.native import with_native


@pytest.fixture
def one_by_one() -> Iterator[None]:
    """As where native parts are turned off, or `avro_columns.c` is not compiled."""
    with with_native(on=False):
        yield


@pytest.fixture(params=["in C", "one by one"])
def way(request: pytest.FixtureRequest) -> str:
    """Runs the test both ways."""
    if request.param == "one by one":
        request.getfixturevalue("one_by_one")
    return str(request.param)
