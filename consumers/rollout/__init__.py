"""The rules of rollouts: which version gets an event, what the results prove, and which step comes next. All of it is pure.

In: routing keys, results of events, the record of a rollout, and the time. Out: a variant per event, intervals that hold at any
time, decisions with their reasons, and the next record.
"""
