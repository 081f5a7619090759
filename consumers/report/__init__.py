"""Reports: one page of HTML with figures and plots, to attach to a change request.

In: sums of events (`inference.evaluation.Summary`), and results of the comparison job and of rollouts. Out: HTML without scripts,
which loads nothing.
"""
