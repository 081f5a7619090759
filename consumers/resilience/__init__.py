"""Handles failing calls of the stages: retries during an outage, ends a worker that hangs, isolates a record that raises.

In: calls of a stage. Out: their results, or the rejection of the record at fault.
"""
