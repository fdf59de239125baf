"""The real model in the box, and calls to put to models that run in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from beacon.model import Model, open_model
from beacon.models.box import cache_folder, fetch_box
from beacon.records import Call, Reply, Sampling
from beacon.study import ModelEntry

ENVIRON = {"OMP_NUM_THREADS": "1"}
"""One thread each: on a busy machine more of them would wait for each other for minutes."""
ASSISTANT = "You are a helpful assistant."


@pytest.fixture(scope="session")
def box_path() -> Path:
    """The model in the box, in the user's own cache: fetched by the first test that needs it."""
    return fetch_box(cache=cache_folder(os.environ), say=print)


def make_call(prompt: str = "Who are you?", system: str = ASSISTANT, **sampling: Any) -> Call:
    return Call(
        question_id="q",
        framing_id="f",
        model="m",
        spec="s",
        system=system,
        prompt=prompt,
        sampling=Sampling(**sampling),
        repeat=0,
    )


def with_model(entry: ModelEntry, use: Callable[[Model], Awaitable[Any]]) -> Any:
    """What `use` makes of the open model, which is closed afterwards."""

    async def opened() -> Any:
        model = await open_model(entry, ENVIRON, lambda message: None)
        try:
            return await use(model)
        finally:
            await model.close()

    return asyncio.run(opened())


def ask_all(entry: ModelEntry, calls: Sequence[Call], *, at_once: int = 1) -> list[Reply]:
    """The replies, in the order of the calls."""

    async def use(model: Model) -> list[Reply]:
        slots = asyncio.Semaphore(at_once)

        async def ask(call: Call) -> Reply:
            async with slots:
                return await model.ask(call)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(call)) for call in calls]
        return [task.result() for task in tasks]

    return with_model(entry, use)


def ask(entry: ModelEntry, call: Call) -> Reply:
    """One reply; errors come as they are."""
    return with_model(entry, lambda model: model.ask(call))


def refusal_to_open(entry: ModelEntry) -> str:
    """The message of the `UsageError` with which opening fails."""
    from beacon.errors import UsageError

    with pytest.raises(UsageError) as caught:
        asyncio.run(open_model(entry, ENVIRON, lambda message: None))
    return str(caught.value)
