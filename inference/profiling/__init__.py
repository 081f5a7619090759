"""Measures a model's calls at several batch sizes, and chooses the settings of a micro-batch from them.

In: executors and events. Out: a `SizeProfile` for each size, and `BatchSettings`.
"""
