"""Flow control that the stages share: how much a worker holds, and how long a micro-batch waits for more events.

In: what was read and written. Out: whether to read on, and when a micro-batch closes.
"""
