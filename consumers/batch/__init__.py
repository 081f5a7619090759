"""The third stage: batch. It cuts blocks into micro-batches by count, bytes, cost and age; pure.

In: `DecodedBatch` (a block). Out: `MicroBatch`.
"""
