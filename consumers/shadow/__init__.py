"""Shadow models: they run on a sample of the events after the primary, or in workers of their own.

In: `BatchResult` of the primary. Out: records on the comparison topic.
"""
