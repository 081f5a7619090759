"""How well the stages between Kafka and Kafka keep a GPU busy: `make bench-gpu`."""
