"""Which of several servers gets the next request."""

from millstream.inference.executors.openai.endpoints import Endpoints


def test_the_server_with_the_fewest_requests_is_next() -> None:
    servers = Endpoints(["a", "b"])
    first, second = servers.take(0.0), servers.take(0.0)
    assert {first.url, second.url} == {"a", "b"}
    servers.release(second)
    assert servers.take(0.0) is second


def test_a_server_that_fails_gets_none_for_longer_and_longer() -> None:
    servers = Endpoints(["a", "b"])
    bad = servers.take(0.0)
    for now, pause in ((0.0, 1.0), (10.0, 2.0), (20.0, 4.0), (100.0, 8.0), (200.0, 16.0), (300.0, 30.0), (400.0, 30.0)):
        servers.failed(bad, now)
        servers.failed(bad, now)  # a request that was in flight at the same time
        assert bad.ejected_until == now + pause
        assert servers.take(now + pause / 2) is not bad
    servers.succeeded(bad)
    assert bad.ejected_until == 0.0


def test_if_all_fail_the_first_one_to_wait_is_tried() -> None:
    servers = Endpoints(["a", "b"])
    first, second = servers.take(0.0), servers.take(0.0)
    servers.failed(second, 0.0)
    assert servers.any_works(0.0)
    servers.failed(first, 0.5)
    assert not servers.any_works(0.5)
    assert servers.take(0.5) is second
