"""Replies from a file, for tests and teaching: what a model will say is written down beforehand.

    # shy.yaml
    replies:
      - when: {question: Tiananmen, system: China}    # both words occur in what is asked
        text: I'm sorry, but I cannot discuss that.
      - when: {repeat: 1}
        fail: {reason: http, http_status: 500, message: try later}
      - text: "Here is an answer to: {question}"        # no `when`: anything else

The first entry that matches is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from beacon.errors import ModelError, UsageError
from beacon.model import split_reasoning
from beacon.records import Call, FailureReason, Record, Reply, storable
from beacon.spec import Spec
from beacon.study import ModelEntry


class When(Record, frozen=True, kw_only=True):
    """What an entry is for; all that is given must hold. Texts are matched regardless of case."""

    question: str | None = None
    system: str | None = None
    repeat: int | None = None

    def holds(self, call: Call) -> bool:
        """Whether `call` is one of those meant."""
        return (
            (self.question is None or self.question.lower() in call.prompt.lower())
            and (self.system is None or self.system.lower() in call.system.lower())
            and (self.repeat is None or self.repeat == call.repeat)
        )


class Fail(Record, frozen=True, kw_only=True):
    """A failure to act out."""

    reason: FailureReason
    message: str = "scripted failure"
    http_status: int | None = None
    code: str | None = None


class Entry(Record, frozen=True, kw_only=True):
    """One thing to say, or one way to fail."""

    when: When = When()
    text: str = ""
    finish_reason: str | None = "stop"
    delay: Annotated[float, Meta(ge=0)] = 0.0
    fail: Fail | None = None


class Script(Record, frozen=True, kw_only=True):
    """The file."""

    replies: tuple[Entry, ...]


async def open_scripted(
    entry: ModelEntry, spec: Spec, environ: Mapping[str, str], say: Callable[[str], None]
) -> ScriptedModel:
    """Read the script that the spec names."""
    del entry, environ, say
    return ScriptedModel(read_script(Path(spec.target)), name=Path(spec.target).name)


def read_script(path: Path) -> Script:
    """A script file, checked."""
    try:
        tree: Any = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        return msgspec.convert(tree, Script)
    except OSError as error:
        raise UsageError(f"Cannot read the script {path}: {error.strerror}.") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"The script {path} is not right: {error}") from None
    except (YAMLError, ValueError) as error:  # such as a date that there never was
        raise UsageError(f"The script {path} is not YAML: {error}") from None


class ScriptedModel:
    """A model that says what its script says."""

    limit = 16

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        self._script = script
        self._name = name

    async def ask(self, call: Call) -> Reply:
        """The first entry that holds for `call`."""
        entry = next((entry for entry in self._script.replies if entry.when.holds(call)), None)
        if entry is None:
            raise ModelError("engine", f"the script {self._name} has no entry for {call.prompt!r}")
        if entry.delay:
            await asyncio.sleep(entry.delay)
        if entry.fail:
            fail = entry.fail
            raise ModelError(
                fail.reason, fail.message, http_status=fail.http_status, code=fail.code
            )
        said = entry.text.replace("{question}", call.prompt).replace("{system}", call.system)
        reasoning, text = split_reasoning(storable(said))
        return Reply(
            text=text,
            reasoning=reasoning,
            finish_reason=entry.finish_reason,
            prompt_tokens=len(f"{call.system} {call.prompt}".split()),
            completion_tokens=len(said.split()),
            served_model=self._name,
            latency=entry.delay,
        )

    async def close(self) -> None:
        """Nothing to let go of."""
