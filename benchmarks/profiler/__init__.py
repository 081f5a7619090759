"""Where a Millstream worker spends its CPU time."""
