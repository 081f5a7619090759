"""Makes a faster version of an ONNX model, and compares its answers with those of the original.

In: a model and events. Out: a file `model.onnx`, the differences of the outputs, and how good each version's answers are.
"""
