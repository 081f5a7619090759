"""What runs and reads topics: the worker and its stages, the command line, the demo."""
