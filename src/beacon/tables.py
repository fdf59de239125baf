"""The tables of a run's store, for queries. `migrations/` creates them; a test compares the two."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Integer, MetaData, Table, Text

metadata = MetaData()

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", Text, nullable=False),
    Column("study", Text, nullable=False),
    Column("beacon_version", Text, nullable=False),
    Column("stored_at", Text, nullable=False),
)

instruments = Table(
    "instruments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("stored_at", Text, nullable=False),
)


def _response_columns() -> list[Column[int] | Column[str] | Column[float]]:
    return [
        Column("id", Integer, primary_key=True),
        Column("call_id", Text, nullable=False),
        Column("question_id", Text, nullable=False),
        Column("framing_id", Text, nullable=False),
        Column("model", Text, nullable=False),
        Column("repeat", Integer, nullable=False),
        Column("asked_at", Text, nullable=False),
        Column("status", Text, nullable=False),
        Column("is_settled", Integer, nullable=False),
        Column("kind", Text, nullable=False),
        Column("text", Text),
        Column("reasoning", Text),
        Column("finish_reason", Text),
        Column("is_declared_refusal", Integer),
        Column("prompt_tokens", Integer),
        Column("completion_tokens", Integer),
        Column("logprobs", Text),
        Column("served_model", Text),
        Column("provider", Text),
        Column("reason", Text),
        Column("message", Text),
        Column("http_status", Integer),
        Column("code", Text),
        Column("latency", Float, nullable=False),
        Column("n_tries", Integer, nullable=False),
    ]


def _label_columns() -> list[Column[int] | Column[str] | Column[float]]:
    return [
        Column("id", Integer, primary_key=True),
        Column("response_id", Integer, ForeignKey("responses.id"), nullable=False),
        Column("instrument_id", Integer, ForeignKey("instruments.id"), nullable=False),
        Column("category", Text, nullable=False),
        Column("layer", Text, nullable=False),
        Column("length", Integer, nullable=False),
        Column("confidence", Float),
        Column("rule", Text, nullable=False),
        Column("evidence", Text, nullable=False),
    ]


responses = Table("responses", metadata, *_response_columns())
labels = Table("labels", metadata, *_label_columns())

views = MetaData()
current_responses = Table("current_responses", views, *_response_columns())
"""The newest response of each call."""
current_labels = Table(
    "current_labels",
    views,
    *(Column(column.name, column.type) for column in labels.columns),
)
"""The newest label of each response and instrument."""
