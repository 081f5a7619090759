"""Evaluates the variants of a rollout's current step: errors, latency, drift, and quality by late labels.

In: predictions, dead letters, comparisons and labels since the step began, and the rollout's record. Out: the evaluation that
strategies decide on, and figures for people. All of it follows from the topics: whoever reads them again gets the same results.
"""
