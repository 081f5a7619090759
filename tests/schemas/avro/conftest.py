import pytest

from millstream.schemas.avro import decoder


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where `avro_columns.c` is not compiled."""
    monkeypatch.setattr(decoder, "column_reader", lambda *_: None)


@pytest.fixture(params=["in C", "one by one"])
def way(request: pytest.FixtureRequest) -> str:
    """Runs the test both ways."""
    if request.param == "one by one":
        request.getfixturevalue("one_by_one")
    return str(request.param)
