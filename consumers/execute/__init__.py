"""The fourth stage: execute. It runs micro-batches through the model, and finds the events that the model rejects.

In: `MicroBatch`. Out: `Answered`, the outputs of the events that have any and the reasons of the others.
"""
