"""The control topic: the state of a pipeline's rollout, which commands and autopilot write, and workers follow.

The topic is compacted and has one partition. A record's key is the pipeline's name, its value has the schema rollout-v1
(`consumers.rollout.record`), and the newest record that counts is the state.
"""
