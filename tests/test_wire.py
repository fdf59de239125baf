"""The OpenAI wire form as servers really bend it: bodies out, replies and errors in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.errors import ModelError
from beacon.model import split_reasoning
from beacon.models.wire import LONGEST_QUOTE, error_of, read_reply, request_body
from beacon.records import Call, Reply, Sampling, TokenLogprob
from beacon.spec import PRESETS

QUESTION = "What happened?"
SYSTEM = "You are a helpful assistant."


def call(system: str = SYSTEM, **sampling: Any) -> Call:
    return Call(
        question_id="q",
        framing_id="f",
        model="m",
        spec="openai/m",
        system=system,
        prompt=QUESTION,
        sampling=Sampling(**sampling),
        repeat=0,
    )


# -- bodies


@dataclass(frozen=True)
class Body:
    id: str
    call: Call
    body: dict[str, Any]
    api: str = "chat"
    preset: str | None = None
    target: str = "m"
    extra: dict[str, Any] = field(default_factory=dict)


MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
PROMPT = f"{SYSTEM}\n\nQuestion: {QUESTION}\nAnswer:"
EVERYTHING = {
    "temperature": 0.0,
    "top_p": 0.9,
    "max_tokens": 64,
    "seed": 0,
    "stop": ("\n\n",),
    "logprobs": 5,
}
REST = {"temperature": 0.0, "top_p": 0.9, "stop": ["\n\n"]}

BODIES = [
    Body("chat", call(), {"model": "m", "messages": MESSAGES}),
    Body(
        "chat_without_a_system_prompt",
        call(system=""),
        {"model": "m", "messages": [{"role": "user", "content": QUESTION}]},
    ),
    Body("completions", call(), {"model": "m", "prompt": PROMPT}, api="completions"),
    Body(
        "completions_without_a_system_prompt",
        call(system=""),
        {"model": "m", "prompt": f"Question: {QUESTION}\nAnswer:"},
        api="completions",
    ),
    Body("a_server_with_one_model_needs_no_name", call(), {"messages": MESSAGES}, target=""),
    Body(
        "zero_is_a_value",
        call(temperature=0.0, seed=0),
        {"model": "m", "messages": MESSAGES, "temperature": 0.0, "seed": 0},
    ),
    Body(
        "everything_in_chat",
        call(**EVERYTHING),
        {
            "model": "m",
            "messages": MESSAGES,
            **REST,
            "max_tokens": 64,
            "seed": 0,
            "logprobs": True,
            "top_logprobs": 5,
        },
    ),
    Body(
        "everything_in_completions",
        call(**EVERYTHING),
        {"model": "m", "prompt": PROMPT, **REST, "max_tokens": 64, "seed": 0, "logprobs": 5},
        api="completions",
    ),
    Body(
        "logprobs_of_the_chosen_token_alone",
        call(logprobs=0),
        {"model": "m", "messages": MESSAGES, "logprobs": True, "top_logprobs": 0},
    ),
    Body(
        "logprobs_of_the_chosen_token_alone_in_completions",
        call(logprobs=0),
        {"model": "m", "prompt": PROMPT, "logprobs": 0},
        api="completions",
    ),
    Body(
        "openai_renames_the_token_limit",
        call(**EVERYTHING),
        {
            "model": "m",
            "messages": MESSAGES,
            **REST,
            "max_completion_tokens": 64,
            "seed": 0,
            "logprobs": True,
            "top_logprobs": 5,
        },
        preset="openai",
    ),
    Body(
        "openai_keeps_the_token_limit_in_completions",
        call(max_tokens=64),
        {"model": "m", "prompt": PROMPT, "max_tokens": 64},
        api="completions",
        preset="openai",
    ),
    Body(
        "mistral_renames_the_seed_and_takes_no_logprobs",
        call(**EVERYTHING),
        {"model": "m", "messages": MESSAGES, **REST, "max_tokens": 64, "random_seed": 0},
        preset="mistral",
    ),
    Body(
        "anthropic_takes_neither_seed_nor_logprobs",
        call(**EVERYTHING),
        {"model": "m", "messages": MESSAGES, **REST, "max_tokens": 64},
        preset="anthropic",
    ),
    Body(
        "deepseek_takes_no_seed",
        call(**EVERYTHING),
        {
            "model": "m",
            "messages": MESSAGES,
            **REST,
            "max_tokens": 64,
            "logprobs": True,
            "top_logprobs": 5,
        },
        preset="deepseek",
    ),
    Body(
        "what_is_not_asked_for_is_not_renamed_into_being",
        call(),
        {"model": "m", "messages": MESSAGES},
        preset="mistral",
    ),
    Body(
        "extra_fields_are_added",
        call(),
        {"model": "m", "messages": MESSAGES, "provider": {"order": ["Novita"]}, "top_k": 1},
        extra={"provider": {"order": ["Novita"]}, "top_k": 1},
    ),
    Body(
        "extra_fields_outrank_ours",
        call(temperature=1.0),
        {"model": "m", "messages": MESSAGES, "temperature": 0.2},
        extra={"temperature": 0.2},
    ),
]


@pytest.mark.parametrize("case", BODIES, ids=lambda case: case.id)
def test_a_call_is_asked_as_the_server_wants_it(case: Body) -> None:
    body = request_body(
        case.call,
        target=case.target,
        api=case.api,  # type: ignore[arg-type]
        preset=PRESETS[case.preset] if case.preset else None,
        extra=case.extra,
    )
    assert body == case.body
    assert json.loads(msgspec.json.encode(body)) == body


@pytest.mark.parametrize(
    "name", sorted({*PRESETS} - {"anthropic", "deepseek", "mistral", "openai"})
)
def test_other_presets_are_asked_by_the_plain_names(name: str) -> None:
    body = request_body(call(**EVERYTHING), target="m", api="chat", preset=PRESETS[name], extra={})
    assert {"temperature", "top_p", "max_tokens", "seed", "stop", "logprobs"} < body.keys()


def test_one_calls_extra_fields_do_not_stay_for_the_next() -> None:
    first = request_body(call(seed=1), target="m", api="chat", extra={"top_k": 1})
    second = request_body(call(seed=1), target="m", api="chat", extra={})
    assert "top_k" in first
    assert "top_k" not in second


def test_a_seed_is_sent_for_the_call_that_has_it() -> None:
    seeds = [
        request_body(call(seed=seed), target="m", api="chat", extra={})["seed"]
        for seed in (1, 2, 1)
    ]
    assert seeds == [1, 2, 1]


# -- replies


def chat(
    message: dict[str, Any] | None, finish_reason: Any = "stop", **choice: Any
) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish_reason, **choice}]}


def says(content: Any, **message: Any) -> dict[str, Any]:
    return chat({"role": "assistant", "content": content, **message})


@dataclass(frozen=True)
class Read:
    id: str
    payload: dict[str, Any]
    expected: dict[str, Any]
    """Fields of the reply that the case is about."""


REPLIES = [
    Read("string", says("Hello."), {"text": "Hello.", "reasoning": None, "finish_reason": "stop"}),
    Read(
        "parts",
        says([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}]),
        {"text": "Hello."},
    ),
    Read(
        "parts_that_are_no_text",
        says([{"type": "image_url", "image_url": {}}, "Hello.", {"text": None}, 7]),
        {"text": "Hello."},
    ),
    Read("null", says(None), {"text": "", "is_declared_refusal": False}),
    Read("missing", chat({"role": "assistant"}), {"text": ""}),
    Read("number", says(7), {"text": ""}),
    Read(
        "refusal",
        says(None, refusal="I can't assist with that."),
        {"text": "I can't assist with that.", "is_declared_refusal": True},
    ),
    Read(
        "refusal_beside_white_space",
        says("\n", refusal="I can't assist with that."),
        {"text": "I can't assist with that.", "is_declared_refusal": True},
    ),
    Read(
        "refusal_beside_an_answer",
        says("Hello.", refusal="I can't assist with that."),
        {"text": "Hello.", "is_declared_refusal": False},
    ),
    Read("refusal_null", says("Hello.", refusal=None), {"is_declared_refusal": False}),
    Read("refusal_empty", says("", refusal=""), {"text": "", "is_declared_refusal": False}),
    Read(
        "reasoning_content",
        says("Hello.", reasoning_content="Greet."),
        {"text": "Hello.", "reasoning": "Greet."},
    ),
    Read(
        "reasoning", says("Hello.", reasoning="Greet."), {"text": "Hello.", "reasoning": "Greet."}
    ),
    Read(
        "reasoning_null_and_empty",
        says("Hello.", reasoning_content=None, reasoning=""),
        {"reasoning": None},
    ),
    Read(
        "reasoning_apart_outranks_a_block_in_the_text",
        says("<think>a</think>Hello.", reasoning_content="Greet."),
        {"text": "Hello.", "reasoning": "Greet."},
    ),
    Read(
        "think_block",
        says("<think>\nGreet.\n</think>\n\nHello."),
        {"text": "Hello.", "reasoning": "Greet."},
    ),
    Read(
        "think_block_empty",
        says("<think>\n\n</think>\n\nHello."),
        {"text": "Hello.", "reasoning": None},
    ),
    Read(
        "think_block_unclosed",
        says("<think>Greet. Or"),
        {"text": "", "reasoning": "Greet. Or"},
    ),
    Read(
        "think_block_only_closed",
        says("Greet.\n</think>\nHello."),
        {"text": "Hello.", "reasoning": "Greet."},
    ),
    Read(
        "usage",
        says("Hello.") | {"usage": {"prompt_tokens": 11, "completion_tokens": 2}},
        {"prompt_tokens": 11, "completion_tokens": 2},
    ),
    Read("usage_missing", says("Hello."), {"prompt_tokens": None, "completion_tokens": None}),
    Read(
        "usage_null",
        says("Hello.") | {"usage": None},
        {"prompt_tokens": None, "completion_tokens": None},
    ),
    Read(
        "usage_bent",
        says("Hello.") | {"usage": {"prompt_tokens": "11", "completion_tokens": True}},
        {"prompt_tokens": None, "completion_tokens": None},
    ),
    Read(
        "provider_and_model",
        says("Hello.") | {"provider": "Novita", "model": "qwen/qwen-2.5-7b"},
        {"provider": "Novita", "served_model": "qwen/qwen-2.5-7b"},
    ),
    Read(
        "provider_and_model_bent",
        says("Hello.") | {"provider": {"name": "x"}, "model": ""},
        {"provider": None, "served_model": None},
    ),
    Read(
        "native_finish_reason",
        chat({"content": "Hello."}, None, native_finish_reason="SAFETY"),
        {"finish_reason": "SAFETY"},
    ),
    Read(
        "finish_reason_outranks_the_native_one",
        chat({"content": "Hello."}, "length", native_finish_reason="max_tokens"),
        {"finish_reason": "length"},
    ),
    Read("finish_reason_null", chat({"content": "Hello."}, None), {"finish_reason": None}),
    Read("finish_reason_bent", chat({"content": "Hello."}, 7), {"finish_reason": "7"}),
    Read(
        "completion",
        {"choices": [{"text": " Hello.\n", "finish_reason": "length"}]},
        {"text": "Hello.", "finish_reason": "length", "reasoning": None},
    ),
    Read(
        "completion_with_a_think_block",
        {"choices": [{"text": "<think>Greet.</think> Hello."}]},
        {"text": "Hello.", "reasoning": "Greet.", "finish_reason": None},
    ),
    Read(
        "first_of_several_choices",
        {"choices": [{"message": {"content": "one"}}, {"message": {"content": "two"}}]},
        {"text": "one"},
    ),
    Read("an_empty_error_beside_choices", says("Hello.") | {"error": None}, {"text": "Hello."}),
    Read("lone_surrogate", says("a\ud800b"), {"text": "a\ufffdb"}),
    Read("surrogate_pair", says("\ud83d\ude00"), {"text": "😀"}),
    Read(
        "lone_surrogates_elsewhere",
        chat({"content": "x", "reasoning": "\udfff"}, "st\ud800p") | {"model": "\ud800m"},
        {"reasoning": "\ufffd", "finish_reason": "st\ufffdp", "served_model": "\ufffdm"},
    ),
    Read(
        "line_separators_are_kept", says("a\u2028b\u2029c\x85d"), {"text": "a\u2028b\u2029c\x85d"}
    ),
]


@pytest.mark.parametrize("case", REPLIES, ids=lambda case: case.id)
def test_what_can_be_read_is_read(case: Read) -> None:
    reply = read_reply(case.payload, latency=1.5)
    assert {name: getattr(reply, name) for name in case.expected} == case.expected
    assert reply.latency == 1.5
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Reply) == reply


# -- log-probabilities

CHAT_LOGPROBS = {
    "content": [
        {
            "token": "Yes",
            "logprob": -0.25,
            "bytes": [89],
            "top_logprobs": [
                {"token": "Yes", "logprob": -0.25},
                {"token": "No", "logprob": -1.5},
            ],
        },
        {"token": "\ud83d", "logprob": -2, "top_logprobs": []},
    ]
}
LIST_LOGPROBS = {
    "tokens": ["Question", "Yes", "\ud83d"],
    "token_logprobs": [None, -0.25, -2],
    "top_logprobs": [None, {"Yes": -0.25, "No": -1.5}, None],
    "text_offset": [0, 8, 11],
}
TOKENS = (
    TokenLogprob(token="Yes", logprob=-0.25, top=(("Yes", -0.25), ("No", -1.5))),
    TokenLogprob(token="\ufffd", logprob=-2.0),
)


@pytest.mark.parametrize(
    "raw", [CHAT_LOGPROBS, LIST_LOGPROBS], ids=["an_object_for_each_token", "parallel_lists"]
)
@pytest.mark.parametrize(
    "choice", [{"message": {"content": "Yes"}}, {"text": "Yes"}], ids=["chat", "completions"]
)
def test_log_probabilities_are_read_in_either_form_from_either_endpoint(
    raw: dict[str, Any], choice: dict[str, Any]
) -> None:
    assert read_reply({"choices": [{**choice, "logprobs": raw}]}, latency=0).logprobs == TOKENS


def test_lists_without_alternatives_are_read() -> None:
    raw = {"tokens": ["Yes"], "token_logprobs": [-0.25], "top_logprobs": None}
    reply = read_reply({"choices": [{"text": "Yes", "logprobs": raw}]}, latency=0)
    assert reply.logprobs == (TokenLogprob(token="Yes", logprob=-0.25),)


UNREADABLE_LOGPROBS = {
    "null": None,
    "empty": {},
    "content_null": {"content": None},
    "a_number": 3,
    "a_list": [-0.1],
    "a_token_is_null": {"content": [None]},
    "no_token": {"content": [{"logprob": -0.1}]},
    "no_logprob": {"content": [{"token": "a"}]},
    "a_word_for_a_number": {"content": [{"token": "a", "logprob": "low"}]},
    "minus_infinity": {"content": [{"token": "a", "logprob": float("-inf")}]},
    "not_a_number": {"content": [{"token": "a", "logprob": float("nan")}]},
    "alternatives_bent": {"content": [{"token": "a", "logprob": -1, "top_logprobs": {"a": -1}}]},
    "lists_of_unequal_length": {"tokens": ["a", "b"], "token_logprobs": [-1]},
    "lists_without_numbers": {"tokens": ["a"]},
    "tokens_are_text": {"tokens": "ab", "token_logprobs": [-1]},
}


@pytest.mark.parametrize("name", UNREADABLE_LOGPROBS)
@pytest.mark.parametrize(
    "choice", [{"message": {"content": "Yes"}}, {"text": "Yes"}], ids=["chat", "completions"]
)
def test_a_reply_is_kept_without_log_probabilities_that_cannot_be_read(
    name: str, choice: dict[str, Any]
) -> None:
    payload = {"choices": [{**choice, "logprobs": UNREADABLE_LOGPROBS[name]}]}
    reply = read_reply(payload, latency=0)
    assert (reply.text, reply.logprobs) == ("Yes", None)


def test_no_tokens_are_not_the_same_as_no_log_probabilities() -> None:
    payload = chat({"content": ""}, logprobs={"content": []})
    assert read_reply(payload, latency=0).logprobs == ()


# -- errors


@dataclass(frozen=True)
class Error:
    id: str
    payload: Any
    message: str
    code: str | None = None


ERRORS = [
    Error(
        "openai",
        {
            "error": {
                "message": "No such model",
                "type": "invalid_request_error",
                "param": None,
                "code": "model_not_found",
            }
        },
        "No such model",
        "model_not_found",
    ),
    Error(
        "openai_without_a_code",
        {"error": {"message": "Bad", "type": "invalid_request_error", "code": None}},
        "Bad",
        "invalid_request_error",
    ),
    Error(
        "anthropic",
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "Overloaded",
        "overloaded_error",
    ),
    Error(
        "dashscope",
        {"code": "InvalidParameter", "message": "top_p is bad", "request_id": "1"},
        "top_p is bad",
        "InvalidParameter",
    ),
    Error(
        "llamacpp_says_it_in_the_type",
        {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}},
        "too long",
        "exceed_context_size_error",
    ),
    Error(
        "gemini_says_it_in_the_status",
        {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}},
        "slow down",
        "RESOURCE_EXHAUSTED",
    ),
    Error(
        "gemini_in_a_list",
        [{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}],
        "bad",
        "INVALID_ARGUMENT",
    ),
    Error(
        "vllm",
        {"object": "error", "message": "gone", "type": "NotFoundError", "code": 404},
        "gone",
        "NotFoundError",
    ),
    Error("openrouter", {"error": {"code": 502, "message": "upstream"}}, "upstream", "502"),
    Error("ollama", {"error": "model 'x' not found"}, "model 'x' not found"),
    Error("fastapi", {"detail": "Not Found"}, "Not Found"),
    Error(
        "fastapi_list",
        {"detail": [{"loc": ["body"], "msg": "field required", "input": "was flagged"}]},
        "field required",
    ),
    Error("msg", {"code": 7, "msg": "busy"}, "busy", "7"),
    Error(
        "minimax",
        {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
        "rate limit",
        "1002",
    ),
    Error("error_null", {"error": None, "message": "gone"}, "gone"),
    Error(
        "nested_in_nothing",
        {"error": {"message": None, "code": ""}},
        "{'message': None, 'code': ''}",
    ),
    Error("code_is_a_boolean", {"error": {"message": "x", "code": True}}, "x"),
    Error("plain_text", "upstream connect error", "upstream connect error"),
    Error("list", ["a", "b"], "['a', 'b']"),
    Error("number", 502, "502"),
    Error("null", None, "None"),
    Error("empty_object", {}, "{}"),
    Error(
        "lone_surrogates",
        {"error": {"message": "a\ud800", "code": "\udfffx"}},
        "a\ufffd",
        "\ufffdx",
    ),
    Error("line_separator", {"error": "a\u2028b"}, "a\u2028b"),
]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.id)
def test_an_error_is_read_in_whichever_form_it_comes(case: Error) -> None:
    error = error_of(case.payload, reason_status=500, retry_after=2.0)
    assert (error.reason, error.http_status, error.retry_after) == ("http", 500, 2.0)
    assert (error.message, error.code) == (case.message, case.code)


def test_an_error_inside_a_200_has_no_http_status() -> None:
    error = error_of({"error": "no"}, reason_status=None)
    assert (error.reason, error.http_status, error.retry_after) == ("provider", None, None)


@pytest.mark.parametrize(
    "payload", ["x" * 2_000, {"error": {"message": "x" * 2_000}}, {"choices": "x" * 2_000}]
)
def test_an_error_quotes_only_so_much(payload: Any) -> None:
    message = error_of(payload, reason_status=500).message
    assert len(message) == LONGEST_QUOTE
    assert "xxx" in message


@dataclass(frozen=True)
class Unread:
    id: str
    payload: Any
    reason: str
    words: str
    code: str | None = None


UNREADABLE = [
    Unread("list", [], "bad_shape", "not an object"),
    Unread("text", "hello", "bad_shape", "'hello'"),
    Unread("number", 3, "bad_shape", "not an object"),
    Unread("null", None, "bad_shape", "not an object"),
    Unread("nothing", {}, "bad_shape", "no choices"),
    Unread("choices_empty", {"choices": []}, "bad_shape", "no choices"),
    Unread("choices_null", {"choices": None}, "bad_shape", "no choices"),
    Unread("choices_a_mapping", {"choices": {"0": {}}}, "bad_shape", "no choices"),
    Unread("choice_a_text", {"choices": ["hello"]}, "bad_shape", "no choices"),
    Unread("choice_empty", {"choices": [{}]}, "bad_shape", "neither message nor text"),
    Unread("message_null", chat(None), "bad_shape", "neither message nor text"),
    Unread("text_null", {"choices": [{"text": None}]}, "bad_shape", "neither message nor text"),
    Unread("error", {"error": {"message": "down", "code": 503}}, "provider", "down", "503"),
    Unread("error_and_choices_empty", {"error": "down", "choices": []}, "provider", "down"),
    Unread(
        "top_level_code",
        {"code": "Throttling", "message": "slow"},
        "provider",
        "slow",
        "Throttling",
    ),
    Unread(
        "choice_error",
        {"choices": [{"error": {"code": 502, "message": "upstream"}, "message": {"content": ""}}]},
        "provider",
        "upstream",
        "502",
    ),
    Unread(
        "base_resp",
        {"choices": None, "base_resp": {"status_code": 1026, "status_msg": "sensitive"}},
        "provider",
        "sensitive",
        "1026",
    ),
    Unread("surrogates", {"choices": [], "x": "\ud800"}, "bad_shape", "\\ud800"),
]


@pytest.mark.parametrize("case", UNREADABLE, ids=lambda case: case.id)
def test_what_cannot_be_read_is_an_error_that_quotes_what_came(case: Unread) -> None:
    with pytest.raises(ModelError) as caught:
        read_reply(case.payload, latency=0)
    assert caught.value.reason == case.reason
    assert case.words in caught.value.message
    assert caught.value.code == case.code
    caught.value.message.encode()


KEYS = """
choices message content text error code type status detail finish_reason refusal reasoning logprobs
tokens token_logprobs top_logprobs token logprob usage model base_resp innererror
"""
keys = st.sampled_from(KEYS.split())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def check_that_it_can_be_stored(payload: Any) -> None:
    try:
        reply = read_reply(payload, latency=0)
    except ModelError as error:
        (error.message + (error.code or "")).encode()
    else:
        assert msgspec.json.decode(msgspec.json.encode(reply), type=Reply) == reply


@given(json_values)
def test_any_json_is_a_reply_that_can_be_stored_or_a_model_error(payload: Any) -> None:
    check_that_it_can_be_stored(payload)


@given(st.dictionaries(keys, json_values))
def test_any_choice_is_a_reply_that_can_be_stored_or_a_model_error(choice: Any) -> None:
    check_that_it_can_be_stored({"choices": [choice]})


@given(json_values, st.none() | st.integers(400, 599))
def test_any_json_makes_an_error_that_can_be_stored(payload: Any, status: int | None) -> None:
    error = error_of(payload, reason_status=status)
    (error.message + (error.code or "")).encode()
    assert len(error.message) <= LONGEST_QUOTE


# -- reasoning


@dataclass(frozen=True)
class Thought:
    id: str
    text: str
    reasoning: str | None
    answer: str


THOUGHTS = [
    Thought("none", " Hello. ", None, " Hello. "),
    Thought("block", "<think>a</think>b", "a", "b"),
    Thought("long_tag", "<thinking>a</thinking>b", "a", "b"),
    Thought("space_around", "\n <think> a\n</think>\n\n b \n", "a", "b"),
    Thought("lines", "<think>a\nb\n\nc</think>d\ne", "a\nb\n\nc", "d\ne"),
    Thought("unclosed", "<think>a", "a", ""),
    Thought("only_closing", "a\n</think>\n\nb", "a", "b"),
    Thought("only_closing_at_a_lines_end", "a</think>\nb", "a", "b"),
    Thought(
        "the_tag_in_a_sentence",
        "Ends with </think> and so on",
        None,
        "Ends with </think> and so on",
    ),
    Thought("only_closing_at_the_start", "</think>b", None, "b"),
    Thought("empty", "<think></think>b", None, "b"),
    Thought("nothing_after", "<think>a</think>", "a", ""),
    Thought("first_end_counts", "<think>a</think>b</think>c", "a", "b</think>c"),
    Thought(
        "opened_later_is_text",
        "The <think> tag opens a block.",
        None,
        "The <think> tag opens a block.",
    ),
    Thought("empty_text", "", None, ""),
]


@pytest.mark.parametrize("case", THOUGHTS, ids=lambda case: case.id)
def test_reasoning_is_taken_out_of_the_text(case: Thought) -> None:
    assert split_reasoning(case.text) == (case.reasoning, case.answer)


def test_mistrals_thinking_parts_are_reasoning_and_not_text() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm. "}]},
        {"type": "text", "text": "Paris."},
    ]
    payload = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    reply = read_reply(payload, latency=0.0)
    assert (reply.text, reply.reasoning) == ("Paris.", "Hm. ")
