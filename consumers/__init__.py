"""What reads topics and writes to them: the worker's stages in the order of an event's path, and what runs beside the workers.

The path: `source` -> `decode` -> `batch` -> `execute` -> `sink`. `worker` wires them together. What travels between them is in
`events`.
"""
