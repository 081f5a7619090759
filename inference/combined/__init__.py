"""Several models in one executor: routing, a model per tenant, cascades and ensembles.

In: the union of the inputs of all models, one row per event. Out: the outputs of the prediction, and which model made each row.
"""
