"""The fifth stage: write. It encodes results, produces them, and makes them count together with the input's offsets.

In: `Answered`. Out: records on the prediction and dead-letter topics, and how far each partition is done.
"""
