"""The arguments of each command, by its module's name. These modules import nothing slow, so that `--help` is quick.

What a value needs of other packages, such as the list of reasons, its converter imports when a value is given.
"""
