"""When to try again, and after how long: chance and time are arguments."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.retry import Retry


def rng() -> random.Random:
    return random.Random(1989)


class Extreme(random.Random):
    """Draws the highest or the lowest there is."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self.share = share

    def uniform(self, a: float, b: float) -> float:
        return a + self.share * (b - a)


HIGHEST, LOWEST = Extreme(1.0), Extreme(0.0)


def test_the_longest_wait_doubles_until_it_reaches_its_limit() -> None:
    retry = Retry(tries=10, first_delay=0.5, longest_delay=30.0)
    waits = [retry.delay(n_tries, None, HIGHEST) for n_tries in range(1, 10)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_the_jitter_is_full() -> None:
    assert Retry().delay(3, None, LOWEST) == 0.0
    assert len({Retry().delay(3, None, random.Random(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize("retry_after", [None, 0.0, 5.0])
def test_a_call_is_sent_as_often_as_said_and_no_more(retry_after: float | None) -> None:
    retry = Retry(tries=3)
    waits = [retry.delay(n_tries, retry_after, rng()) for n_tries in (1, 2, 3, 4)]
    assert [wait is None for wait in waits] == [False, False, True, True]


def test_one_try_means_no_second() -> None:
    assert Retry(tries=1).delay(1, None, rng()) is None


def test_a_server_that_asks_for_patience_gets_it() -> None:
    assert Retry().delay(1, 20.0, LOWEST) == 20.0
    # Not all at the same moment: up to a second more, even where backoff alone would wait longer.
    assert Retry().delay(1, 20.0, HIGHEST) == 20.5
    assert Retry(tries=9).delay(8, 20.0, HIGHEST) == 21.0


def test_a_server_may_ask_for_less_than_the_backoff() -> None:
    assert Retry(tries=9).delay(8, 0.0, HIGHEST) == 1.0


def test_a_server_that_asks_for_too_much_is_taken_at_its_word() -> None:
    retry = Retry(longest_retry_after=120.0)
    assert retry.delay(1, 120.0, LOWEST) == 120.0
    assert retry.delay(1, 120.5, LOWEST) is None
    assert retry.delay(1, float("inf"), LOWEST) is None


def test_the_same_chance_gives_the_same_wait() -> None:
    assert Retry().delay(2, None, rng()) == Retry().delay(2, None, rng())


@given(
    st.integers(1, 30),
    st.none() | st.floats(0, 200),
    st.integers(0, 2**32),
)
def test_a_wait_is_never_shorter_than_asked_nor_longer_than_allowed(
    n_tries: int, retry_after: float | None, seed: int
) -> None:
    retry = Retry(tries=20)
    wait = retry.delay(n_tries, retry_after, random.Random(seed))
    if wait is None:
        assert n_tries >= 20 or (retry_after is not None and retry_after > 120)
    elif retry_after is None:
        assert 0 <= wait <= min(30.0, 0.5 * 2 ** (n_tries - 1))
    else:
        assert retry_after <= wait <= retry_after + 1
