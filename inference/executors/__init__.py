"""Executors, which run micro-batches: one file per runtime."""
