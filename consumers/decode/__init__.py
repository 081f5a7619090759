"""The second stage: decode. It turns records into columns and tensors.

In: `FetchedBatch`. Out: `DecodedBatch` (a block). Each of its records is an event, rejected with a reason, or a tombstone.
"""
