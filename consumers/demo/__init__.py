"""`millstream demo`: real flights through the whole service."""
