"""A run's store, read: the study, the responses that count, their labels, and counts of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import sqlalchemy as sa

from beacon.database import open_database
from beacon.errors import UsageError
from beacon.records import Category, Label, StatusKind, Stored
from beacon.rows import read_label, read_stored
from beacon.study import Study
from beacon.tables import current_labels, current_responses, instruments, labels, responses, studies

InstrumentKind = Literal["classifier", "judge"]
STORE_FILE: Final = "store.sqlite"
CHUNK: Final = 500
"""Rows that are read, or ids that are looked up, at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All current responses to one question in one framing by one model, counted."""

    model: str
    framing_id: str
    question_id: str
    counts: Mapping[Category, int]
    answered_length: int
    """Characters in all responses that are not technical failures."""


class StoreReader:
    """What a run holds. Safe to use while another process writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._engine = open_database(folder / STORE_FILE)

    def study(self) -> Study:
        """The study as it was resolved for this run."""
        query = sa.select(studies.c.study).order_by(studies.c.id.desc()).limit(1)
        with self._engine.connect() as connection:
            return msgspec.json.decode(connection.execute(query).scalar_one(), type=Study)

    def created_at(self) -> str:
        """When the run began."""
        with self._engine.connect() as connection:
            query = sa.select(studies.c.stored_at).order_by(studies.c.id).limit(1)
            return str(connection.execute(query).scalar_one())

    def instrument_id(self, kind: InstrumentKind, name: str) -> int:
        """The id of an instrument that has been used on this run."""
        found = self._find_instrument(kind, name)
        if found is None:
            raise UsageError(
                f"{self.folder} has nothing by the {kind} {name}; "
                f"run `beacon classify {self.folder}` first."
            )
        return found

    def classifiers(self) -> list[str]:
        """The classifiers that have labelled this run, in the order in which they were added."""
        query = (
            sa.select(instruments.c.name, instruments.c.version)
            .where(instruments.c.kind == "classifier")
            .order_by(instruments.c.id)
        )
        with self._engine.connect() as connection:
            return [f"{name}@{version}" for name, version in connection.execute(query)]

    def settled(self, call_ids: Sequence[str]) -> set[str]:
        """Those of `call_ids` that need not be asked again."""
        query = sa.select(responses.c.call_id).where(
            responses.c.call_id.in_(call_ids), responses.c.is_settled == 1
        )
        with self._engine.connect() as connection:
            return set(connection.execute(query).scalars())

    def n_settled(self) -> int:
        """How many calls need not be asked again."""
        query = sa.select(sa.func.count(responses.c.call_id.distinct())).where(
            responses.c.is_settled == 1
        )
        with self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def responses(self) -> Iterator[Stored]:
        """The response that counts for every call, in the order in which they came."""
        yield from self._read(sa.select(current_responses).order_by(current_responses.c.id))

    def unlabelled(self, instrument_id: int) -> Iterator[list[Stored]]:
        """Current responses that the instrument has not labelled, in chunks."""
        has_label = sa.exists().where(
            labels.c.response_id == current_responses.c.id,
            labels.c.instrument_id == instrument_id,
        )
        last = 0
        while True:
            query = (
                sa.select(current_responses)
                .where(current_responses.c.id > last, ~has_label)
                .order_by(current_responses.c.id)
                .limit(CHUNK)
            )
            chunk = list(self._read(query))
            if not chunk:
                return
            yield chunk
            last = chunk[-1].id

    def by_rule(self, instrument_id: int, rules: Sequence[str]) -> list[tuple[Stored, Label]]:
        """Current responses whose label the instrument decided by one of `rules`."""
        query = (
            self._labelled(instrument_id)
            .where(current_labels.c.rule.in_(rules))
            .order_by(current_responses.c.id)
        )
        found = self._read_labelled(query, instrument_id)
        return [(stored, label) for stored, label in found if label is not None]

    def answered(
        self,
        instrument_id: int,
        question_ids: Collection[str],
        *,
        unanswered_rules: Collection[str],
    ) -> set[tuple[str, str]]:
        """Models and framings that replied to any of the questions, and not by one of the rules."""
        query = (
            sa.select(current_responses.c.model, current_responses.c.framing_id)
            .select_from(_join(instrument_id))
            .where(
                current_responses.c.question_id.in_(question_ids),
                current_responses.c.status == "ok",
                current_labels.c.rule.not_in(unanswered_rules),
            )
            .distinct()
        )
        with self._engine.connect() as connection:
            return {(model, framing_id) for model, framing_id in connection.execute(query)}

    def labelled(self, instrument_id: int) -> Iterator[tuple[Stored, Label | None]]:
        """Every current response with the instrument's label, or None where it has none."""
        query = self._labelled(instrument_id).order_by(current_responses.c.id)
        yield from self._read_labelled(query, instrument_id)

    def status_counts(self) -> dict[str, dict[StatusKind, int]]:
        """How many current responses have each status, by model."""
        query = sa.select(
            current_responses.c.model, current_responses.c.status, sa.func.count()
        ).group_by(current_responses.c.model, current_responses.c.status)
        counts: dict[str, dict[StatusKind, int]] = {}
        with self._engine.connect() as connection:
            for model, status, n in connection.execute(query):
                counts.setdefault(model, {})[status] = n
        return counts

    def usage(self) -> dict[str, dict[str, Any]]:
        """Tokens, hosts and served names by model, over everything that was ever asked."""
        query = sa.select(
            responses.c.model,
            sa.func.count(),
            sa.func.sum(responses.c.prompt_tokens),
            sa.func.sum(responses.c.completion_tokens),
            sa.func.group_concat(responses.c.served_model.distinct()),
            sa.func.group_concat(responses.c.provider.distinct()),
        ).group_by(responses.c.model)
        names = ("n_asked", "prompt_tokens", "completion_tokens", "served_models", "providers")
        with self._engine.connect() as connection:
            return {
                row[0]: dict(zip(names, row[1:], strict=True)) for row in connection.execute(query)
            }

    def cells(self, instrument_id: int) -> list[Cell]:
        """Counts of the instrument's labels for each model, framing and question."""
        r, c = current_responses.c, current_labels.c
        query = (
            sa.select(
                r.model,
                r.framing_id,
                r.question_id,
                c.category,
                sa.func.count(),
                sa.func.sum(c.length),
            )
            .select_from(_join(instrument_id))
            .group_by(r.model, r.framing_id, r.question_id, c.category)
        )
        counts: dict[tuple[str, str, str], dict[Category, int]] = {}
        lengths: dict[tuple[str, str, str], int] = {}
        with self._engine.connect() as connection:
            for model, framing_id, question_id, category, n, length in connection.execute(query):
                key = (model, framing_id, question_id)
                counts.setdefault(key, {})[category] = n
                answered = 0 if category == "technical_failure" else length
                lengths[key] = lengths.get(key, 0) + answered
        return [
            Cell(
                model=key[0],
                framing_id=key[1],
                question_id=key[2],
                counts=cell,
                answered_length=lengths[key],
            )
            for key, cell in counts.items()
        ]

    def has_study(self) -> bool:
        """Whether the run has begun."""
        if not (self.folder / STORE_FILE).exists():
            return False
        with self._told_clearly(), self._engine.connect() as connection:
            if not sa.inspect(connection).has_table("studies"):
                return False
            return bool(
                connection.execute(sa.select(sa.func.count()).select_from(studies)).scalar()
            )

    @contextmanager
    def _told_clearly(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DatabaseError as error:
            file = self.folder / STORE_FILE
            raise UsageError(f"{file} can't be used: {error.orig}.") from None

    def _labelled(self, instrument_id: int) -> sa.Select[Any]:
        c = current_labels.c
        return sa.select(
            current_responses,
            c.category,
            c.layer,
            c.length,
            c.confidence,
            c.evidence,
        ).select_from(_join(instrument_id, isouter=True))

    def _read(self, query: sa.Select[Any]) -> Iterator[Stored]:
        with self._engine.connect() as connection:
            for row in connection.execute(query).yield_per(CHUNK).mappings():
                yield read_stored(row)

    def _read_labelled(
        self, query: sa.Select[Any], instrument_id: int
    ) -> Iterator[tuple[Stored, Label | None]]:
        name = self._instrument_name(instrument_id)
        with self._engine.connect() as connection:
            for row in connection.execute(query).yield_per(CHUNK).mappings():
                label = None if row["category"] is None else read_label(row, name)
                yield read_stored(row), label

    def _find_instrument(self, kind: InstrumentKind, name: str) -> int | None:
        short, _, version = name.partition("@")
        query = sa.select(instruments.c.id).where(
            instruments.c.kind == kind,
            instruments.c.name == short,
            instruments.c.version == version,
        )
        with self._engine.connect() as connection:
            return connection.execute(query).scalar()

    def _instrument_name(self, instrument_id: int) -> str:
        query = sa.select(instruments.c.name, instruments.c.version).where(
            instruments.c.id == instrument_id
        )
        with self._engine.connect() as connection:
            name, version = connection.execute(query).one()
        return f"{name}@{version}"


def _join(instrument_id: int, *, isouter: bool = False) -> sa.Join:
    return current_responses.join(
        current_labels,
        sa.and_(
            current_labels.c.response_id == current_responses.c.id,
            current_labels.c.instrument_id == instrument_id,
        ),
        isouter=isouter,
    )
