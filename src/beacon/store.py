"""The run's store: SQLite in the run folder. Rows are added and never changed.

A run folder holds `store.sqlite`, `study.yaml` (the study as resolved, for people) and what the
later stages write. The store can be read while it is being written; one process at a time collects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy.dialects import sqlite

from beacon.database import check_version, migrate, open_database
from beacon.errors import UsageError
from beacon.records import Category, Label, StatusKind, Stored
from beacon.rows import (
    Landed,
    encode,
    label_row,
    read_label,
    read_stored,
    response_row,
    stamp,
    stored,
)
from beacon.study import Study
from beacon.study_dump import write_study
from beacon.tables import (
    current_labels,
    current_responses,
    instruments,
    labels,
    responses,
    studies,
)

InstrumentKind = Literal["classifier", "judge"]
STORE_FILE: Final = "store.sqlite"
CHUNK: Final = 500
"""Rows that are read, or ids that are looked up, at a time."""

_INSERT_RESPONSE: Final = str(sa.insert(responses).compile(dialect=sqlite.dialect()))
_INSERT_LABEL: Final = str(sa.insert(labels).compile(dialect=sqlite.dialect()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All current responses to one question in one framing by one model, counted."""

    model: str
    framing_id: str
    question_id: str
    counts: Mapping[Category, int]
    answered_length: int
    """Characters in all responses that are not technical failures."""


class Store:
    """A run's responses, labels, study and instruments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._engine = open_database(folder / STORE_FILE)
        self._next_response: int | None = None

    @classmethod
    def create(cls, folder: Path, study: Study, *, now: datetime, version: str) -> Store:
        """A new store in `folder`, or the one that is there if it holds the same study.

        A study that only adds models or repeats to the stored one is stored beside it, and the run
        grows.
        """
        if not (folder / STORE_FILE).exists():
            if folder.exists() and any(folder.iterdir()):
                raise UsageError(
                    f"{folder} is not empty and holds no run; choose another folder with --into."
                )
            folder.mkdir(parents=True, exist_ok=True)
        store = cls(folder)
        migrate(store._engine, now)
        store._keep_study(study, now, version)
        return store

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The store of an existing run."""
        if not (folder / STORE_FILE).exists():
            raise UsageError(f"{folder} holds no run: there is no {STORE_FILE} in it.")
        store = cls(folder)
        try:
            check_version(store._engine, folder)
        except sa.exc.DatabaseError as error:
            raise UsageError(f"{folder / STORE_FILE} can't be read: {error.orig}.") from None
        return store

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def lock(self) -> FileLock:
        """The right to collect into this run; a second collector is told who is in the way."""
        lock = FileLock(self.folder / ".collecting")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(
                f"Another process is collecting into {self.folder}; wait for it, or stop it."
            ) from None
        return lock

    # -- the study and the instruments

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

    def add_instrument(self, kind: InstrumentKind, name: str, now: datetime) -> int:
        """The id of the instrument `name@version`; it is added when new."""
        found = self._find_instrument(kind, name)
        if found is not None:
            return found
        short, _, version = name.partition("@")
        row = {"kind": kind, "name": short, "version": version, "stored_at": stamp(now)}
        with self._engine.begin() as connection:
            return int(connection.execute(sa.insert(instruments).values(row)).lastrowid)

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

    # -- responses

    def append_responses(self, group: Sequence[Landed]) -> list[Stored]:
        """Store a group of responses durably, all or none."""
        with self._engine.begin() as connection:
            first = self._next_response
            if first is None:
                newest = connection.execute(sa.select(sa.func.max(responses.c.id))).scalar()
                first = (newest or 0) + 1
            rows = [response_row(first + i, landed) for i, landed in enumerate(group)]
            connection.exec_driver_sql(_INSERT_RESPONSE, rows)
        self._next_response = first + len(group)
        return [stored(row[0], landed) for row, landed in zip(rows, group, strict=True)]

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

    # -- labels

    def append_labels(self, instrument_id: int, group: Sequence[tuple[int, Label]]) -> None:
        """Store labels for the responses with these ids, all or none."""
        if not group:
            return
        rows = [label_row(instrument_id, response_id, label) for response_id, label in group]
        with self._engine.begin() as connection:
            connection.exec_driver_sql(_INSERT_LABEL, rows)

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

    # -- inside

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

    def _keep_study(self, study: Study, now: datetime, version: str) -> None:
        with self._engine.connect() as connection:
            n_held = connection.execute(sa.select(sa.func.count()).select_from(studies)).scalar()
        if n_held:
            held = self.study()
            if held == study:
                return
            if not study.grew_from(held) and self.status_counts():
                raise UsageError(
                    f"{self.folder} holds a run of another study ({held.name}, {held.id}); "
                    "choose another folder with --into. Models and repeats may be added to a run; "
                    "nothing that was asked may be changed or left out."
                )
        row = {
            "study_id": study.id,
            "study": encode(study).decode(),
            "beacon_version": version,
            "stored_at": stamp(now),
        }
        with self._engine.begin() as connection:
            connection.execute(sa.insert(studies).values(row))
        write_study(self.folder, study)


def _join(instrument_id: int, *, isouter: bool = False) -> sa.Join:
    return current_responses.join(
        current_labels,
        sa.and_(
            current_labels.c.response_id == current_responses.c.id,
            current_labels.c.instrument_id == instrument_id,
        ),
        isouter=isouter,
    )
