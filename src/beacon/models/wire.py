"""The OpenAI wire form: a call as a request body, a response body as a reply.

Servers bend this form in many ways. What can be read is read, and the rest is a `ModelError` that
quotes what came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

from beacon.errors import ModelError
from beacon.model import messages, plain_prompt, split_reasoning
from beacon.records import Call, Reply, Sampling, TokenLogprob, storable
from beacon.spec import Api, Preset
from beacon.status import MODERATION_CODES

LONGEST_QUOTE = 500
"""Characters of a server's words that an error message quotes."""


def request_body(
    call: Call, *, target: str, api: Api, preset: Preset | None = None, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON body that asks `call` of the model `target`."""
    body: dict[str, Any] = {"model": target} if target else {}
    if api == "chat":
        body["messages"] = messages(call)
    else:
        body["prompt"] = plain_prompt(call)
    body.update(_sampling(call.sampling, api, preset))
    body.update(extra)
    return body


@lru_cache
def _sampling(sampling: Sampling, api: Api, preset: Preset | None) -> dict[str, Any]:
    given: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "logprobs": sampling.logprobs,
    }
    if preset:
        given = {name: value for name, value in given.items() if name not in preset.unsupported}
    if preset and api == "chat":  # plain completions have kept the older names
        for ours, theirs in preset.parameters:
            given[theirs] = given.pop(ours, None)
    if api == "chat" and given.get("logprobs") is not None:
        given["top_logprobs"] = given["logprobs"]
        given["logprobs"] = True
    return {name: value for name, value in given.items() if value is not None}


def read_reply(payload: Any, *, latency: float) -> Reply:
    """The reply in a response body."""
    if not isinstance(payload, dict):
        raise _malformed("the body is not an object", payload)
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        if payload.get("error") or payload.get("base_resp") or "code" in payload:
            raise error_of(payload, reason_status=None)
        raise _malformed("the body has no choices", payload)
    choice: dict[str, Any] = choices[0]
    if choice.get("error"):
        raise error_of(choice, reason_status=None)
    message = choice.get("message")
    if isinstance(message, dict):
        return _read_chat(payload, choice, message, latency)
    if isinstance(choice.get("text"), str):
        return _read_completion(payload, choice, latency)
    raise _malformed("the first choice has neither message nor text", payload)


def _read_chat(
    payload: dict[str, Any], choice: dict[str, Any], message: dict[str, Any], latency: float
) -> Reply:
    written, content = split_reasoning(_text_of(message.get("content")))
    refusal = message.get("refusal")
    is_declared_refusal = isinstance(refusal, str) and bool(refusal) and not content.strip()
    reasoning = (
        message.get("reasoning_content")
        or message.get("reasoning")
        or _thinking_of(message.get("content"))
        or written
    )
    return Reply(
        text=storable(str(refusal) if is_declared_refusal else content),
        reasoning=storable(_text_of(reasoning)) or None,
        is_declared_refusal=is_declared_refusal,
        logprobs=_logprobs(choice.get("logprobs")),
        latency=latency,
        **_common(payload, choice),
    )


def _read_completion(payload: dict[str, Any], choice: dict[str, Any], latency: float) -> Reply:
    reasoning, text = split_reasoning(choice["text"])
    return Reply(
        text=storable(text.strip()),
        reasoning=storable(reasoning) if reasoning else None,
        logprobs=_logprobs(choice.get("logprobs")),
        latency=latency,
        **_common(payload, choice),
    )


def _common(payload: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    usage = payload.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    reason = choice.get("finish_reason") or choice.get("native_finish_reason")
    return {
        "finish_reason": storable(str(reason)) if reason else None,
        "prompt_tokens": _count(usage.get("prompt_tokens")),
        "completion_tokens": _count(usage.get("completion_tokens")),
        "served_model": _string(payload.get("model")),
        "provider": _string(payload.get("provider")),
    }


def error_of(
    payload: Any, *, reason_status: int | None, retry_after: float | None = None
) -> ModelError:
    """The error that a body describes, in whichever of the usual forms."""
    error = payload[0] if isinstance(payload, list) and len(payload) == 1 else payload
    if isinstance(error, dict):
        error = error.get("error") or error.get("base_resp") or error
    if not isinstance(error, dict):
        error = {"message": str(error)}
    words = (_words(error.get(name)) for name in ("message", "detail", "msg", "status_msg"))
    return ModelError(
        "http" if reason_status is not None else "provider",
        storable(str(next(filter(None, words), error)))[:LONGEST_QUOTE],
        http_status=reason_status,
        code=_error_code(error),
        retry_after=retry_after,
    )


def _words(told: Any) -> str:
    """What an error says. A validator's list also echoes the prompt, which is left out."""
    if isinstance(told, list):
        return "; ".join(
            _words(item.get("msg") if isinstance(item, dict) else item) for item in told
        )
    return str(told) if told else ""


def _error_code(error: dict[str, Any]) -> str | None:
    """The most telling code: moderation first, often nested; then words before numbers."""
    inner = error.get("innererror")
    named = [error.get(name) for name in ("code", "type", "status", "status_code")]
    codes = [
        storable(str(code))
        for code in (*named, inner.get("code") if isinstance(inner, dict) else None)
        if isinstance(code, str | int) and not isinstance(code, bool) and code != ""
    ]
    telling = [code for code in codes if code.lower() in MODERATION_CODES]
    words = [code for code in codes if not code.isdecimal()]
    return next(iter(telling or words or codes), None)


def _text_of(content: Any, part_name: str = "text") -> str:
    """Message content as text: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            _text_of(part.get(part_name)) if isinstance(part, dict) else _text_of(part)
            for part in content
        )
    return ""


def _thinking_of(content: Any) -> str:
    """The parts of a list that are reasoning, as Mistral sends them."""
    parts = content if isinstance(content, list) else []
    return _text_of([part for part in parts if isinstance(part, dict)], "thinking")


def _logprobs(raw: Any) -> tuple[TokenLogprob, ...] | None:
    """Log-probabilities in either form, whichever endpoint sent them; None if they can't be read.

    They stand beside the text, which is worth keeping without them.
    """
    try:
        if raw.get("tokens") is not None:
            return _logprobs_in_lists(raw)
        return _logprobs_in_objects(raw["content"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _logprobs_in_objects(tokens: Any) -> tuple[TokenLogprob, ...]:
    """The chat form: an object for each token."""
    return tuple(
        TokenLogprob(
            token=storable(token["token"]),
            logprob=_finite(token["logprob"]),
            top=tuple(
                (storable(top["token"]), _finite(top["logprob"]))
                for top in token.get("top_logprobs") or ()
            ),
        )
        for token in tokens
    )


def _logprobs_in_lists(raw: dict[str, Any]) -> tuple[TokenLogprob, ...]:
    """The older form: parallel lists."""
    tops: Iterable[Any] = raw.get("top_logprobs") or [None] * len(raw["tokens"])
    return tuple(
        TokenLogprob(
            token=storable(token),
            logprob=_finite(logprob),
            top=tuple((storable(text), _finite(value)) for text, value in (top or {}).items()),
        )
        for token, logprob, top in zip(raw["tokens"], raw["token_logprobs"], tops, strict=True)
        if logprob is not None
    )


def _finite(value: Any) -> float:
    """A number that JSON can carry, as a float."""
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return number


def _malformed(what: str, payload: Any) -> ModelError:
    return ModelError("bad_shape", storable(f"{what}: {payload!r}"[:LONGEST_QUOTE]))


def _string(value: Any) -> str | None:
    return storable(value) if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
