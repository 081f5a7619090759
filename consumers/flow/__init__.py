"""Flow control that the stages share: how many events may be in flight, and how long a micro-batch waits for more.

In: the numbers of records read and written. Out: whether to read more, and when a micro-batch closes.
"""
