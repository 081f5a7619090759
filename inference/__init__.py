"""Models and what runs them: repository, signature, executors.

In: columns of events. Out: the outputs of a model, or a reason for each event that has none.
"""

import os

# ONNX Runtime reports to its maker unless told not to before it is imported; what a user's service runs is nobody's business.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
