"""The consumer an engineer writes by hand in an hour."""
