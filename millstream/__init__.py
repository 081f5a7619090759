"""Millstream, a stream-processing inference service on Kafka. All that it installs is imported as `millstream.…`.

In a checkout the folders `consumers`, `inference`, `pipeline`, `schemas` and `topics` are at the top of the repository, and this
folder has links to them. In a wheel they are in this folder.
"""
