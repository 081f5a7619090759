"""Schemas and codecs: where schemas are found, and records to columns and back. Imports nothing else of ours.

In: bytes and schemas. Out: columns, or a reason for each record that has none.
"""

import os

# Read when polars is first imported. Workers scale by processes: for micro-batches a pool of threads costs twice what it saves.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
