"""What the stages do when a call fails: wait and try again, end a worker that hangs, isolate a record that raises.

In: calls of a stage. Out: their results, or the reason of the record at fault.
"""
