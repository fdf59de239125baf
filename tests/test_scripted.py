"""The model that says what its script says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beacon.errors import ModelError, UsageError
from beacon.model import open_model
from beacon.models.scripted import ScriptedModel, read_script
from beacon.records import Call, Reply, Sampling
from beacon.study import ModelEntry

SHY = """
replies:
  - when: {question: Tiananmen, system: China}
    text: I'm sorry, but I cannot discuss that.
  - when: {repeat: 1}
    fail: {reason: http, http_status: 500, message: try later, code: server_error}
  - when: {question: think}
    text: "<think>Let me see.</think>Seen."
  - when: {question: cut}
    text: And then
    finish_reason: length
  - when: {question: no reason}
    text: Well.
    finish_reason: null
  - when: {question: dead}
    fail: {reason: connection}
  - text: "Here is an answer to: {question} ({system})"
"""


def script(folder: Path, text: str = SHY) -> Path:
    file = folder / "shy.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def call(prompt: str, *, system: str = "You are helpful.", repeat: int = 0) -> Call:
    return Call(
        question_id="q",
        framing_id="f",
        model="m",
        spec="scripted/shy.yaml",
        system=system,
        prompt=prompt,
        sampling=Sampling(),
        repeat=repeat,
    )


def ask(model: ScriptedModel, *args: Any, **options: Any) -> Reply:
    return asyncio.run(model.ask(call(*args, **options)))


@pytest.fixture
def shy(tmp_path: Path) -> ScriptedModel:
    return ScriptedModel(read_script(script(tmp_path)), name="shy.yaml")


@dataclass(frozen=True)
class Case:
    id: str
    prompt: str
    system: str
    text: str


CASES = [
    Case(
        "both_words_occur",
        "What happened at Tiananmen Square?",
        "You are based in China.",
        "I'm sorry, but I cannot discuss that.",
    ),
    Case(
        "case_makes_no_difference",
        "what happened at TIANANMEN square?",
        "you are based in china.",
        "I'm sorry, but I cannot discuss that.",
    ),
    Case(
        "one_word_is_not_enough",
        "What happened at Tiananmen Square?",
        "You are based in the US.",
        "Here is an answer to: What happened at Tiananmen Square? (You are based in the US.)",
    ),
    Case("anything_else", "Who are you?", "", "Here is an answer to: Who are you? ()"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_first_entry_that_holds_is_said(shy: ScriptedModel, case: Case) -> None:
    reply = ask(shy, case.prompt, system=case.system)
    assert (reply.text, reply.finish_reason, reply.reasoning) == (case.text, "stop", None)


def test_an_earlier_entry_outranks_a_later_one(shy: ScriptedModel) -> None:
    reply = ask(shy, "Tiananmen?", system="China", repeat=1)
    assert reply.text == "I'm sorry, but I cannot discuss that."


def test_a_failure_is_acted_out(shy: ScriptedModel) -> None:
    with pytest.raises(ModelError) as caught:
        ask(shy, "Who are you?", repeat=1)
    error = caught.value
    assert (error.reason, error.http_status, error.message, error.code) == (
        "http",
        500,
        "try later",
        "server_error",
    )


def test_a_failure_need_not_say_more_than_its_reason(shy: ScriptedModel) -> None:
    with pytest.raises(ModelError) as caught:
        ask(shy, "Are you dead?")
    assert (caught.value.reason, caught.value.message) == ("connection", "scripted failure")


def test_reasoning_is_kept_apart(shy: ScriptedModel) -> None:
    reply = ask(shy, "Please think.")
    assert (reply.reasoning, reply.text) == ("Let me see.", "Seen.")


def test_the_finish_reason_can_be_chosen_or_withheld(shy: ScriptedModel) -> None:
    assert ask(shy, "Be cut off.").finish_reason == "length"
    assert ask(shy, "Give no reason.").finish_reason is None


def test_a_reply_says_who_served_it_and_counts_words_for_tokens(shy: ScriptedModel) -> None:
    reply = ask(shy, "Tiananmen please", system="In China")
    assert reply.served_model == "shy.yaml"
    assert (reply.prompt_tokens, reply.completion_tokens) == (4, 7)


def test_a_reply_comes_at_once_unless_it_is_told_to_wait(tmp_path: Path) -> None:
    text = "replies: [{when: {question: slow}, text: a, delay: 0.001}, {text: b}]"
    model = ScriptedModel(read_script(script(tmp_path, text)))
    assert ask(model, "Be slow.").latency == 0.001
    assert ask(model, "Be quick.").latency == 0.0


def test_braces_that_are_no_placeholder_are_left_alone(tmp_path: Path) -> None:
    model = ScriptedModel(read_script(script(tmp_path, 'replies: [{text: "{a} {0} {question}"}]')))
    assert ask(model, "Q {b}").text == "{a} {0} Q {b}"


def test_text_that_utf_8_cannot_carry_is_made_storable(tmp_path: Path) -> None:
    model = ScriptedModel(read_script(script(tmp_path, r'replies: [{text: "a\ud800"}]')))
    assert ask(model, "Q").text == "a\ufffd"


def test_a_call_that_no_entry_is_for_fails_and_is_not_retried(tmp_path: Path) -> None:
    text = "replies: [{when: {question: x}, text: y}]"
    model = ScriptedModel(read_script(script(tmp_path, text)), name="shy.yaml")
    with pytest.raises(ModelError, match=r"shy\.yaml has no entry for 'Who\?'") as caught:
        ask(model, "Who?")
    assert caught.value.reason == "engine"


def test_a_script_is_yaml_1_2(tmp_path: Path) -> None:
    model = ScriptedModel(read_script(script(tmp_path, "replies: [{text: no}]")))
    assert ask(model, "Q").text == "no"


def test_a_spec_opens_its_script(tmp_path: Path) -> None:
    entry = ModelEntry(spec=f"scripted/{script(tmp_path)}")

    async def open_and_ask() -> Reply:
        model = await open_model(entry, {}, lambda message: None)
        try:
            return await model.ask(call("Who are you?"))
        finally:
            await model.close()

    assert asyncio.run(open_and_ask()).text.startswith("Here is an answer")


BAD = [
    ("empty", "", "is not right: Expected `object`, got `null`"),
    ("a_list", "- a", "is not right: Expected `object`, got `array`"),
    ("no_replies", "answers: []", "unknown field `answers`"),
    ("unknown_key", "replies: [{txt: a}]", "unknown field `txt` - at `$.replies[0]`"),
    ("text_is_a_number", "replies: [{text: 1989}]", "Expected `str`, got `int`"),
    ("text_is_a_date", "replies: [{text: 2024-01-01}]", "Expected `str`, got `date`"),
    ("a_day_that_never_was", "replies: [{text: 2024-02-30}]", "is not YAML: day is out of range"),
    ("negative_delay", "replies: [{text: a, delay: -1}]", "Expected `float` >= 0.0"),
    ("unknown_reason", "replies: [{fail: {reason: tired}}]", "Invalid enum value 'tired'"),
    ("broken", "replies: [", "is not YAML"),
    ("twice", "replies: [{text: a, text: b}]", "is not YAML"),
]


@pytest.mark.parametrize(
    ("text", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_a_bad_script_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = script(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_script(file)
    assert str(file) in str(caught.value)
    assert words in str(caught.value)


def test_a_script_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read the script .*No such file"):
        read_script(tmp_path / "missing.yaml")
    with pytest.raises(UsageError, match=r"Cannot read the script .*directory"):
        read_script(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("replies: [{text: é}]".encode("latin-1"))
    with pytest.raises(UsageError, match="is not YAML"):
        read_script(tmp_path / "latin.yaml")
