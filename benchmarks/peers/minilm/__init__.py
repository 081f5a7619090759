"""The sentence-embedding model of the text workload."""
