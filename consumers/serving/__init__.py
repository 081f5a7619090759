"""Follows the model versions that are wanted, while the worker serves others.

In: `latest`, an alias or the control topic of a rollout, and the model repository. Out: versions that are loaded and warmed up,
handed over to the pool.
"""
