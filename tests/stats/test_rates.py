"""Wilson's interval against an independent implementation and against published values."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from beacon.stats.rates import wilson


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 15, 29, 100, 1_000])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_it_agrees_with_scipy_over_a_grid(n: int, level: float) -> None:
    for n_hits in sorted({*range(min(n, 30) + 1), n // 2, n - 1, n}):
        ours = wilson(n_hits, n, level=level)
        theirs = binomtest(n_hits, n).proportion_ci(confidence_level=level, method="wilson")
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@dataclass(frozen=True)
class Published:
    n_hits: int
    n: int
    low: float
    high: float


# Newcombe (1998), Statistics in Medicine 17:857-872, table I, method 3: four decimals.
NEWCOMBE = [
    Published(81, 263, 0.2553, 0.3662),
    Published(15, 148, 0.0624, 0.1605),
    Published(0, 20, 0.0000, 0.1611),
    Published(1, 29, 0.0061, 0.1718),
]


@pytest.mark.parametrize("case", NEWCOMBE, ids=lambda case: f"{case.n_hits}_of_{case.n}")
def test_it_agrees_with_the_worked_values_of_newcombe(case: Published) -> None:
    interval = wilson(case.n_hits, case.n)
    assert (round(interval.low, 4), round(interval.high, 4)) == (case.low, case.high)


def test_it_agrees_with_a_calculation_by_hand() -> None:
    # 1 of 2 with z = 1.96: 0.5 -/+ 1.96 * sqrt(0.125 + 3.8416/16) / (1 + 3.8416/2)
    interval = wilson(1, 2)
    assert interval.low == pytest.approx(0.0945, abs=5e-5)
    assert interval.high == pytest.approx(0.9055, abs=5e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 1_000, 10**9])
def test_the_ends_are_exact(n: int) -> None:
    assert wilson(0, n).low == 0.0
    assert wilson(n, n).high == 1.0


def test_nothing_counted_says_nothing() -> None:
    interval = wilson(0, 0)
    assert (interval.low, interval.high) == (0.0, 1.0)


@pytest.mark.parametrize(("n_hits", "n"), [(-1, 5), (6, 5), (1, 0), (0, -1)])
def test_what_is_not_a_rate_is_refused(n_hits: int, n: int) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        wilson(n_hits, n)


counts = st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts)
def test_it_holds_the_rate_and_stays_between_none_and_all(count: tuple[int, int]) -> None:
    n_hits, n = count
    interval = wilson(n_hits, n)
    assert 0 <= interval.low <= n_hits / n <= interval.high <= 1
    assert interval.low < interval.high


@given(counts)
def test_hits_and_misses_mirror_each_other(count: tuple[int, int]) -> None:
    n_hits, n = count
    hits, misses = wilson(n_hits, n), wilson(n - n_hits, n)
    assert (hits.low, hits.high) == pytest.approx((1 - misses.high, 1 - misses.low), abs=1e-12)


@given(counts)
def test_more_of_the_same_narrows_it_and_more_confidence_widens_it(count: tuple[int, int]) -> None:
    n_hits, n = count
    width = wilson(n_hits, n).high - wilson(n_hits, n).low
    tenfold = wilson(10 * n_hits, 10 * n)
    surer = wilson(n_hits, n, level=0.99)
    assert tenfold.high - tenfold.low < width < surer.high - surer.low
