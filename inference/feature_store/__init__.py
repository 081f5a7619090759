"""Looks features up by key in an online store (Redis, Feast), for a table of decoded events.

In: the columns of events, with the fields of the key. Out: the same events with one more column for each field of the store.
"""
