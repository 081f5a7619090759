"""The model's repository in the rollout demo: versions 1 and 2 at first, and version 3 later."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from millstream.consumers.demo import old_version
from millstream.consumers.demo.old_form import take_inputs_of_version_2
from millstream.consumers.demo.rollout import joined_version

ALIAS = "next"
"""What `rollout.candidate` names: the version that is tried, or the one that answers."""
OUTPUT = "late_probability"
NUMBERS = ("day_of_week", "scheduled_departure", "scheduled_arrival", "distance", "departure_delay")
ROUTE = ("carrier", "origin", "dest")
BATCH_EVENTS = 4096  # of one model call when scores are computed again
SEED = 3

Scores = npt.NDArray[np.float32]
Predict = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Repository:
    """See the module. All versions have the same inputs."""

    def __init__(self, models: Path, flights: pl.DataFrame) -> None:
        """Args:
        models: folder of the model's versions, as in the example; it is changed.
        flights: rows of `departures`, whose delays version 3 mixes up.
        """
        self._models = models
        self._waiting = models / "version-3"  # its name is no number, so it is no version yet
        take_inputs_of_version_2(models)
        (models / "2" / "model.onnx").rename(models / "2" / "delayed.onnx")
        shutil.copy(joined_version.__file__, models / "2" / "model.py")
        shutil.copytree(models / "2", self._waiting)
        delays = flights["departure_delay"].to_numpy()
        np.save(self._waiting / "delays.npy", np.random.default_rng(SEED).permutation(delays))
        self.name(1)

    def name(self, version: int) -> None:
        """Let the alias name this version from now on."""
        written = self._models / "aliases.new"
        written.write_text(f"{ALIAS}: {version}\n", encoding="utf-8")
        written.replace(self._models / "aliases.yaml")

    def add_version_3(self) -> None:
        """Version 3 appears with all of its files. Then the alias names it."""
        self._waiting.rename(self._models / "3")
        self.name(3)

    def scores(self, flights: pl.DataFrame) -> dict[int, Scores]:
        """What each version that has arrived says of these flights, computed without Millstream: version -> [flights]."""
        return {
            version: np.concatenate([np.asarray(predict(batch)[OUTPUT]).ravel() for batch in _batches(flights)])
            for version, predict in self._versions()
        }

    def _versions(self) -> Iterator[tuple[int, Predict]]:
        for version, form in ((1, old_version.Model), (2, joined_version.Model), (3, joined_version.Model)):
            if (folder := self._models / str(version)).is_dir():
                yield version, form(folder, "cpu").predict


def _batches(flights: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for rows in flights.iter_slices(BATCH_EVENTS):
        yield {"numbers": rows.select(NUMBERS).to_numpy().astype(np.float32), "route": rows.select(ROUTE).to_numpy()}
