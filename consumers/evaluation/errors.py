"""The errors of evaluating a rollout."""


class EvaluationError(Exception):
    """A step can't be evaluated as the pipeline file and the rollout's record stand; the message says what to do.

    Raised by `StepEvaluator`. Whoever runs it shows the message and ends; nothing was changed.
    """
