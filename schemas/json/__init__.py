"""Decodes JSON events into columns, and checks them against an Avro schema.

In: JSON objects. Out: `Decoded`.
"""
