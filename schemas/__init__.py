"""Schemas and codecs: where schemas are found, and records to columns and back. Imports nothing else of ours.

In: bytes and schemas. Out: columns, or a reason for each record that has none.
"""
