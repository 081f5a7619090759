"""The errors of evaluating a rollout."""

from millstream.consumers.errors import WorkerError


class EvaluationError(WorkerError):
    """A step can't be evaluated as the pipeline file and the rollout's record stand; the message says what to do.

    Raised by `StepEvaluator`. Autopilot logs the message, leaves the rollout as it is, and tries again at the next look.
    """
