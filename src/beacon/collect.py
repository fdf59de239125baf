"""2  Calls become responses: a fixed set of workers for each model, written down in groups.

A response counts as done only once it is stored. Calls are drawn lazily and stored ids are looked
up in chunks, so that memory stays flat however many calls there are. Stopping lets what is in
flight finish; a process that is killed loses at most what it had not yet shown as done.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import msgspec

from beacon.errors import ModelError
from beacon.model import Model
from beacon.records import Call, Failure, Reply, Response, Stored
from beacon.retry import Retry
from beacon.rows import Landed
from beacon.status import is_retryable, status_of
from beacon.store import Store
from beacon.store_reader import CHUNK

GROUP_SECONDS: Final = 0.25
"""How long a response may wait for others before the group is stored."""
MOST_WAITING: Final = 4_000
"""Responses that may wait to be stored before workers pause."""
GIVE_UP_AFTER: Final = 8
"""A model none of whose first calls got through is not asked further."""
_HOPELESS_HTTP: Final = (401, 403, 404)


@dataclass(slots=True, kw_only=True)
class Lane:
    """One model, the calls it is owed, and how many may be under way."""

    name: str
    model: Model
    calls: Iterator[tuple[str, Call]]
    """With their ids."""
    limit: int
    n_hopeless: int = 0
    """Calls that failed in a way that no later call will escape, while nothing got through."""
    gave_up: str | None = None
    """Why this model was asked no further."""
    resume_at: float = 0.0
    """No call is sent before this moment: a server asked for patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """How collecting ended."""

    n_stored: int
    was_stopped: bool
    gave_up: dict[str, str]
    """Models that were asked no further, and why."""


@dataclass(slots=True, kw_only=True)
class Collector:
    """The outside world, as arguments: how to wait, to draw, to tell the time and whom to tell."""

    store: Store
    on_stored: Callable[[Sequence[Stored]], None] = lambda group: None
    """Called with each group once it is stored, in the thread that stored it."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    retry: Retry = field(default_factory=Retry)
    rng: random.Random = field(default_factory=random.Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _landed: list[Landed] = field(default_factory=list)
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _n_stored: int = 0
    _writing: threading.Lock = field(default_factory=threading.Lock)

    async def collect(self, lanes: Sequence[Lane]) -> Collected:
        """Ask every lane's calls and store what comes back."""
        self._room.set()
        done = asyncio.Event()
        async with asyncio.TaskGroup() as writing:
            writing.create_task(self._write_until(done))
            try:
                async with asyncio.TaskGroup() as asking:
                    for lane in lanes:
                        for _ in range(lane.limit):
                            asking.create_task(self._work(lane))
            except BaseException:
                self._keep_the_rest()
                raise
            finally:
                done.set()
        return Collected(
            n_stored=self._n_stored,
            was_stopped=self.stop.is_set(),
            gave_up={lane.name: lane.gave_up for lane in lanes if lane.gave_up},
        )

    async def _work(self, lane: Lane) -> None:
        """One worker: take the next call, ask, hand over, until there are none."""
        while not self.stop.is_set() and lane.gave_up is None:
            following = next(lane.calls, None)
            if following is None:
                return
            call_id, call = following
            asked_at = self.now()
            response = await self._ask(lane, call)
            if response is None:
                return
            self._landed.append(
                Landed(
                    call=call,
                    call_id=call_id,
                    response=response,
                    status=status_of(response),
                    asked_at=asked_at,
                )
            )
            _watch_for_hopelessness(lane, response)
            if len(self._landed) >= MOST_WAITING:
                self._room.clear()
                await self._room.wait()

    async def _ask(self, lane: Lane, call: Call) -> Response | None:
        """The response to a call after as many tries as it takes; None if stopped in between."""
        n_tries = 0
        while True:
            await self._wait_for_lane(lane)
            n_tries += 1
            started = time.perf_counter()
            try:
                reply = await lane.model.ask(call)
            except ModelError as error:
                failure = _as_failure(error, time.perf_counter() - started, n_tries)
                delay = (
                    self.retry.delay(n_tries, error.retry_after, self.rng)
                    if is_retryable(failure)
                    else None
                )
                if delay is None:
                    return failure
                if error.retry_after is not None:
                    lane.resume_at = max(lane.resume_at, time.monotonic() + error.retry_after)
                await self._pause(delay)
                if self.stop.is_set():
                    return None
            else:
                return reply if n_tries == 1 else _with_tries(reply, n_tries)

    async def _wait_for_lane(self, lane: Lane) -> None:
        while (wait := lane.resume_at - time.monotonic()) > 0 and not self.stop.is_set():
            await self._pause(min(wait, 1.0))

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the user asks to stop."""
        waits = {asyncio.ensure_future(self.sleep(seconds)), asyncio.create_task(self.stop.wait())}
        _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()

    async def _write_until(self, done: asyncio.Event) -> None:
        """Store what has landed, a group at a time, until all work is done and stored."""
        while not done.is_set() or self._landed:
            if not done.is_set():
                await _wait(done, GROUP_SECONDS)
            group, self._landed = self._landed, []
            self._room.set()
            if group:
                await asyncio.to_thread(self._keep, group)

    def _keep(self, group: list[Landed]) -> None:
        with self._writing:
            stored = self.store.append_responses(group)
            self._n_stored += len(stored)
            self.on_stored(stored)

    def _keep_the_rest(self) -> None:
        """Whatever ends the asking, what has come in is stored."""
        group, self._landed = self._landed, []
        if group:
            self._keep(group)


def owed(calls: Iterator[Call], store: Store) -> Iterator[tuple[str, Call]]:
    """Those of `calls` that have no response, or only one that failed technically; with ids."""
    while chunk := list(islice(calls, CHUNK)):
        ids = [call.id for call in chunk]
        settled = store.settled(ids)
        for call, call_id in zip(chunk, ids, strict=True):
            if call_id not in settled:
                yield call_id, call


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _watch_for_hopelessness(lane: Lane, response: Response) -> None:
    """Stop asking a model that can't be reached or won't let us in; its calls stay owed."""
    if not isinstance(response, Failure):
        lane.n_hopeless = -1
        return
    is_hopeless = response.reason in ("connection", "connect_timeout") or (
        response.http_status in _HOPELESS_HTTP and status_of(response).layer != "provider"
    )
    if is_hopeless and lane.n_hopeless >= 0:
        lane.n_hopeless += 1
        if lane.n_hopeless >= GIVE_UP_AFTER:
            lane.gave_up = status_of(response).detail


def _as_failure(error: ModelError, latency: float, n_tries: int) -> Failure:
    return Failure(
        reason=error.reason,
        message=error.message,
        http_status=error.http_status,
        code=error.code,
        latency=latency,
        n_tries=n_tries,
    )


def _with_tries(reply: Reply, n_tries: int) -> Reply:
    return msgspec.structs.replace(reply, n_tries=n_tries)
