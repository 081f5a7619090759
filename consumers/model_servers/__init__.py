"""Model servers on this machine, for the demo and the tests: fetched once into a cache folder, run as child processes on the CPU.

In: the cache folder, and a model repository of the server. Out: the server's URLs.
"""
