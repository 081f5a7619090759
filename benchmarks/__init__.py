"""Benchmarks: `make bench` compares Millstream with the alternatives that a user has."""
