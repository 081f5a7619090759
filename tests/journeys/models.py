"""Models in plain Python that several journeys use."""


def doubling(seconds: float) -> str:
    """The model.py of a model that doubles the first element of `numbers`, and takes so long for each event."""
    return f"""\
import time

class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        time.sleep({seconds} * len(inputs["numbers"]))
        return {{"score": inputs["numbers"][:, 0] * 2}}
"""
