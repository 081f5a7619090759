"""A real schema registry for the tests, and a line to it that they can cut."""
