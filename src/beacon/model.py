"""A model is something that answers a call; `models/` holds the kinds there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Protocol

from beacon.records import Call, Reply
from beacon.spec import Kind, parse_spec
from beacon.study import ModelEntry


class Model(Protocol):
    """What `collect` asks."""

    limit: int
    """How many calls it takes at once, where the study does not say."""

    async def ask(self, call: Call) -> Reply:
        """The reply to `call`; raises a `ModelError` when none comes."""
        ...

    async def close(self) -> None:
        """Let go of connections, memory and threads."""
        ...


OPENERS: Final[dict[Kind, str]] = {
    "http": "beacon.models.openai:open_openai",
    "gguf": "beacon.models.gguf:open_gguf",
    "box": "beacon.models.box:open_box",
    "hf": "beacon.models.huggingface:open_huggingface",
    "scripted": "beacon.models.scripted:open_scripted",
}
"""Where each kind of model is opened; imported only when a study asks for it."""


async def open_model(
    entry: ModelEntry, environ: Mapping[str, str], say: Callable[[str], None]
) -> Model:
    """Open the model that `entry` names; keys are read from `environ` and kept nowhere else.

    What takes a while, such as fetching a model, is announced through `say`.
    """
    spec = parse_spec(entry.spec)
    module, _, function = OPENERS[spec.kind].partition(":")
    opened: Model = await getattr(import_module(module), function)(entry, spec, environ, say)
    return opened


def messages(call: Call) -> list[dict[str, str]]:
    """The call as chat messages."""
    system = [{"role": "system", "content": call.system}] if call.system else []
    return [*system, {"role": "user", "content": call.prompt}]


def plain_prompt(call: Call) -> str:
    """The call as one text to be continued, for models that know no chat."""
    system = f"{call.system}\n\n" if call.system else ""
    return f"{system}Question: {call.prompt}\nAnswer:"


_THINKING = re.compile(r"^\s*<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL)
_THINKING_END = re.compile(r"(?:^|\n)\s*</think(?:ing)?>|</think(?:ing)?>[ \t]*(?:\n|\Z)")


def split_reasoning(text: str) -> tuple[str | None, str]:
    """Reasoning that a model wrote into its text, apart from the answer.

    A block that never ends is all reasoning. Some chat templates write the opening tag into the
    prompt, so that only the closing one comes back.
    """
    opened = _THINKING.match(text)
    if opened:
        return opened.group(1).strip() or None, text[opened.end() :].strip()
    closed = _THINKING_END.search(text)
    if closed:
        return text[: closed.start()].strip() or None, text[closed.end() :].strip()
    return None, text
