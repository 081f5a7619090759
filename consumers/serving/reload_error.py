"""Shows in the metrics why a version can't be loaded."""

from millstream.consumers.observability import metrics as m
from millstream.consumers.serving.errors import NotServed
from millstream.consumers.serving.shared_series import Series
from millstream.pipeline.printable import printable

MAX_ERROR_LENGTH = 300  # characters of the error in the metric


class ReloadError:
    """The newest error of one model or version, for as long as it lasts. One thread at a time calls it."""

    def __init__(self, model: str, metrics: Series) -> None:
        """`model`: its name, for the metric."""
        self._model = model
        self._metrics = metrics
        self._shown: tuple[str, str, str] | None = None  # the labels

    @property
    def is_shown(self) -> bool:
        """Whether the metrics show an error."""
        return self._shown is not None

    def show(self, refused: NotServed) -> None:
        """Show this error, in place of the one before."""
        labels = self._model, refused.reason, printable(str(refused)[:MAX_ERROR_LENGTH])
        if labels != self._shown:
            self.forget()
            self._metrics.set(m.MODEL_RELOAD_ERROR, 1, *labels)
            self._shown = labels

    def forget(self) -> None:
        """Show no error any more."""
        if self._shown is not None:
            self._metrics.forget(m.MODEL_RELOAD_ERROR, *self._shown)
            self._shown = None
