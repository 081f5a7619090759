"""Everything about topics besides the path of events: administration, lag, dead letters, replay, brokers to try things out.

In: a pipeline's client settings. Out: what the topics and groups hold, and records for the command line.
"""
