"""Replay: runs a model version over past events, and compares it with what was predicted then and with the labels.

In: ranges of the input topics, the predictions and the labels. Out: files on this machine, by option a topic of predictions, and
the comparison.
"""
