"""The run's store: SQLite in the run folder. Rows are added and never changed.

A run folder holds `store.sqlite`, `study.yaml` (the study as resolved, for people) and what the
later stages write. The store can be read while it is being written; one process at a time collects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy.dialects import sqlite

from beacon.database import check_version, migrate
from beacon.errors import UsageError
from beacon.records import Label, Stored
from beacon.rows import (
    Landed,
    encode,
    label_row,
    response_row,
    stamp,
    stored,
)
from beacon.store_reader import STORE_FILE, InstrumentKind, StoreReader
from beacon.study import Study
from beacon.study_dump import write_study
from beacon.tables import (
    instruments,
    labels,
    responses,
    studies,
)

LOCK_FILE: Final = ".collecting"

_INSERT_RESPONSE: Final = str(sa.insert(responses).compile(dialect=sqlite.dialect()))
_INSERT_LABEL: Final = str(sa.insert(labels).compile(dialect=sqlite.dialect()))


class Store(StoreReader):
    """A run's responses, labels, study and instruments."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock = FileLock(folder / LOCK_FILE)
        self._next_response: int | None = None

    @classmethod
    def create(cls, folder: Path, study: Study, *, now: datetime, version: str) -> Store:
        """A new store in `folder`, or the one that is there if it holds the same study.

        A study that only adds models or repeats to the stored one is stored beside it, and the run
        grows.
        """
        store = cls.prepare(folder)
        store.bring_up_to_date(now)
        store.check_study(study)
        store.keep_study(study, now=now, version=version)
        return store

    @classmethod
    def prepare(cls, folder: Path) -> Store:
        """A store in a folder that is new, empty, or holds a run; nothing is written yet."""
        try:
            others = {path.name for path in folder.iterdir()} if folder.exists() else set()
            if others - {LOCK_FILE} and STORE_FILE not in others:
                raise UsageError(
                    f"{folder} is not empty and holds no run; choose another folder with --into."
                )
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"Cannot make the run's folder {folder}: {error.strerror}.") from None
        return cls(folder)

    def bring_up_to_date(self, now: datetime) -> None:
        """Apply the migrations that the store lacks."""
        with self._told_clearly():
            migrate(self._engine, now)
            check_version(self._engine, self.folder)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The store of an existing run."""
        if not (folder / STORE_FILE).exists():
            raise UsageError(f"{folder} holds no run: there is no {STORE_FILE} in it.")
        store = cls(folder)
        with store._told_clearly():
            check_version(store._engine, folder)
        if not store.has_study():
            raise UsageError(f"{folder} holds no study: its run never began. Begin it again.")
        return store

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def remove(self) -> None:
        """Take a store that never came to hold a study off the disk."""
        self.close()
        for file in self.folder.glob(f"{STORE_FILE}*"):
            file.unlink()
        (self.folder / LOCK_FILE).unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The right to write into this run; may be taken again inside itself."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(
                f"Another process is collecting into {self.folder}; wait for it, or stop it."
            ) from None
        except OSError as error:
            raise UsageError(f"Cannot write into {self.folder}: {error.strerror}.") from None
        try:
            yield
        finally:
            self._lock.release()

    def add_instrument(self, kind: InstrumentKind, name: str, now: datetime) -> int:
        """The id of the instrument `name@version`; it is added when new."""
        found = self._find_instrument(kind, name)
        if found is not None:
            return found
        short, _, version = name.partition("@")
        row = {"kind": kind, "name": short, "version": version, "stored_at": stamp(now)}
        with self._engine.begin() as connection:
            return int(connection.execute(sa.insert(instruments).values(row)).lastrowid)

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

    def append_labels(self, instrument_id: int, group: Sequence[tuple[int, Label]]) -> None:
        """Store labels for the responses with these ids, all or none."""
        if not group:
            return
        rows = [label_row(instrument_id, response_id, label) for response_id, label in group]
        with self._engine.begin() as connection:
            connection.exec_driver_sql(_INSERT_LABEL, rows)

    def check_study(self, study: Study) -> None:
        """Refuse a study that is not the one that this run has been asking."""
        if not self.has_study() or not self.status_counts():
            return
        held = self.study()
        if not study.grew_from(held):
            raise UsageError(
                f"{self.folder} holds a run of another study ({held.name}, {held.id}); "
                "choose another folder with --into. Models and repeats may be added to a run; "
                "nothing that was asked may be changed or left out."
            )

    def keep_study(self, study: Study, *, now: datetime, version: str) -> None:
        """Store the study as resolved, unless it is the one held already."""
        if self.has_study() and self.study() == study:
            return
        row = {
            "study_id": study.id,
            "study": encode(study).decode(),
            "beacon_version": version,
            "stored_at": stamp(now),
        }
        with self._engine.begin() as connection:
            connection.execute(sa.insert(studies).values(row))
        write_study(self.folder, study)
