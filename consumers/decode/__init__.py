"""The second stage: decode. It turns records into columns and tensors.

In: `Polled`. Out: `Block`, whose records are events, refused with a reason, or tombstones.
"""
