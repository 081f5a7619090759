"""Numbers the models that answered events, for `ANSWERED_BY`."""

import threading

from millstream.inference.model_id import ModelId


class ModelNumbers:
    """All copies of an executor share it, so that a number means the same model in each. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[ModelId, int] = {}
        self.models: tuple[ModelId, ...] = ()  # by their numbers; it only grows

    def number(self, model: ModelId) -> int:
        """The model's number."""
        found = self._numbers.get(model)
        if found is None:
            with self._lock:
                if model not in self._numbers:
                    self.models = (*self.models, model)  # before another thread can use the number
                    self._numbers[model] = len(self.models) - 1
                found = self._numbers[model]
        return found
