"""What a file is that was named in place of another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from millstream.schemas.file_kind import FileKind, file_kind

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE = "name: a\nkafka: {bootstrap: b}\ninput: {topic: t}\noutput: {topic: p}\n"
CONFIG = "inputs: [{tensor: x, field: a, dtype: float32}]\noutputs: [{tensor: y}]\n"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("orders.yaml", PIPELINE, FileKind.PIPELINE),
        ("orders.json", '{"name": "a", "kafka": {}}\n', FileKind.PIPELINE),
        ("config.yaml", CONFIG, FileKind.CONFIG),
        ("config.yaml", "executor: openai\noutputs: [{tensor: y}]\n", FileKind.CONFIG),
        ("config.json", '{"inputs": [], "outputs": []}\n', FileKind.CONFIG),
        ("events.jsonl", '{"id": 1}\n{"id": 2}\n', FileKind.EVENTS),
        ("events", '\n{"id": 1, "input": 2}', FileKind.EVENTS),
        ("events.jsonl", '{"id": 1}\n' + "x" * 2**19, FileKind.EVENTS),
        ("pretty.json", '{\n  "id": 1,\n  "name": "a"\n}\n', FileKind.EVENTS),
        ("pretty.json", '[\n  {\n    "id": 1\n  }\n]\n', FileKind.EVENTS),
        ("orders.json", '{\n  "name": "a",\n  "model": {}\n}\n', None),  # a pipeline file with mistakes
        ("orders.json", '{\n  "name": "a",\n  "kafka": {}\n}\n', FileKind.PIPELINE),
        ("numbers.json", "[1, 2]\n", None),
        ("model.ONNX", "", FileKind.MODEL),
        ("model.pt2", "PK", FileKind.MODEL),
        ("orders.yaml", "name: a\ninputs: [a]\noutput: {topic: p}\n", None),  # a pipeline file with mistakes
        ("orders.yaml", '{"name": "a"}\n', None),
        ("orders.yaml", "name: a\nkafka: [\n", None),
        ("events.csv", "id,amount\n1,2.5\n", FileKind.CSV),
        ("events.jsonl", "[" * 100_000, None),
        ("empty", "", None),
        ("text", "\ud800", None),
    ],
)
def test_files_are_recognised_by_what_they_plainly_are(
    tmp_path: Path, name: str, content: str, kind: FileKind | None
) -> None:
    (tmp_path / name).write_text(content, errors="surrogatepass")
    assert file_kind(tmp_path / name) is kind


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder.onnx").mkdir()
    for name in ("pipe", "folder.onnx", "nothing.onnx"):
        assert file_kind(tmp_path / name) is None
