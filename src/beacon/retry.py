"""When a call fails, whether and how long to wait before it is sent again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential backoff with full jitter; a server's Retry-After outranks it."""

    tries: int = 5
    """How often a call is sent in all."""
    first_delay: float = 0.5
    longest_delay: float = 30.0
    longest_retry_after: float = 120.0
    """A server that asks for more patience than this is taken at its word: the call has failed."""

    def delay(self, n_tries: int, retry_after: float | None, rng: random.Random) -> float | None:
        """Seconds to wait after the `n_tries`-th failure; None to give up."""
        if n_tries >= self.tries:
            return None
        jitter = rng.uniform(0, min(self.longest_delay, self.first_delay * 2 ** (n_tries - 1)))
        if retry_after is None:
            return jitter
        if retry_after > self.longest_retry_after:
            return None
        return retry_after + min(jitter, 1.0)
