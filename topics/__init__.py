"""The topics themselves: pipeline file, admin, lag, embedded broker."""
