"""Where model versions come from: a folder, an object store, a model registry. Versions from elsewhere go through a cache.

In: the pipeline file's `model.repository`. Out: a folder of this machine with a whole version, checked.
"""
