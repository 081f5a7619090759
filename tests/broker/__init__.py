"""A real Kafka broker for the tests, and what tests need to talk to it."""
