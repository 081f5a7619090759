"""The mapping of the tiny models that double their input, whatever runs them."""

DOUBLING = "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n"
