"""The nouns that cross disk or wire. All are frozen, and refuse fields they do not know."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from beacon.ids import content_id

Category: TypeAlias = Literal[
    "technical_failure", "substantive_response", "content_refusal", "partial_response"
]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

Layer: TypeAlias = Literal["transport", "provider", "model"]
"""Where a category was decided: on the way, by the provider, or in the model's words."""

FailureReason: TypeAlias = Literal[
    "connection",
    "connect_timeout",
    "first_byte_timeout",
    "whole_timeout",
    "http",
    "bad_json",
    "bad_shape",
    "provider",
    "engine",
]
"""Why no reply came. `provider`: an error object inside an HTTP 200; `engine`: a local model's."""

StatusKind: TypeAlias = Literal[
    "ok",
    "connection_failed",
    "timed_out",
    "http_error",
    "rate_limited",
    "bad_json",
    "malformed_reply",
    "empty_reply",
    "emptied_reply",
    "truncated",
    "truncated_in_reasoning",
    "tool_call",
    "provider_error",
    "engine_error",
    "unknown_finish_reason",
    "moderated",
]


def storable(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD: JSON may carry them, UTF-8 can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A noun that is written down."""


@cache
def fields_of(kind: type[Record]) -> dict[str, msgspec.structs.FieldInfo]:
    """A record's fields by name; working them out takes longer than making the record."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


class Sampling(Record, frozen=True, kw_only=True, omit_defaults=True):
    """How a model is to answer. What is not given is left to the model's own default."""

    temperature: Annotated[float, Meta(ge=0, le=5)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    seed: Annotated[int, Meta(ge=0)] | None = None
    """The first repeat's seed; each further repeat adds one, so that repeats can differ."""
    stop: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None
    """How many log-probabilities to keep for each token of the reply; none when not given."""

    def over(self, base: Sampling) -> Sampling:
        """This, with what it leaves open taken from `base`."""
        given = msgspec.structs.asdict(self)
        return msgspec.structs.replace(
            base, **{name: value for name, value in given.items() if value not in (None, ())}
        )


class Call(Record, frozen=True, kw_only=True):
    """One question, in one framing, for one model, once: the unit of work."""

    question_id: str
    framing_id: str
    model: str
    """The model's name in the study."""
    spec: str
    """What the name stands for: see `beacon.model`."""
    system: str
    """The framing's system prompt; empty means that none is sent."""
    prompt: str
    sampling: Sampling
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further fields of the request."""
    repeat: int
    """Counted from 0; repeats of a call differ only here and in the seed."""

    @property
    def id(self) -> str:
        """The call's identity: everything that decides what is asked, hashed."""
        return content_id("c1", self)


class TokenLogprob(Record, frozen=True, kw_only=True):
    """One token of a reply with its log-probability and those of the likeliest alternatives."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Reply(Record, frozen=True, kw_only=True, tag="reply", tag_field="kind"):
    """What a model said. That it said something does not mean that it answered."""

    text: str
    reasoning: str | None = None
    """What the model wrote before its answer, where it or the server keeps that apart."""
    finish_reason: str | None = None
    """As the server gave it; `beacon.status` knows what it means."""
    is_declared_refusal: bool = False
    """The server itself marked the text as a refusal."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    served_model: str | None = None
    """The model's own name as the server gave it."""
    provider: str | None = None
    """The upstream host, where an aggregator names it."""
    latency: float = 0.0
    """Seconds from sending to the whole reply, for the try that succeeded."""
    n_tries: int = 1


class Failure(Record, frozen=True, kw_only=True, tag="failure", tag_field="kind"):
    """No reply came. Says nothing about what the model would have said."""

    reason: FailureReason
    message: str
    http_status: int | None = None
    code: str | None = None
    """The provider's own error code or type."""
    latency: float = 0.0
    n_tries: int = 1


Response: TypeAlias = Reply | Failure


class Evidence(Record, frozen=True, kw_only=True):
    """Why a label is what it is: a rule, and where it applies, the span of text."""

    rule: str
    detail: str
    start: int | None = None
    end: int | None = None


class Label(Record, frozen=True, kw_only=True):
    """A classifier's category for a response."""

    category: Category
    layer: Layer
    length: int
    """Characters of text."""
    evidence: tuple[Evidence, ...]
    """At least one; the first is what decided."""
    classifier: str
    """Name and version, as in `reference@1`."""
    confidence: float | None = None
    """Calibrated probability of the category; none where the instrument gives no such thing."""

    @property
    def rule(self) -> str:
        """The rule that decided."""
        return self.evidence[0].rule

    @property
    def technical_failure(self) -> bool:
        """The call or the prompt structure failed."""
        return self.category == "technical_failure"

    @property
    def substantive_response(self) -> bool:
        """The model answered the question."""
        return self.category == "substantive_response"

    @property
    def content_refusal(self) -> bool:
        """The model, or the provider's moderation, declined to answer."""
        return self.category == "content_refusal"

    @property
    def partial_response(self) -> bool:
        """Some information, with significant caveats or little detail."""
        return self.category == "partial_response"


class Stored(Record, frozen=True, kw_only=True):
    """A response in a run's store, with what it answers."""

    id: int
    call_id: str
    question_id: str
    framing_id: str
    model: str
    repeat: int
    asked_at: str
    """When it was asked: ISO 8601, UTC."""
    status: StatusKind
    response: Response

    @property
    def text(self) -> str:
        """What the model said; empty when no reply came."""
        return self.response.text if isinstance(self.response, Reply) else ""
