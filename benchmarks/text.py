"""The text workload: sentences about real flights as token ids, for a sentence-embedding model of 22 million parameters.

The events contain the tokens, so that the peers do the same work in every language.
"""

from __future__ import annotations

import json
import subprocess
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.environments import CACHE, PEERS, ROOT, python_of
from benchmarks.errors import LeftOutError
from benchmarks.load import FIRST_EVENT_TIME, TIME_TYPE, Load, keys_of, zigzag_varint
from millstream.consumers.demo.flights import departures

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

SCHEMA_ID = 4
SCHEMA_FILE = f"{SCHEMA_ID}-text-event.avsc"
LENGTH = 32  # tokens, as make.py
SENTENCES = 5000
MODEL = "minilm"
SCHEMA = {
    "type": "record",
    "name": "TextEvent",
    "namespace": "millstream.benchmarks",
    "doc": f"A text as {LENGTH} tokens.",
    "fields": [
        {"name": "id", "type": "string", "doc": "16 characters."},
        {"name": "event_time", "type": TIME_TYPE, "doc": "When it happened."},
        {"name": "input_ids", "type": {"type": "array", "items": "int"}, "doc": "Tokens, padded with 0."},
        {"name": "attention_mask", "type": {"type": "array", "items": "int"}, "doc": "1 for a token, 0 for padding."},
    ],
}
CONFIG = f"""description: The sentence embedding all-MiniLM-L6-v2.
inputs:
  - {{tensor: input_ids, field: input_ids, dtype: int64, shape: [{LENGTH}]}}
  - {{tensor: attention_mask, field: attention_mask, dtype: int64, shape: [{LENGTH}]}}
outputs:
  - {{tensor: embedding, name: embedding}}
"""


def text_folder() -> Path:
    """Create `schemas/` and `models/minilm/1/` once. Raises LeftOutError if the model's package can't be installed."""
    folder = CACHE / "text"
    model = folder / "models" / MODEL / "1"
    model.mkdir(parents=True, exist_ok=True)
    (folder / "schemas").mkdir(exist_ok=True)
    (folder / "schemas" / SCHEMA_FILE).write_text(json.dumps(SCHEMA, indent=2))
    (model / "config.yaml").write_text(CONFIG)
    if not (model / "tokens.npy").exists():
        python = python_of("minilm")
        (folder / "sentences.txt").write_text("\n".join(_sentences(SENTENCES)))
        command = [str(python), str(PEERS / "minilm" / "make.py"), str(folder / "sentences.txt"), str(model)]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if made.returncode:
            raise LeftOutError(f"the sentence-embedding model could not be made: {made.stderr[-500:]}")
    return folder


def text_events(count: int, seed: int) -> Load:
    """Sentences in a seeded order, in rounds."""
    tokens = _tokens()
    order = np.random.default_rng(seed).permutation(len(tokens))
    head = SCHEMA_ID.to_bytes(5, "big")
    count_of_items = zigzag_varint(LENGTH)
    arrays = [
        b"".join(count_of_items + b"".join(zigzag_varint(item) for item in row) + b"\0" for row in sentence)
        for sentence in tokens.tolist()
    ]
    values = []
    for number in range(count):
        identity = f"text-{number:011d}".encode()
        time = zigzag_varint(FIRST_EVENT_TIME + number)
        values.append(head + zigzag_varint(len(identity)) + identity + time + arrays[order[number % len(order)]])
    return Load(keys_of(count), values)


@lru_cache(1)
def _tokens() -> npt.NDArray[np.int64]:
    tokens: npt.NDArray[np.int64] = np.load(text_folder() / "models" / MODEL / "1" / "tokens.npy")
    return tokens


def _sentences(count: int) -> list[str]:
    return [
        f"{flight['carrier']} flight {flight['flight']} from {flight['origin']} to {flight['dest']}, due at "
        f"{flight['scheduled_departure'] // 60}:{flight['scheduled_departure'] % 60:02d}, left "
        f"{abs(flight['departure_delay']):.0f} minutes {'late' if flight['departure_delay'] > 0 else 'early'}."
        for flight in departures(range(9, 13))[:count].iter_rows(named=True)
    ]
