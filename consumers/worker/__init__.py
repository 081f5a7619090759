"""The worker: a process that connects the stages, polls, commits, pauses and drains.

In: the pipeline file. Out: a process that runs until it is asked to stop.
"""
