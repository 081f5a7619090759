"""How many workers run on this machine: the decision, and the supervisor that keeps to it. `millstream run`."""
