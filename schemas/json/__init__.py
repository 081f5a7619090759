"""JSON events to columns, held against an Avro schema.

In: JSON objects. Out: `Decoded`.
"""
