"""The first stage: fetch. It reads the input topics as a member of the consumer group.

In: Kafka's records. Out: `FetchedBatch`, records as columns with the assignment under which they were read.
"""
