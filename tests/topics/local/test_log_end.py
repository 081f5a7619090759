from pathlib import Path

import pytest

from millstream.topics.local.fetch import log_end


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("", ""),
        ("\n\n\tat kafka.Kafka.main(Kafka.scala)\n", ""),  # only a stack frame
        ("one\n\ntwo\n\tat x\nthree\n", " It ends:\n    two\n    three"),
    ],
)
def test_end_of_a_log_is_told_with_its_heading_if_there_is_one(tmp_path: Path, text: str, end: str) -> None:
    log = tmp_path / "broker.log"
    log.write_text(text)
    assert log_end(log, "It ends:", 2) == end
