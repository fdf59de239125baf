"""Rates with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The range that a rate lies in, at the stated confidence."""

    low: float
    high: float


def wilson(n_hits: int, n: int, *, level: float = 0.95) -> Interval:
    """Wilson's score interval for `n_hits` of `n`; with n = 0 it is everything.

    It stays inside 0 to 1 and keeps its coverage at small n and extreme rates, where the textbook
    interval collapses to a point.
    """
    if not 0 <= n_hits <= n:
        raise ValueError(f"{n_hits} of {n} is not a rate")
    if n == 0:
        return Interval(low=0.0, high=1.0)
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate = n_hits / n
    centre = rate + z * z / (2 * n)
    spread = z * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # The exact ends, where rounding would leave 1e-17.
    low = 0.0 if n_hits == 0 else (centre - spread) / scale
    high = 1.0 if n_hits == n else (centre + spread) / scale
    return Interval(low=low, high=high)
