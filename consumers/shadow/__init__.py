"""Shadow models: they answer a sample of the events behind the primary, or in workers of their own.

In: `Answered` of the primary. Out: records on the comparison topics.
"""
