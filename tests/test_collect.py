"""Collecting: durable, resumable, bounded; stopped and killed for real."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from beacon.collect import GIVE_UP_AFTER, Collector, Lane, owed
from beacon.errors import ModelError, UsageError
from beacon.pipeline import collect_run
from beacon.plan import calls
from beacon.records import Call, Failure, Reply
from beacon.retry import Retry
from beacon.store import Store
from beacon.study import Study
from tests.conftest import small_study
from tests.servers import ANSWER, ScriptedServer

NO_WAIT = Retry(tries=3, first_delay=0.0)


def new_run(folder: Path, study: Study) -> Store:
    return Store.create(folder, study, now=datetime.now(UTC), version="test")


def stored_calls(store: Store) -> dict[str, str]:
    return {stored.call_id: stored.status for stored in store.responses()}


def test_every_call_is_asked_once_and_stored(server: ScriptedServer, tmp_path: Path) -> None:
    study = small_study(server.spec, repeats=3)
    store = new_run(tmp_path / "run", study)
    collected = collect_run(store)
    assert collected.n_stored == study.n_calls == 18
    assert set(server.asked.values()) == {1}
    assert len(stored_calls(store)) == 18
    assert {seed for _, _, seed in server.asked} == {7, 8, 9}


def test_running_again_asks_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    store = new_run(tmp_path / "run", small_study(server.spec))
    collect_run(store)
    asked = server.asked.total()
    assert collect_run(store).n_stored == 0
    assert server.asked.total() == asked


def test_a_passing_failure_is_retried_and_the_tries_are_kept(server, tmp_path) -> None:
    server.fail_first(2, "square")
    store = new_run(tmp_path / "run", small_study(server.spec, repeats=1))
    collect_run(store, retry=NO_WAIT)
    assert set(stored_calls(store).values()) == {"ok"}
    assert sorted(stored.response.n_tries for stored in store.responses())[-1] > 1


def test_resuming_asks_again_only_what_failed_technically(server, tmp_path) -> None:
    server.fail_first(6, "square")
    study = small_study(server.spec, repeats=1)
    store = new_run(tmp_path / "run", study)
    collect_run(store, retry=NO_WAIT)
    before = dict(server.asked)
    failed = [stored for stored in store.responses() if isinstance(stored.response, Failure)]
    assert {stored.question_id for stored in failed} == {"square"}
    assert len(failed) == 2

    collected = collect_run(store, retry=NO_WAIT)
    assert collected.n_stored == 2
    again = {key for key, n in server.asked.items() if n > before[key]}
    assert {question for _, question, _ in again} == {"What happened at the square?"}
    assert set(stored_calls(store).values()) == {"ok"}


@pytest.mark.parametrize("what", ["moderated", "deepseek", "truncated"])
def test_resuming_leaves_moderation_and_truncation_alone(server, tmp_path, what) -> None:
    study = small_study(server.spec, repeats=1)
    study = msgspec.structs.replace(
        study, questions=(msgspec.structs.replace(study.questions[0], text=f"do: {what}"),)
    )
    store = new_run(tmp_path / "run", study)
    collect_run(store, retry=NO_WAIT)
    assert collect_run(store, retry=NO_WAIT).n_stored == 0


def test_a_failed_response_stays_in_the_store_beside_the_one_that_came_later(server, tmp_path):
    server.fail_first(2, "island")
    store = new_run(tmp_path / "run", small_study(server.spec, repeats=1))
    collect_run(store, retry=Retry(tries=1))
    collect_run(store, retry=Retry(tries=1))
    with sqlite3.connect(tmp_path / "run" / "store.sqlite") as raw:
        kinds = raw.execute("SELECT kind, count(*) FROM responses GROUP BY kind").fetchall()
    assert dict(kinds) == {"failure": 2, "reply": 6}


def test_no_more_calls_are_under_way_than_the_limit(server: ScriptedServer, tmp_path) -> None:
    server.delay = 0.02
    study = small_study(server.spec, repeats=8)
    entry = msgspec.structs.replace(study.models[0], limit=3)
    store = new_run(tmp_path / "run", study.changed(models=(entry,)))
    collect_run(store)
    assert server.most_in_flight == 3


class Patient:
    """Remembers how long it was told to wait, and waits no time at all."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


class Flaky:
    """A model that fails as told, then answers."""

    limit = 1

    def __init__(self, *errors: ModelError) -> None:
        self.errors = list(errors)
        self.n_asked = 0

    async def ask(self, call: Call) -> Reply:
        self.n_asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return Reply(text=ANSWER, finish_reason="stop")

    async def close(self) -> None:
        pass


def collect_with(model: Flaky, store: Store, sleep: Patient, retry: Retry) -> None:
    study = store.study()
    lane = Lane(name="m", model=model, calls=owed(calls(study, study.models[0]), store), limit=1)
    collector = Collector(store=store, retry=retry, sleep=sleep, rng=random.Random(1))
    asyncio.run(collector.collect([lane]))


def test_backoff_grows_and_is_jittered(tmp_path: Path) -> None:
    errors = [ModelError("http", "busy", http_status=503) for _ in range(4)]
    sleep = Patient()
    store = new_run(tmp_path / "run", small_study("smollm2", repeats=1))
    collect_with(Flaky(*errors), store, sleep, Retry(tries=5, first_delay=1.0))
    bounds = [1.0, 2.0, 4.0, 8.0]
    assert len(sleep.waits) == 4
    assert all(0 <= wait <= bound for wait, bound in zip(sleep.waits, bounds, strict=True))
    assert len(set(sleep.waits)) == 4


def test_retry_after_is_honoured_by_every_call_to_that_model(tmp_path: Path) -> None:
    error = ModelError("http", "slow down", http_status=429, retry_after=2.0)
    sleep = Patient()
    store = new_run(tmp_path / "run", small_study("smollm2", repeats=1))
    collect_with(Flaky(error), store, sleep, Retry(tries=2, first_delay=0.0))
    assert sleep.waits[0] >= 2.0
    assert len(sleep.waits) > 1, "the lane itself waits too, so that other workers do"


def test_a_server_that_asks_for_an_hour_is_a_failure_at_once(tmp_path: Path) -> None:
    error = ModelError("http", "come back later", http_status=429, retry_after=3600.0)
    sleep = Patient()
    store = new_run(tmp_path / "run", small_study("smollm2", repeats=1))
    collect_with(Flaky(error), store, sleep, Retry(tries=5, first_delay=0.0))
    assert sleep.waits == []
    assert sorted(stored_calls(store).values())[-1] == "rate_limited"


def test_stopping_does_not_wait_for_a_retry_and_the_call_stays_owed(tmp_path: Path) -> None:
    store = new_run(tmp_path / "run", small_study("smollm2", repeats=1))
    study = store.study()
    stop = asyncio.Event()

    async def forever(seconds: float) -> None:
        stop.set()
        await asyncio.Event().wait()

    model = Flaky(ModelError("http", "busy", http_status=503, retry_after=60.0))
    lane = Lane(name="m", model=model, calls=owed(calls(study, study.models[0]), store), limit=1)
    collector = Collector(store=store, sleep=forever, stop=stop)

    async def within_seconds() -> None:
        async with asyncio.timeout(10):
            await collector.collect([lane])

    asyncio.run(within_seconds())
    assert model.n_asked == 1
    assert store.n_settled() == 0


def test_what_has_come_in_is_stored_when_a_bug_ends_the_run(tmp_path: Path) -> None:
    class Breaks(Flaky):
        async def ask(self, call: Call) -> Reply:
            if self.n_asked == 3:
                raise ZeroDivisionError("a bug")
            return await super().ask(call)

    store = new_run(tmp_path / "run", small_study("smollm2", repeats=1))
    with pytest.raises(ExceptionGroup):
        collect_with(Breaks(), store, Patient(), NO_WAIT)
    assert store.n_settled() == 3


def test_a_bad_request_is_not_retried(tmp_path: Path) -> None:
    model = Flaky(ModelError("http", "no", http_status=400))
    store = new_run(tmp_path / "run", small_study("smollm2", repeats=1))
    collect_with(model, store, Patient(), NO_WAIT)
    assert model.n_asked == 6


def test_a_model_that_cannot_be_reached_is_given_up_and_its_calls_stay_owed(tmp_path) -> None:
    study = small_study("http://127.0.0.1:9/v1#m", repeats=20)
    store = new_run(tmp_path / "run", study)
    collected = collect_run(store, retry=Retry(tries=1))
    assert "refused" in collected.gave_up["http://127.0.0.1:9/v1#m"]
    assert GIVE_UP_AFTER <= collected.n_stored < study.n_calls
    assert store.n_settled() == 0


def test_one_model_down_does_not_stop_the_others(server: ScriptedServer, tmp_path) -> None:
    study = small_study("http://127.0.0.1:9/v1#m", server.spec, repeats=4)
    store = new_run(tmp_path / "run", study)
    collect_run(store, retry=Retry(tries=1))
    assert store.status_counts()[server.spec] == {"ok": 24}


def test_a_bug_in_a_model_is_not_swallowed(tmp_path: Path) -> None:
    class Broken(Flaky):
        async def ask(self, call: Call) -> Reply:
            raise ZeroDivisionError("a bug")

    store = new_run(tmp_path / "run", small_study("smollm2", repeats=1))
    with pytest.raises(ExceptionGroup) as caught:
        collect_with(Broken(), store, Patient(), NO_WAIT)
    assert caught.group_contains(ZeroDivisionError)


def test_calls_are_drawn_as_they_are_needed(tmp_path: Path) -> None:
    """Flat memory for a million calls: nothing reads ahead by more than a chunk."""
    study = small_study("smollm2", repeats=1_000_000)
    drawn = 0

    def counting() -> Iterator[Call]:
        nonlocal drawn
        for call in calls(study, study.models[0]):
            drawn += 1
            yield call

    store = new_run(tmp_path / "run", study)
    following = owed(counting(), store)
    for _ in range(10):
        next(following)
    assert drawn <= 500


def test_two_processes_cannot_collect_into_one_run(tmp_path: Path) -> None:
    store = new_run(tmp_path / "run", small_study("smollm2"))
    other = Store.open(tmp_path / "run")
    with store.lock(), pytest.raises(UsageError, match="Another process is collecting"):
        collect_run(other)
    with other.lock():
        pass


# -- stopped and killed, in processes of their own

SHOW_DONE = """
import sys
from pathlib import Path
from beacon.pipeline import collect_run
from beacon.store import Store
from beacon.watch import Watch

class Shout(Watch):
    def stored(self, labels):
        print(len(labels), flush=True)

collect_run(Store.open(Path(sys.argv[1])), watch=Shout())
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.parametrize("n_groups", [1, 3])
def test_killed_it_loses_nothing_shown_as_done_and_asks_none_of_it_twice(
    server: ScriptedServer, tmp_path: Path, n_groups: int
) -> None:
    server.delay = 0.05
    study = small_study(server.spec, repeats=60)
    store = new_run(tmp_path / "run", study)
    process = start("-c", SHOW_DONE, str(tmp_path / "run"))
    assert process.stdout is not None
    n_shown = sum(int(process.stdout.readline()) for _ in range(n_groups))
    process.send_signal(signal.SIGKILL)
    process.communicate()

    survived = stored_calls(store)
    assert n_shown > 0
    assert len(survived) >= n_shown
    assert len(survived) < study.n_calls, "it was killed in the middle"

    time.sleep(0.2)
    asked_before = dict(server.asked)
    server.delay = 0.0
    collect_run(store)
    assert len(stored_calls(store)) == study.n_calls
    n_twice = sum(1 for key in server.asked if server.asked[key] > 1)
    n_in_flight_when_killed = sum(asked_before.values()) - len(survived)
    assert n_twice <= n_in_flight_when_killed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_what_is_in_flight_and_says_how_to_go_on(
    server: ScriptedServer, tmp_path: Path, number: signal.Signals
) -> None:
    server.delay = 0.3
    study = small_study(server.spec, repeats=60)
    store = new_run(tmp_path / "run", study)
    process = start("-m", "beacon", "collect", str(tmp_path / "run"))
    deadline = time.monotonic() + 20
    while server.asked.total() < 20 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Stopping: waiting for the calls in flight." in said
    assert f"To go on: beacon collect {tmp_path / 'run'}" in said
    n_stored = len(stored_calls(store))
    assert f"{n_stored} of {study.n_calls} calls are answered" in said
    assert n_stored == server.asked.total(), "everything that was asked was stored"


def test_a_second_ctrl_c_ends_at_once_and_keeps_what_has_come(server, tmp_path: Path) -> None:
    server.delay = 0.3
    study = small_study(server.spec, repeats=60)
    store = new_run(tmp_path / "run", study)
    process = start("-m", "beacon", "collect", str(tmp_path / "run"))
    deadline = time.monotonic() + 20
    while server.asked.total() < 20 and time.monotonic() < deadline:
        time.sleep(0.02)
    server.delay = 30.0
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "To go on" in said
    assert len(stored_calls(store)) >= 16


def test_ctrl_c_before_a_model_is_open_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        spec = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        process = start(
            "-m", "beacon", "run", "standard", "--model", spec, "--into", str(tmp_path / "r")
        )
        silent.settimeout(20)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said == "Nothing was asked.\n"
    assert not list(tmp_path.iterdir())
