"""The worker, with a folder for each stage of an event's path, and the programs around the workers.

The path: `source` -> `decode` -> `batch` -> `execute` -> `sink`. `worker` connects them. `events` has the classes that they pass
on.
"""
