"""The section `feature_store`: what each kind of store needs, and what contradicts it."""

from pathlib import Path

import pytest

from tests.pipeline.pipeline_files import SMALL, lines_of, load

REDIS = "feature_store:\n  url: redis://store:6379/0\n"
FEAST = "feature_store:\n  type: feast\n  repository: features\n"
LOOKUP = '  lookups: [{name: customer, key: "customer:{id}"}]\n'
VIEW = "  lookups: [{name: customer, key: {customer_id: id}, view: stats}]\n"


def test_defaults_wait_for_the_store(tmp_path: Path) -> None:
    assert load(tmp_path, SMALL).feature_store is None
    store = load(tmp_path, SMALL + REDIS + LOOKUP).feature_store
    assert store is not None
    assert (store.type, store.timeout, store.on_outage) == ("redis", 0.5, "wait")
    assert (store.lookups[0].value, store.lookups[0].max_age) == ("hash", None)


def test_feast_has_join_keys_and_a_view(tmp_path: Path) -> None:
    store = load(tmp_path, SMALL + FEAST + VIEW).feature_store
    assert store is not None
    assert (store.repository, store.lookups[0].key) == (tmp_path / "features", {"customer_id": "id"})


@pytest.mark.parametrize("url", ["redis://a", "rediss://a.b:1/15", "redis://[::1]:6379", "unix:///run/redis.sock"])
def test_address_may_be_tcp_tls_or_a_socket(tmp_path: Path, url: str) -> None:
    load(tmp_path, SMALL + f"feature_store:\n  url: '{url}'\n{LOOKUP}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            LOOKUP.replace("  lookups", "feature_store:\n  lookups"),
            "feature_store.url: this option is missing. Write for",
        ),
        (REDIS, "feature_store.lookups: this option is missing"),
        (REDIS + "  lookups: []\n", "feature_store.lookups: expected "),
        (REDIS.replace("redis:", "http:") + LOOKUP, "expected redis://HOST:PORT/DATABASE, rediss://"),
        (REDIS.replace("store:6379", "me:hush@store") + LOOKUP, "expected a URL without a user and without options"),
        (REDIS + LOOKUP + "  timeout: 11s\n", "feature_store.timeout: expected at most 10s, found 11s"),
        (REDIS + LOOKUP + "  username: me\n", "feature_store.username: expected a `password` beside it, found none"),
        (REDIS + LOOKUP + "  repository: a\n", "feature_store.repository: only a store of type feast has this option"),
        (REDIS + VIEW, "feature_store.lookups[0].key: expected a text, found a mapping"),
        (REDIS + LOOKUP.replace("}]", ", view: s}]"), "lookups[0].view: only a store of type feast has this option"),
        (REDIS + LOOKUP.replace("}]", ", max_age: 1h}]"), "lookups[0].max_age: expected `updated` beside it"),
        (REDIS + LOOKUP.replace("}]", ", include_age: true}]"), "lookups[0].include_age: expected `updated` beside it"),
        (REDIS + LOOKUP.replace("}]", ", updated_format: seconds}]"), "updated_format: expected `updated` beside it"),
        (
            REDIS + LOOKUP.replace("customer,", "a b,"),
            "lookups[0].name: expected letters, digits, - and _, found 'a b'",
        ),
        (REDIS + LOOKUP.replace('"customer:{id}"', "7"), "lookups[0].key: expected a text such as"),
        (
            REDIS + "  lookups: [{name: a, key: '{x}'}, {name: a, key: '{y}'}]\n",
            "lookups[1].name: another look-up is called a too",
        ),
        (FEAST.replace("  repository: features\n", "") + VIEW, "feature_store.repository: this option is missing"),
        (FEAST + "  url: redis://a\n" + VIEW, "feature_store.url: only a store of type redis has this option"),
        (FEAST + LOOKUP, "lookups[0].view: expected the name of a feature view, found none"),
        (FEAST + LOOKUP, "lookups[0].key: expected join keys with the paths of event fields"),
        (FEAST + VIEW.replace("}]", ", value: json}]"), "lookups[0].value: only a store of type redis has this option"),
    ],
)
def test_each_problem_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    lines = lines_of(tmp_path, SMALL + text)
    assert any(problem in line for line in lines), lines
    assert "hush" not in "".join(lines)
