"""The `millstream` command: one file per group of commands; each parses, calls and prints."""
