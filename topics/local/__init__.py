"""Apache Kafka on this machine, for trying things out and for the tests: Maven fetches it, and it runs as a child process.

In: the folder that keeps what is fetched. Out: a broker's address.
"""
