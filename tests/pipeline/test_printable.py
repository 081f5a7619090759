import json

import pytest

from millstream.pipeline.printable import printable, printable_json

HOSTILE = "\x1b[2J\x9b31m\x7f\u202e\r\n\u2028\U000e0001\ud800 é"


def test_text_that_is_printed_acts_on_no_terminal() -> None:
    assert printable("late: é") == "late: é"
    assert printable(HOSTILE).isprintable()
    assert "\\x1b[2J" in printable(HOSTILE)


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_that_is_printed_acts_on_no_terminal_and_is_the_same_json(ascii_only: bool, indent: int | None) -> None:
    text = printable_json({"a": [HOSTILE], HOSTILE: 1}, indent=indent, ascii_only=ascii_only)
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == {"a": [HOSTILE], HOSTILE: 1}
    assert ("é" in text) is not ascii_only
