"""`millstream run`: decides how many workers run on this machine, and supervises them."""
