"""Templates of prompts: event fields are data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.errors import ModelConfigError, ModelRejected
from millstream.inference.executors.openai.template import Template


def rendered(template: str, most: int = 1000, /, **values: object) -> str:
    return Template(template, values.keys(), "config.yaml:3: request.prompt").render(values, most)


@given(st.text())
def test_a_fields_text_is_never_a_part_of_the_template(value: str) -> None:
    assert rendered("<{{ text }}>", 10_000, text=value) == f"<{value}>"


@pytest.mark.parametrize("value", ["{{ 7 * 7 }}", "{% for x in range(9) %}x{% endfor %}", "{# no #}", "<b>&amp;</b>"])
def test_what_looks_like_a_template_in_a_field_stays_text(value: str) -> None:
    assert rendered("{{ text }}", text=value) == value


def test_templates_have_conditions_loops_and_filters() -> None:
    text = "{% if urgent %}Now: {% endif %}{{ lines | join('; ') }} {{ count + 1 }}"
    assert rendered(text, urgent=True, lines=["a", "b"], count=1) == "Now: a; b 2"


def test_a_prompt_that_is_too_long_is_rejected() -> None:
    with pytest.raises(ModelRejected, match=r"at most 10 characters.*request\.max_prompt_chars"):
        rendered("{{ text }}", 10, text="x" * 11)
    assert rendered("{{ text }}", 10, text="x" * 10) == "x" * 10


def test_a_loop_stops_at_the_limit() -> None:
    with pytest.raises(ModelRejected, match="found a longer one"):
        rendered("{% for a in range(99999) %}{% for b in range(99999) %}{{ text }}{% endfor %}{% endfor %}", text="x")


def test_a_template_that_fails_for_an_event_rejects_it() -> None:
    with pytest.raises(ModelRejected, match="the prompt can't be made of this event: division by zero"):
        rendered("{{ 1 / count }}", count=0)
    with pytest.raises(ModelRejected, match="the prompt can't be made of this event: list object has no element 3"):
        rendered("{{ lines[3] }}", lines=["a"])
    with pytest.raises(ModelRejected, match="the prompt can't be made of this event: maximum recursion depth"):
        rendered("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}{{ lines }}", lines=["a"])


@pytest.mark.parametrize("text", ["{{ text", "{% if %}", "{{ text | no_such_filter }}"])
def test_a_wrong_template_is_reported_with_its_place(text: str) -> None:
    with pytest.raises(
        ModelConfigError, match=r"^config.yaml:3: request.prompt: expected a Jinja template: .*Correct it"
    ):
        rendered(text, text="x")


def test_a_name_that_is_no_tensor_is_reported() -> None:
    with pytest.raises(ModelConfigError, match=r"found tekst\. Did you mean `text`\?"):
        rendered("{{ tekst }}", text="x")


@pytest.mark.parametrize(
    "text",
    [
        "{{ text.__class__.__mro__ }}",
        "{{ text.__init__.__globals__ }}",
        "{{ ''.__class__ }}",
        "{{ text | attr('__class__') }}",
        "{{ lines.append('x') }}",
        "{{ '%s' | format(text.__class__) }}",
        "{{ '{0.__class__}'.format(text) }}",
    ],
)
def test_a_template_reaches_nothing_but_its_values(text: str) -> None:
    try:
        found = rendered(text, text="x", lines=["a"])
    except (ModelRejected, ModelConfigError):
        return
    assert "class" not in found
    assert "<" not in found


@pytest.mark.parametrize("text", ["{% include 'x' %}", "{% import 'x' as y %}", "{{ cycler(1) }}", "{{ lipsum() }}"])
def test_a_template_reads_no_files_and_has_no_functions_but_range(text: str) -> None:
    with pytest.raises((ModelConfigError, ModelRejected)):
        rendered(text, text="x")
