"""The pipeline file: its sections and options. Every mistake in a file is reported with its line.

In: a YAML file. Out: `Pipeline`, typed, with each option's place in the file.
"""
