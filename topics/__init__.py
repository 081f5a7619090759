"""Everything about topics besides the path of events: administration, lag, dead letters, replay, the embedded broker.

In: a pipeline's client settings. Out: what the topics and groups hold, and records for the command line.
"""
