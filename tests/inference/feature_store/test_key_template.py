"""Templates of keys: values of events are data, and keys of two entities are never the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.errors import FeatureStoreError
from millstream.inference.feature_store.key_template import parse_template
from tests.schemas.tables import table_of

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
HOSTILE = st.one_of(TEXTS, st.text(":{}", max_size=5), st.sampled_from(["{b}", "\r\nFLUSHALL\r\n", "\0", "a:b", "*"]))


def keys(template: str, dtype: str = "string", **columns: list[Any]) -> tuple[list[Any], dict[int, str]]:
    found = parse_template(template, "p.yaml:1: key").keys(table_of(dict.fromkeys(columns, dtype), **columns))
    return list(found.keys), dict(found.wrong)


@pytest.mark.parametrize(
    ("dtype", "value", "key"),
    [
        ("string", "é", "customer:é".encode()),
        ("int64", -7, b"customer:-7"),
        ("boolean", True, b"customer:true"),
        ("string", "", b"customer:"),
        ("string", None, None),
    ],
)
def test_key_has_the_text_of_a_value_and_none_for_a_null(dtype: str, value: Any, key: bytes | None) -> None:
    assert keys("customer:{id}", dtype, id=[value]) == ([key], {})


def test_braces_in_values_are_data() -> None:
    assert keys("{a}:{b}", a=["{b}", "{{b}}"], b=["1", "{a}"]) == ([b"{b}:1", b"{{b}}:{a}"], {})


def test_double_braces_are_single_ones() -> None:
    assert keys("{{{a}}}", a=["x"]) == ([b"{x}"], {})


@given(st.lists(st.tuples(HOSTILE, HOSTILE), min_size=1, max_size=20), st.sampled_from([":", "::", "-/-", "aa"]))
def test_two_entities_never_share_a_key(pairs: list[tuple[str, str]], between: str) -> None:
    template = parse_template(f"{{a}}{between}{{b}}", "key")
    table = table_of({"a": "string", "b": "string"}, a=[a for a, _ in pairs], b=[b for _, b in pairs])
    found = template.keys(table)
    entities: dict[Any, tuple[str, str]] = {}
    for row, pair in enumerate(pairs):
        if row not in found.wrong:
            assert entities.setdefault(found.keys[row], pair) == pair


@given(st.lists(HOSTILE, min_size=1))
def test_key_of_one_value_has_all_of_it(values: list[str]) -> None:
    found, wrong = keys("c:{id};", id=values)
    assert found == [f"c:{value};".encode() for value in values]
    assert not wrong


def test_value_with_the_text_behind_it_is_refused() -> None:
    found, wrong = keys("shop:{shop}:{item}", shop=["1", "1:2"], item=["2:3", "3"])
    assert found[0] == b"shop:1:2:3"
    assert wrong == {
        1: "field `shop` is '1:2', but in the key of a look-up it can't contain ':', which stands behind it there"
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "customer",
            r"expected the path of an event field in braces, found none in 'customer'.+customer:\{customer.id\}",
        ),
        ("{a}{b}", "expected a text between two fields, found none"),
        ("{a", "expected a closing brace for the one at character 1, found none"),
        ("a}", r"expected an opening brace for the closing one at character 2, found none. Write }} for a brace"),
        ("{}", "expected a name, found its end"),
        ("{a..b}", "path `a..b`, character 3: expected a name"),
        ("{items[].id}", r"expected a path to one value, found `items\[\].id`. Name an item, such as `\[0\]`"),
    ],
)
def test_wrong_template_is_one_message_with_its_place(text: str, says: str) -> None:
    with pytest.raises(FeatureStoreError, match=f"p.yaml:7: key: .*{says}"):
        parse_template(text, "p.yaml:7: key")
