"""The models of a pipeline file, from wherever its repository is.

In: a pipeline file. Out: loaded descriptions of its model versions, each in a folder of this machine.
"""
