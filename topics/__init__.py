"""Kafka's topics beside the path of events: admin, lag, dead letters, replay, the embedded broker.

In: a pipeline's client settings. Out: what the topics and groups hold, and records for the command line.
"""
