"""Record shapes and codecs. Imports nothing else of ours."""

import os

# Read when polars is first imported. Workers scale by processes: for micro-batches a pool of threads costs twice what it saves.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
