"""`millstream demo`: sends real flights through the whole service."""
