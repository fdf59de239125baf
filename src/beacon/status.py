"""What the transport and the provider said of a response, before anyone reads its text.

The tables are closed: a finish reason or error code that is not in them is shown as unknown and
never guessed at. A provider's moderation is kept apart from the model's own refusal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from beacon.records import Category, Failure, Layer, Reply, Response, StatusKind

Ending = Literal["finished", "moderated", "truncated", "tool_call", "provider_error", "unexplained"]

FINISH_REASONS: Final[dict[str, Ending]] = {
    # The model came to its own end.
    "stop": "finished",
    "completed": "finished",
    "complete": "finished",
    "end_turn": "finished",
    "eos": "finished",
    "eos_token": "finished",
    "stop_sequence": "finished",
    # The provider's moderation ended it.
    "content_filter": "moderated",
    "content_filtered": "moderated",
    "guardrail_intervened": "moderated",
    "refusal": "moderated",
    "sensitive": "moderated",
    "safety": "moderated",
    "blocklist": "moderated",
    "prohibited_content": "moderated",
    "recitation": "moderated",
    "spii": "moderated",
    "error_toxic": "moderated",
    # The budget ended it.
    "length": "truncated",
    "max_tokens": "truncated",
    "max_output_tokens": "truncated",
    "model_length": "truncated",
    "model_context_window_exceeded": "truncated",
    "error_limit": "truncated",
    # The model called a tool, though none was offered.
    "tool_calls": "tool_call",
    "tool_use": "tool_call",
    "function_call": "tool_call",
    "malformed_function_call": "tool_call",
    "pause_turn": "tool_call",
    # The provider broke down.
    "error": "provider_error",
    "engine_overloaded": "provider_error",
    "insufficient_system_resource": "provider_error",
    "abort": "provider_error",
    # The provider says outright that it does not say.
    "other": "unexplained",
    "finish_reason_unspecified": "unexplained",
}
"""Every finish reason we know, in lower case, with what it means."""

MODERATION_CODES: Final[frozenset[str]] = frozenset(
    {
        "content_filter",
        "content_filtered",
        "content_policy_violation",
        "responsibleaipolicyviolation",
        "data_inspection_failed",
        "datainspectionfailed",
        "invalid_prompt",
        "moderation",
        "moderation_blocked",
        "prohibited_content",
        "safety",
        "blocklist",
        "1301",  # Zhipu: unsafe or sensitive content in the input or the output
        "1026",  # MiniMax: sensitive input
        "1027",  # MiniMax: sensitive output
    }
)
"""Error codes, in lower case, by which a provider says that its moderation stopped the call."""

_MODERATION_MESSAGE = re.compile(
    r"content exists risk"  # DeepSeek
    r"|data[_ ]?inspection[_ ]?failed|inappropriate content"  # DashScope
    r"|content management policy|content_policy_violation|content_filter"  # Azure, OpenAI
    r"|violat\w+ (?:\w+ ){0,3}(?:content|usage) polic"
    r"|considered high risk"  # Moonshot
    r"|requires moderation|(?:in|out)put was flagged"  # OpenRouter
    r"|不安全或敏感内容|敏感内容",
    re.IGNORECASE,
)
"""Some providers say so only in words, under a general code such as `invalid_request_error`."""

TECHNICAL_CODES: Final[frozenset[str]] = frozenset(
    {
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
        "invalidparameter",
        "model_not_found",
        "not_found",
        "not_found_error",
        "notfounderror",
        "overloaded_error",
        "permission_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "request_too_large",
        "resource_exhausted",
        "server_error",
        "service_unavailable",
        "throttling",
        "timeout_error",
        "unavailable",
    }
)
"""Error codes, in lower case, that say that something technical went wrong."""

RETRYABLE_HTTP: Final[frozenset[int]] = frozenset({408, 409, 425, 429, *range(500, 600)} - {501})
NOT_WORTH_RETRYING: Final[frozenset[str]] = frozenset({"insufficient_quota", "billing_error"})
SETTLED: Final[frozenset[StatusKind]] = frozenset(
    {"ok", "moderated", "truncated", "truncated_in_reasoning", "tool_call"}
)
"""Statuses that resuming leaves alone.

A truncated reply is a technical failure, yet asking again with the same settings would either
repeat it or keep drawing until a short answer comes, which would bias what is measured. A larger
`max_tokens` is a different call, and is asked.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What is known of a response without reading its text."""

    kind: StatusKind
    detail: str
    category: Category | None = None
    """None when the text has to be read."""
    layer: Layer = "transport"


def status_of(response: Response) -> Status:
    """The status of a response; its `category` is None when the text decides."""
    if isinstance(response, Failure):
        return _status_of_failure(response)
    return _status_of_reply(response)


def is_moderation(failure: Failure) -> bool:
    """Whether the provider says that its moderation stopped the call.

    Only its own errors are read: a message of ours may quote a body that speaks of filters.
    """
    return failure.reason in ("http", "provider") and (
        (failure.code or "").lower() in MODERATION_CODES
        or bool(_MODERATION_MESSAGE.search(failure.message))
    )


def is_retryable(failure: Failure) -> bool:
    """Whether the same call may go through a moment later."""
    if is_moderation(failure) or (failure.code or "").lower() in NOT_WORTH_RETRYING:
        return False
    if failure.reason == "http":
        return failure.http_status in RETRYABLE_HTTP
    return failure.reason not in ("engine", "bad_shape")


_FAILURE_KINDS: Final[dict[str, StatusKind]] = {
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


def _status_of_failure(failure: Failure) -> Status:
    code = _told(failure)
    if is_moderation(failure):
        detail = f"the provider's moderation stopped the call{code}: {failure.message}"
        return Status(kind="moderated", detail=detail, category="content_refusal", layer="provider")
    kind = _FAILURE_KINDS[failure.reason]
    if failure.http_status == 429:
        kind = "rate_limited"
    where = f"HTTP {failure.http_status}" if failure.http_status else failure.reason
    return _technical(kind, f"{where}{code}: {failure.message}")


def _told(failure: Failure) -> str:
    """The provider's code in brackets, unless it only repeats the HTTP status."""
    if not failure.code or failure.code == str(failure.http_status):
        return ""
    is_known = failure.code.lower() in MODERATION_CODES | TECHNICAL_CODES | NOT_WORTH_RETRYING
    return f" ({'' if is_known else 'unknown '}code {failure.code})"


def _status_of_reply(reply: Reply) -> Status:
    reason = reply.finish_reason
    ending = "finished" if reason is None else FINISH_REASONS.get(reason.lower())
    if ending == "moderated":
        detail = f"the provider's moderation ended the reply (finish reason {reason})"
        return Status(kind="moderated", detail=detail, category="content_refusal", layer="provider")
    if ending is None:
        return _technical("unknown_finish_reason", f"unknown finish reason {reason!r}")
    if ending == "unexplained":
        return _technical("unknown_finish_reason", f"the provider gave no reason ({reason})")
    if ending == "provider_error":
        return _technical("provider_error", f"the provider broke off (finish reason {reason})")
    if ending == "truncated":
        return _status_of_truncated(reply)
    if ending == "tool_call":
        return _technical("tool_call", f"the model called a tool instead (finish reason {reason})")
    if not reply.text.strip():
        return _status_of_empty(reply)
    return Status(kind="ok", detail=f"finish reason {reason or 'not given'}", layer="model")


def _status_of_truncated(reply: Reply) -> Status:
    if not reply.text.strip() and reply.reasoning:
        detail = "cut off by the token limit before the reasoning ended, so no answer came"
        return _technical("truncated_in_reasoning", detail)
    detail = f"cut off by the token limit (finish reason {reply.finish_reason})"
    return _technical("truncated", detail)


def _status_of_empty(reply: Reply) -> Status:
    if reply.reasoning or reply.completion_tokens:
        detail = (
            f"tokens were written ({reply.completion_tokens or 'uncounted'}) and no answer came: "
            "an empty turn, or an answer taken back"
        )
        return _technical("emptied_reply", detail)
    return _technical("empty_reply", "the reply is empty")


def _technical(kind: StatusKind, detail: str) -> Status:
    return Status(kind=kind, detail=detail, category="technical_failure", layer="transport")
