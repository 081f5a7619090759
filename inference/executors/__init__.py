"""Executors: what runs a micro-batch, one file per runtime."""
