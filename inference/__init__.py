"""Models and what runs them: repository, signature, executors."""
