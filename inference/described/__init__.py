"""Reads descriptions of other systems in place of a config.yaml: Triton's config.pbtxt, and MLflow's MLmodel.

In: the folder of a version. Out: what a config.yaml would say, and limits that only these descriptions have.
"""
