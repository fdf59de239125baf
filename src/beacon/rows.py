"""Responses and labels as rows of the store, and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping

from beacon.records import (
    Call,
    Evidence,
    Failure,
    Label,
    Reply,
    Response,
    Stored,
    TokenLogprob,
)
from beacon.status import SETTLED, Status

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A response that came in, not yet stored."""

    call: Call
    call_id: str
    response: Response
    status: Status
    asked_at: datetime


def stamp(moment: datetime) -> str:
    """A moment as the store writes it."""
    return moment.isoformat(timespec="milliseconds")


def response_row(row_id: int, landed: Landed) -> tuple[Any, ...]:
    """A response in the order of the table's columns."""
    call, response, status = landed.call, landed.response, landed.status
    head = (
        row_id,
        landed.call_id,
        call.question_id,
        call.framing_id,
        call.model,
        call.repeat,
        stamp(landed.asked_at),
        status.kind,
        int(status.kind in SETTLED),
    )
    tail = (response.latency, response.n_tries)
    if isinstance(response, Failure):
        nothing = (None,) * 9
        what = (response.reason, response.message, response.http_status, response.code)
        return (*head, "failure", *nothing, *what, *tail)
    return (
        *head,
        "reply",
        response.text,
        response.reasoning,
        response.finish_reason,
        int(response.is_declared_refusal),
        response.prompt_tokens,
        response.completion_tokens,
        None if response.logprobs is None else encode(response.logprobs).decode(),
        response.served_model,
        response.provider,
        None,
        None,
        None,
        None,
        *tail,
    )


def label_row(instrument_id: int, response_id: int, label: Label) -> tuple[Any, ...]:
    """A label in the order of the table's columns; SQLite gives the id."""
    return (
        None,
        response_id,
        instrument_id,
        label.category,
        label.layer,
        label.length,
        label.confidence,
        label.rule,
        encode(label.evidence).decode(),
    )


def stored(row_id: int, landed: Landed) -> Stored:
    """What was just stored."""
    return Stored(
        id=row_id,
        call_id=landed.call_id,
        question_id=landed.call.question_id,
        framing_id=landed.call.framing_id,
        model=landed.call.model,
        repeat=landed.call.repeat,
        asked_at=stamp(landed.asked_at),
        status=landed.status.kind,
        response=landed.response,
    )


def read_stored(row: RowMapping) -> Stored:
    """A response as it was stored."""
    response: Response
    if row["kind"] == "failure":
        response = Failure(
            reason=row["reason"],
            message=row["message"],
            http_status=row["http_status"],
            code=row["code"],
            latency=row["latency"],
            n_tries=row["n_tries"],
        )
    else:
        logprobs = row["logprobs"]
        response = Reply(
            text=row["text"],
            reasoning=row["reasoning"],
            finish_reason=row["finish_reason"],
            is_declared_refusal=bool(row["is_declared_refusal"]),
            prompt_tokens=row["prompt_tokens"],
            completion_tokens=row["completion_tokens"],
            logprobs=logprobs and msgspec.json.decode(logprobs, type=tuple[TokenLogprob, ...]),
            served_model=row["served_model"],
            provider=row["provider"],
            latency=row["latency"],
            n_tries=row["n_tries"],
        )
    names = ("id", "call_id", "question_id", "framing_id", "model", "repeat", "asked_at", "status")
    return Stored(response=response, **{name: row[name] for name in names})


def read_label(row: RowMapping, classifier: str) -> Label:
    """A label as it was stored."""
    return Label(
        category=row["category"],
        layer=row["layer"],
        length=row["length"],
        confidence=row["confidence"],
        evidence=msgspec.json.decode(row["evidence"], type=tuple[Evidence, ...]),
        classifier=classifier,
    )
