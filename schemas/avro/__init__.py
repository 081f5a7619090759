"""Avro: records to columns in three ways, one by one where the schema asks for that, and rows to records.

In: values in the schema-registry wire format. Out: `Decoded`, or bytes.
"""
