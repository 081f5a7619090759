"""The worker: one process that wires the stages together, polls, commits, pauses and drains.

In: the pipeline file. Out: a process that runs until it is told to stop.
"""
