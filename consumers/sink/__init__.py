"""The fifth stage: write. It encodes and produces results, and makes them final together with the input's offsets.

In: `BatchResult`. Out: records on the prediction and dead-letter topics, and for each partition the offset to commit.
"""
