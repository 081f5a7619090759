"""The pipeline file: its sections and options, and every mistake in one told with its line.

In: a YAML file. Out: `Pipeline`, typed, with each option's place in the file.
"""
