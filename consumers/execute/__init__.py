"""The fourth stage: execute. It runs micro-batches through the model, and finds the events that the model rejects.

In: `MicroBatch`. Out: `BatchResult`, with the outputs of events, and the reason for each rejected event.
"""
