"""Follows the model version that the pipeline file wants, while the worker serves another one.

In: `latest` or an alias, and the model repository. Out: a version that is loaded and warmed up, handed over to the pool.
"""
