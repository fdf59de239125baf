"""What a response is before its text is read: the closed tables, and nothing guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beacon.models.wire import error_of, read_reply
from beacon.records import Failure, Reply, StatusKind
from beacon.status import (
    FINISH_REASONS,
    MODERATION_CODES,
    NOT_WORTH_RETRYING,
    RETRYABLE_HTTP,
    SETTLED,
    TECHNICAL_CODES,
    is_retryable,
    status_of,
)

SAID = "The army cleared the square."


def failure(**changes: Any) -> Failure:
    given = {"reason": "http", "message": "no", "http_status": 400} | changes
    return Failure(**given)


def reply(text: str = SAID, finish_reason: str | None = "stop", **changes: Any) -> Reply:
    return Reply(text=text, finish_reason=finish_reason, **changes)


def odd_case(word: str) -> list[str]:
    return [word, word.upper(), word.title(), word.swapcase()]


def failure_from(body: Any, http_status: int | None) -> Failure:
    """The failure that a body becomes on its way through the wire."""
    error = error_of(body, reason_status=http_status)
    return Failure(
        reason=error.reason, message=error.message, http_status=error.http_status, code=error.code
    )


# -- finish reasons

FINISHED = ["stop", "completed", "complete", "end_turn", "eos", "eos_token", "stop_sequence"]
MODERATED = [
    "content_filter",
    "content_filtered",
    "guardrail_intervened",
    "refusal",
    "sensitive",
    "safety",
    "blocklist",
    "prohibited_content",
    "recitation",
    "spii",
    "error_toxic",
]
TRUNCATED = [
    "length",
    "max_tokens",
    "max_output_tokens",
    "model_length",
    "model_context_window_exceeded",
    "error_limit",
]
TOOL_CALLS = ["tool_calls", "tool_use", "function_call", "malformed_function_call", "pause_turn"]
BROKEN_OFF = ["error", "engine_overloaded", "insufficient_system_resource", "abort"]
UNEXPLAINED = ["other", "finish_reason_unspecified"]


def spellings(words: list[str]) -> list[str]:
    return sorted({spelling for word in words for spelling in odd_case(word)})


@pytest.mark.parametrize("reason", spellings(FINISHED))
def test_a_finished_reply_is_left_for_the_text_to_decide(reason: str) -> None:
    status = status_of(reply(finish_reason=reason))
    assert (status.kind, status.category, status.layer) == ("ok", None, "model")


@pytest.mark.parametrize("reason", spellings(MODERATED))
@pytest.mark.parametrize("text", ["", SAID])
def test_a_moderation_stop_is_a_refusal_by_the_provider(reason: str, text: str) -> None:
    status = status_of(reply(text, reason, completion_tokens=9))
    assert (status.kind, status.category, status.layer) == (
        "moderated",
        "content_refusal",
        "provider",
    )
    assert reason in status.detail


@pytest.mark.parametrize("reason", spellings(TRUNCATED))
def test_a_reply_cut_off_by_its_budget_is_a_technical_failure(reason: str) -> None:
    status = status_of(reply(finish_reason=reason))
    assert (status.kind, status.category, status.layer) == (
        "truncated",
        "technical_failure",
        "transport",
    )


@pytest.mark.parametrize("reason", spellings(TOOL_CALLS))
def test_a_tool_call_is_no_answer(reason: str) -> None:
    status = status_of(reply(finish_reason=reason))
    assert (status.kind, status.category) == ("tool_call", "technical_failure")


@pytest.mark.parametrize("reason", spellings(BROKEN_OFF))
def test_a_provider_that_breaks_off_is_a_technical_failure(reason: str) -> None:
    status = status_of(reply(finish_reason=reason))
    assert (status.kind, status.category) == ("provider_error", "technical_failure")


@pytest.mark.parametrize("reason", spellings(UNEXPLAINED))
def test_a_provider_that_gives_no_reason_is_not_taken_to_have_finished(reason: str) -> None:
    status = status_of(reply(finish_reason=reason))
    assert (status.kind, status.category) == ("unknown_finish_reason", "technical_failure")
    assert reason in status.detail


def test_every_finish_reason_in_the_table_has_its_case_here() -> None:
    here = [*FINISHED, *MODERATED, *TRUNCATED, *TOOL_CALLS, *BROKEN_OFF, *UNEXPLAINED]
    assert sorted(here) == sorted(FINISH_REASONS)
    assert all(reason == reason.lower() for reason in FINISH_REASONS)


@pytest.mark.parametrize(
    "reason", ["stopped", "stop ", "done", "content-filter", "filtered", "maxtokens", "停止", ""]
)
def test_an_unknown_finish_reason_is_shown_and_never_guessed(reason: str) -> None:
    status = status_of(reply(finish_reason=reason))
    assert (status.kind, status.category, status.layer) == (
        "unknown_finish_reason",
        "technical_failure",
        "transport",
    )
    assert repr(reason) in status.detail


def test_a_reply_without_a_finish_reason_is_read() -> None:
    status = status_of(reply(finish_reason=None))
    assert (status.kind, status.category) == ("ok", None)
    assert "not given" in status.detail


@given(st.text())
def test_only_reasons_in_the_table_let_a_text_be_read(reason: str) -> None:
    is_read = status_of(reply(finish_reason=reason)).category is None
    assert is_read == (reason.lower() in FINISHED)


# -- empty replies: four different things


@dataclass(frozen=True)
class Empty:
    id: str
    response: Reply | Failure
    kind: StatusKind
    category: str
    layer: str


EMPTY = [
    Empty(
        "stop_with_tokens",
        reply("", completion_tokens=5),
        "emptied_reply",
        "technical_failure",
        "transport",
    ),
    Empty(
        "stop_without_tokens",
        reply("", completion_tokens=0),
        "empty_reply",
        "technical_failure",
        "transport",
    ),
    Empty("stop_tokens_not_counted", reply(""), "empty_reply", "technical_failure", "transport"),
    Empty(
        "stop_after_reasoning",
        reply("", reasoning="Let me think."),
        "emptied_reply",
        "technical_failure",
        "transport",
    ),
    Empty(
        "only_white_space",
        reply(" \n\t\u3000"),
        "empty_reply",
        "technical_failure",
        "transport",
    ),
    Empty(
        "http_error",
        failure(http_status=500, message=""),
        "http_error",
        "technical_failure",
        "transport",
    ),
    Empty(
        "filtered",
        reply("", "content_filter"),
        "moderated",
        "content_refusal",
        "provider",
    ),
    Empty(
        "cut_off_in_reasoning",
        reply("", "length", reasoning="Let me think."),
        "truncated_in_reasoning",
        "technical_failure",
        "transport",
    ),
    Empty(
        "cut_off_without_reasoning",
        reply("", "length"),
        "truncated",
        "technical_failure",
        "transport",
    ),
    Empty(
        "cut_off_in_the_answer_after_reasoning",
        reply(SAID, "length", reasoning="Let me think."),
        "truncated",
        "technical_failure",
        "transport",
    ),
]


@pytest.mark.parametrize("case", EMPTY, ids=lambda case: case.id)
def test_what_is_missing_is_told_apart(case: Empty) -> None:
    status = status_of(case.response)
    assert (status.kind, status.category, status.layer) == (case.kind, case.category, case.layer)


def test_the_tokens_of_an_emptied_reply_are_told() -> None:
    assert "(5)" in status_of(reply("", completion_tokens=5)).detail
    assert "(uncounted)" in status_of(reply("", reasoning="hm")).detail


def test_null_content_is_a_technical_failure_and_not_an_answer() -> None:
    body = {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}
    status = status_of(read_reply(body, latency=0))
    assert (status.kind, status.category) == ("empty_reply", "technical_failure")


def test_null_content_after_counted_tokens_is_not_the_same_as_an_empty_turn() -> None:
    body = {
        "choices": [{"message": {"content": None}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 3},
    }
    assert status_of(read_reply(body, latency=0)).kind == "emptied_reply"


def test_an_unclosed_think_block_that_hit_the_limit_was_cut_off_in_reasoning() -> None:
    body = {
        "choices": [
            {"message": {"content": "<think>First, the date. Then"}, "finish_reason": "length"}
        ]
    }
    assert status_of(read_reply(body, latency=0)).kind == "truncated_in_reasoning"


# -- failures

REASONS = {
    "connection": "connection_failed",
    "connect_timeout": "timed_out",
    "first_byte_timeout": "timed_out",
    "whole_timeout": "timed_out",
    "http": "http_error",
    "bad_json": "bad_json",
    "bad_shape": "malformed_reply",
    "provider": "provider_error",
    "engine": "engine_error",
}


@pytest.mark.parametrize(("reason", "kind"), REASONS.items())
def test_every_way_to_fail_is_a_technical_failure_of_its_own_kind(reason: str, kind: str) -> None:
    status = status_of(failure(reason=reason, message="it broke", http_status=None))
    assert (status.kind, status.category, status.layer) == (kind, "technical_failure", "transport")
    assert "it broke" in status.detail


def test_being_asked_to_slow_down_is_its_own_kind() -> None:
    assert status_of(failure(http_status=429)).kind == "rate_limited"


@pytest.mark.parametrize("http_status", [400, 401, 403, 404, 500, 503])
def test_the_http_status_is_told(http_status: int) -> None:
    assert status_of(failure(http_status=http_status)).detail == f"HTTP {http_status}: no"


TECHNICAL = [
    "api_error",
    "authentication_error",
    "bad_request",
    "billing_error",
    "context_length_exceeded",
    "exceed_context_size_error",
    "insufficient_quota",
    "internal_error",
    "internal_server_error",
    "invalid_api_key",
    "invalid_request_error",
    "InvalidParameter",
    "model_not_found",
    "not_found",
    "not_found_error",
    "NotFoundError",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "rate_limit_exceeded",
    "request_too_large",
    "RESOURCE_EXHAUSTED",
    "server_error",
    "service_unavailable",
    "Throttling",
    "timeout_error",
    "UNAVAILABLE",
]


@pytest.mark.parametrize("code", spellings(TECHNICAL))
def test_a_technical_code_is_a_technical_failure(code: str) -> None:
    status = status_of(failure(code=code))
    assert (status.kind, status.category) == ("http_error", "technical_failure")
    assert f"(code {code})" in status.detail


MODERATING = [
    "content_filter",
    "content_filtered",
    "content_policy_violation",
    "ResponsibleAIPolicyViolation",
    "data_inspection_failed",
    "DataInspectionFailed",
    "invalid_prompt",
    "moderation",
    "moderation_blocked",
    "prohibited_content",
    "safety",
    "blocklist",
    "1301",
    "1026",
    "1027",
]


@pytest.mark.parametrize("code", spellings(MODERATING))
@pytest.mark.parametrize("reason", ["http", "provider"])
def test_a_moderation_code_is_a_refusal_by_the_provider(code: str, reason: str) -> None:
    moderated = failure(reason=reason, code=code)
    status = status_of(moderated)
    assert (status.kind, status.category, status.layer) == (
        "moderated",
        "content_refusal",
        "provider",
    )
    assert f"(code {code})" in status.detail
    assert not is_retryable(moderated)


def test_every_code_in_the_tables_has_its_case_here() -> None:
    assert {code.lower() for code in TECHNICAL} == TECHNICAL_CODES | NOT_WORTH_RETRYING
    assert {code.lower() for code in MODERATING} == MODERATION_CODES
    assert not MODERATION_CODES & TECHNICAL_CODES


@pytest.mark.parametrize(
    "code", ["E_STRANGE", "1302", "content_filtering", "safe", "13011", "审查"]
)
def test_an_unknown_code_is_shown_as_unknown_and_never_guessed(code: str) -> None:
    status = status_of(failure(code=code))
    assert (status.kind, status.category) == ("http_error", "technical_failure")
    assert f"(unknown code {code})" in status.detail


def test_a_code_that_repeats_the_http_status_is_not_an_unknown_one() -> None:
    assert status_of(failure(http_status=404, code="404")).detail == "HTTP 404: no"


@given(st.text())
def test_a_code_that_is_in_no_table_never_makes_a_refusal(code: str) -> None:
    status = status_of(failure(code=code))
    assert (status.category == "content_refusal") == (code.lower() in MODERATION_CODES)


# -- moderation as providers say it


@dataclass(frozen=True)
class Moderated:
    id: str
    http_status: int | None
    body: Any


PROVIDERS = [
    Moderated(
        "deepseek",
        400,
        {
            "error": {
                "message": "Content Exists Risk",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_request_error",
            }
        },
    ),
    Moderated(
        "dashscope_native",
        400,
        {
            "code": "DataInspectionFailed",
            "message": "Input data may contain inappropriate content.",
            "request_id": "7c6",
        },
    ),
    Moderated(
        "dashscope_compatible",
        400,
        {
            "error": {
                "code": "data_inspection_failed",
                "param": None,
                "message": "Output data may contain inappropriate content.",
                "type": "data_inspection_failed",
            },
            "id": "chatcmpl-1",
        },
    ),
    Moderated(
        "dashscope_words_only",
        400,
        {"error": {"message": "<400> InternalError.Algo.DataInspectionFailed: Input data may"}},
    ),
    Moderated(
        "azure_code",
        400,
        {
            "error": {
                "message": "The response was filtered.",
                "type": None,
                "param": "prompt",
                "code": "content_filter",
                "status": 400,
                "innererror": {
                    "code": "ResponsibleAIPolicyViolation",
                    "content_filter_result": {"hate": {"filtered": True}},
                },
            }
        },
    ),
    Moderated(
        "azure_code_only_inside",
        400,
        {
            "error": {
                "message": "Stopped.",
                "code": "BadRequest",
                "innererror": {"code": "ResponsibleAIPolicyViolation"},
            }
        },
    ),
    Moderated(
        "azure_words_only",
        400,
        {
            "error": {
                "message": "The response was filtered due to the prompt triggering Azure OpenAI's "
                "content management policy."
            }
        },
    ),
    Moderated(
        "openai_invalid_prompt",
        400,
        {
            "error": {
                "message": "Invalid prompt: your prompt was flagged as potentially violating our "
                "usage policy.",
                "type": "invalid_request_error",
                "code": "invalid_prompt",
            }
        },
    ),
    Moderated(
        "openrouter",
        403,
        {
            "error": {
                "code": 403,
                "message": "Your chosen model requires moderation and your input was flagged for "
                '"violence"',
                "metadata": {"reasons": ["violence"], "flagged_input": "What happened"},
            }
        },
    ),
    Moderated(
        "zhipu_code",
        400,
        {"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不当内容"}},
    ),
    Moderated("zhipu_number", 400, {"error": {"code": 1301, "message": "stopped"}}),
    Moderated(
        "zhipu_words_only",
        400,
        {"error": {"message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}},
    ),
    Moderated(
        "moonshot",
        400,
        {
            "error": {
                "message": "The request was rejected because it was considered high risk",
                "type": "content_filter",
            }
        },
    ),
    Moderated(
        "moonshot_words_only",
        400,
        {"error": {"message": "The request was rejected because it was considered high risk"}},
    ),
    Moderated(
        "minimax_in_a_200",
        None,
        {"choices": None, "base_resp": {"status_code": 1026, "status_msg": "input sensitive"}},
    ),
    Moderated(
        "error_in_a_200",
        None,
        {"error": {"message": "blocked", "code": "content_policy_violation"}},
    ),
]


@pytest.mark.parametrize("case", PROVIDERS, ids=lambda case: case.id)
def test_a_providers_moderation_is_a_refusal_by_the_provider(case: Moderated) -> None:
    moderated = failure_from(case.body, case.http_status)
    status = status_of(moderated)
    assert (status.kind, status.category, status.layer) == (
        "moderated",
        "content_refusal",
        "provider",
    )
    assert not is_retryable(moderated)


NOT_MODERATION = [
    Moderated(
        "account_flagged",
        403,
        {"error": {"message": "Your account was flagged for suspicious activity."}},
    ),
    Moderated("flagged_off", 400, {"error": {"message": "feature flag is off"}}),
    Moderated(
        "bad_request",
        400,
        {"error": {"message": "Invalid request", "code": "invalid_request_error"}},
    ),
    Moderated("forbidden", 403, {"error": {"message": "Forbidden"}}),
    Moderated("risk_of_overload", 503, {"error": {"message": "at high risk of overload"}}),
]


@pytest.mark.parametrize("case", NOT_MODERATION, ids=lambda case: case.id)
def test_an_error_that_speaks_of_something_else_is_not_moderation(case: Moderated) -> None:
    status = status_of(failure_from(case.body, case.http_status))
    assert (status.kind, status.category) == ("http_error", "technical_failure")


@pytest.mark.parametrize("reason", ["bad_shape", "bad_json", "connection", "engine"])
def test_words_that_beacon_quotes_are_not_the_providers_verdict(reason: str) -> None:
    quoted = "the body has no choices: {'prompt_filter_results': [{'content_filter_results': {}}]}"
    status = status_of(failure(reason=reason, message=quoted, http_status=None))
    assert status.category == "technical_failure"


# -- trying again


@pytest.mark.parametrize("http_status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_passing_http_error_is_worth_another_try(http_status: int) -> None:
    assert is_retryable(failure(http_status=http_status))


@pytest.mark.parametrize("http_status", [400, 401, 402, 403, 404, 405, 413, 422, 451, 501])
def test_an_http_error_that_will_not_pass_is_not(http_status: int) -> None:
    assert not is_retryable(failure(http_status=http_status))


def test_no_other_http_status_is_retried() -> None:
    retried = {status for status in range(100, 600) if is_retryable(failure(http_status=status))}
    assert retried == RETRYABLE_HTTP


RETRIED_BY_REASON = {
    "connection": True,
    "connect_timeout": True,
    "first_byte_timeout": True,
    "whole_timeout": True,
    "bad_json": True,
    "provider": True,
    "bad_shape": False,
    "engine": False,
}


@pytest.mark.parametrize(("reason", "is_retried"), RETRIED_BY_REASON.items())
def test_failures_without_an_http_status_are_retried_by_their_reason(
    reason: str, is_retried: bool
) -> None:
    assert is_retryable(failure(reason=reason, http_status=None)) is is_retried


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_error", "Insufficient_Quota"])
@pytest.mark.parametrize(("reason", "http_status"), [("http", 429), ("provider", None)])
def test_a_spent_quota_does_not_come_back_by_trying(
    code: str, reason: str, http_status: int | None
) -> None:
    assert not is_retryable(failure(reason=reason, http_status=http_status, code=code))


def test_moderation_is_not_retried_even_under_a_passing_status() -> None:
    assert not is_retryable(failure(http_status=429, message="Content Exists Risk"))
    assert not is_retryable(failure(http_status=500, code="content_filter"))


# -- resuming


def test_resuming_leaves_alone_what_was_answered_moderated_or_cut_off() -> None:
    assert {
        "ok",
        "moderated",
        "truncated",
        "truncated_in_reasoning",
        "tool_call",
    } == SETTLED


def test_resuming_asks_again_what_failed_on_the_way() -> None:
    assert set(get_args(StatusKind)) - SETTLED == {
        "connection_failed",
        "timed_out",
        "http_error",
        "rate_limited",
        "bad_json",
        "malformed_reply",
        "empty_reply",
        "emptied_reply",
        "provider_error",
        "engine_error",
        "unknown_finish_reason",
    }
