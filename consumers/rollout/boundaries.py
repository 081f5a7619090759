"""Half-widths of intervals that hold at all times at once, so that a decision may be made at any look.

The intervals are asymptotic confidence sequences: normal mixtures of Robbins, with the variance estimated from the data.

- H. Robbins, "Statistical Methods Related to the Law of the Iterated Logarithm", Annals of Mathematical Statistics 41, 1970.
- S. R. Howard, A. Ramdas, J. McAuliffe, J. Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of
  Statistics 49(2), 2021: the normal mixtures, two-sided, and one-sided in closed form.
- I. Waudby-Smith, D. Arbour, R. Sinha, E. H. Kennedy, A. Ramdas, "Time-uniform central limit theory and asymptotic confidence
  sequences", Annals of Statistics 52(6), 2024: they hold asymptotically with an estimated variance.
- R. Johari, P. Koomen, L. Pekelis, D. Walsh, "Always Valid Inference: Continuous Monitoring of A/B Tests", Operations Research
  70(3), 2022: the same mixture as a test (mSPRT).

In their terms, the variance of an estimate is `sigma^2 / t`, and `scale` is the standard deviation of the mixture over effects.
An interval is narrowest, compared with one for a single look, where its half-width is about the scale. So the scale is the
difference that is to be found: the margin or the minimum effect. It must be chosen before the data are seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

if TYPE_CHECKING:
    import numpy.typing as npt

    from millstream.schemas.arrays import Floats

    Numbers = float | Floats


def one_sided(variance: npt.ArrayLike, scale: float, level: float) -> Floats:
    """The distance of a one-sided bound from the estimate; the bound fails at any time with a probability of at most `level`.

    Args:
        variance: of the estimate, any shape; infinite where it is not known.
        scale: the difference at which the bound is to be tightest, in the estimate's unit; above 0.
        level: 0 to 0.5.
    """
    known = np.asarray(variance, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = scale**2 / known
        radius = np.sqrt(2 * (known + known / ratio) * np.log1p(np.sqrt(1 + ratio) / (2 * level)))
    return _where_known(known, radius)


def two_sided(variance: npt.ArrayLike, scale: float, level: float) -> Floats:
    """The half-width of an interval; the interval misses at any time with a probability of at most `level`. As `one_sided`."""
    known = np.asarray(variance, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = scale**2 / known
        radius = np.sqrt((known + known / ratio) * (np.log1p(ratio) - 2 * np.log(level)))
    return _where_known(known, radius)


def widened(radius: npt.ArrayLike, variance: npt.ArrayLike, degrees: npt.ArrayLike) -> Floats:
    """The half-width for a variance that was estimated with few degrees of freedom: Student's t in place of the normal.

    A bound so many standard errors away that a normal variable passes it with probability p is moved to where Student's t
    passes it with p. The boundary itself is asymptotic, and would be too narrow at the first looks.
    """
    error = np.sqrt(np.asarray(variance, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = np.asarray(radius, np.float64) / error
        # Beyond 35 deviations, the normal's probability is 0 in floating point.
        tail = ndtr(-np.minimum(deviations, 35.0))
        found = error * np.maximum(deviations, -stdtrit(np.maximum(degrees, 1.0), tail))
    return _where_known(np.asarray(variance, np.float64), found)


def quantile_of_normal(probability: float) -> float:
    """The standard normal's quantile."""
    return float(ndtri(probability))


def _where_known(variance: Floats, radius: Floats) -> Floats:
    """Infinite where the variance is not known. A variance of 0 is not known either: the data don't vary yet."""
    found: Floats = np.where((variance > 0) & np.isfinite(variance), radius, np.inf)
    return found
