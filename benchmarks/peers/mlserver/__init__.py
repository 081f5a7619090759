"""MLServer's Kafka server."""
