"""Paths into events: texts become steps and texts again; each mistake has a message with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.errors import BadPathError
from millstream.schemas.paths import MAX_STEPS, Every, Step, parse_path, text_of

names = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters='"\\'), max_size=5)
steps = st.one_of(names, st.integers(-999_999_999, 999_999_999), st.just(Every.ITEM))


@given(names, st.lists(steps, max_size=MAX_STEPS - 1))
def test_steps_survive_their_text(first: str, others: list[Step]) -> None:
    path = (first, *others)
    assert parse_path(text_of(path)).steps == path


@given(st.text(alphabet='ab.[]"0-1 \\', max_size=12))
def test_any_text_is_a_path_or_has_a_message(text: str) -> None:
    try:
        path = parse_path(text)
    except BadPathError as error:
        assert str(error).startswith(f"path `{text}`, character ")
    else:
        assert parse_path(text_of(path.steps)).steps == path.steps
        assert path.text == text
        assert path.field == path.steps[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("age", ("age",)),
        ("customer.age", ("customer", "age")),
        ("basket.items[0].price", ("basket", "items", 0, "price")),
        ("basket.items[-1].price", ("basket", "items", -1, "price")),
        ("basket.items[].price", ("basket", "items", Every.ITEM, "price")),
        ('attributes["my.key"]', ("attributes", "my.key")),
        ('["a b"][""].größe-2', ("a b", "", "größe-2")),
        ("matrix[][1]", ("matrix", Every.ITEM, 1)),
    ],
)
def test_forms(text: str, expected: tuple[Step, ...]) -> None:
    assert parse_path(text).steps == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1: expected a name, found its end"),
        ("a.", "character 3: expected a name, found its end"),
        (".a", "character 1: expected a name, found '.a'"),
        ("a..b", "character 3: expected a name, found '.b'"),
        ("[0].a", "character 1: expected a field's name (an event is an object), found '[0].a'"),
        ("a[x]", "character 3: expected an index such as 0 or -1, a key in double quotes, or `]`, found 'x]'"),
        ("a[1", "character 4: expected `]`, found its end"),
        ('a["x', 'character 5: expected `"]`, found its end'),
        ("a[0]b", "character 5: expected `.` or `[`, found 'b'"),
        ("a. b", "character 3: expected a name without spaces around it, found ' b'"),
        ("a\\b", "character 2: expected a name without double quotes, backslashes and control characters"),
        ("a[1234567890]", "character 3: expected an index"),
    ],
)
def test_mistakes_are_reported_with_their_place(text: str, message: str) -> None:
    with pytest.raises(BadPathError) as raised:
        parse_path(text)
    assert message in str(raised.value)


def test_a_path_that_is_too_deep_is_refused_in_short() -> None:
    deepest = ".".join(f"d{number}" for number in range(MAX_STEPS))
    assert len(parse_path(deepest).steps) == MAX_STEPS
    with pytest.raises(BadPathError) as raised:
        parse_path(f"{deepest}[]")
    assert str(raised.value) == (
        "path `d0.d1.d2.d3.d4.d5.d6.d7.d8.d9.d10.d11.d1...`: expected at most 100 steps, found 101: let the producer write the "
        "value nearer to the top of the event"
    )
