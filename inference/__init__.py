"""Models and executors.

In: columns of events. Out: the model's outputs, or the reason for each event without outputs.
"""

import os

# Turns off ONNX Runtime's telemetry, which must happen before its import: nobody else should learn what a user's service runs.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# One thread tokenizes: Millstream scales by processes, and threads of each would take the cores from the others.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Packages that AOTInductor compiled check the types and shapes of their inputs only with this. They read it at their first call.
os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
