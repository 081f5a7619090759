"""Writes a first pipeline for a model: looks at the model's file and at real events, and guesses the mapping between them.

In: a model's file and some events. Out: the text of pipeline.yaml and config.yaml, in which each guess is marked.
"""
