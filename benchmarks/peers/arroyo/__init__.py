"""sentry-arroyo."""
